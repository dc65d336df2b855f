"""The fastest configuration of a product on this GPU: measured, checked and remembered."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.choose import candidates
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.gemm.trial import GemmTrial, spare_call
from pykittens.kernels.limits import Limits, limits_of
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.arrays import Device
from pykittens.runtime.function_names import function_name
from pykittens.runtime.launch import current_stream
from pykittens.runtime.tune import remembered, tune

NAME = "gemm"
KERNELS = ()  # the files of the package are compared anyway
MOST = 24  # the number of candidates that are measured


def found_before(call: GemmCall) -> Config | None:
    """The configuration that an earlier measurement found for such a call on such a GPU. The GPU is not used."""
    device = device_of(call)
    if device == "cpu" or not tuning_records.has_any(NAME):
        return None
    chosen = contenders(call.shape, limits_of(call.arrays.like))
    return remembered(NAME, key_of(call), chosen, device, KERNELS)


def tuned(call: GemmCall) -> Config:
    """The fastest configuration whose results are right: found before, or measured."""
    device, lock = device_of(call), threading.Lock()

    @functools.cache
    def spare() -> GemmCall:  # made if something is measured
        return spare_call(call)

    @functools.cache
    def launches(config: Config) -> Callable[[], None]:
        return launch_of(spare(), config)

    def compile(config: Config) -> None:
        with lock:  # several threads compile, and copies are made once
            own = spare()
        own.plan(config).compile(driver.device(int(device[1])).arch)

    return tune(
        NAME,
        key_of(call),
        contenders(call.shape, limits_of(call.arrays.like)),
        lambda config: launches(config)(),
        GemmTrial(call).fault,
        device=device,
        kernels=KERNELS,
        compile=compile,
    )


def device_of(call: GemmCall) -> Device:
    """The device of a call."""
    return call.arrays.found["a"].device


@functools.lru_cache(4096)
def contenders(shape: GemmShape, limits: Limits) -> tuple[Config, ...]:
    """The configurations that are measured, best estimate first: the best of each kind, then the best of all."""
    every = candidates(shape, limits)
    kinds: dict[Any, Config] = {}
    for c in every:
        ways = c.swap, c.vectors > 0, c.splits > 1, c.consumers, c.across > 1
        kinds.setdefault((*ways, c.cluster > 1, c.turns, c.copied), c)
    chosen = {every[0], *[*kinds.values()][: MOST // 2]}
    for config in every:
        if len(chosen) < MOST:
            chosen.add(config)
    return tuple(c for c in every if c in chosen)


# -- the key of a choice ---------------------------------------------------------------------------


def key_of(call: GemmCall) -> dict[str, Any]:
    """Everything that the choice may depend on."""
    options, arrays, names = call.options, call.arrays, call.form(Config(0, 0)).epilogue.names
    inputs = {name: found for name, found in arrays.found.items() if name != "out"}
    return {
        **vars(call.shape),
        "lead": list(call.lead),
        "ranks": [arrays.views[name].ndim for name in ("a", "b")],
        "transposed": [call.a_is_transposed, call.b_is_transposed],
        "dtypes": {**{name: found.dtype for name, found in inputs.items()}, "out": call.dtype},
        "aligned": [name for name in (*inputs, "out") if arrays.reachable(name)],
        "accumulate": options.accumulate.name,
        "epilogue": [*names, options.activation],
        "function": function_name(options.epilogue),
    }


# -- the launches that are measured ----------------------------------------------------------------


def launch_of(call: GemmCall, config: Config) -> Callable[[], None]:
    """Runs all launches of a configuration, in memory that is made once; takes some microseconds on the host."""
    plan = call.plan(config)
    memory = plan.memory(alone=True)
    device = device_of(call)
    assert not isinstance(device, str)
    stream = current_stream(device[1])
    launches = [(launch.launch, (*values, stream)) for launch, values in plan.launches(memory)]

    def launch() -> None:
        assert memory  # lives as long as this function
        for each, values in launches:
            each(values)

    return launch
