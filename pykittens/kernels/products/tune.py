"""Which configuration of a product is the fastest on this GPU: measured, checked and remembered."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pykittens.kernels.core import Limits, empty, limits_of
from pykittens.kernels.products.check import Trial, spare_call
from pykittens.kernels.products.config import Config, Shape
from pykittens.kernels.products.launch import Call, add_up
from pykittens.kernels.products.operands import has_lines
from pykittens.kernels.products.pick import candidates
from pykittens.kernels.workspace import stream_of
from pykittens.runtime import driver
from pykittens.runtime import tuned as kept
from pykittens.runtime.arguments import reachable
from pykittens.runtime.arrays import Device, describe
from pykittens.runtime.bound import BoundLaunch
from pykittens.runtime.cache import key as hash_of
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.tune import remembered, tune

NAME = "gemm"
MOST = 24  # candidates that are measured


def found_before(call: Call) -> Config | None:
    """What an earlier measurement found for such a call on such a GPU; it costs no time of the GPU."""
    device = device_of(call)
    if device == "cpu" or not kept.has_any(NAME):
        return None
    return remembered(NAME, key_of(call), contenders(call.shape, limits_of(call.like)), device)


def tuned(call: Call) -> Config:
    """The fastest configuration whose results are right: found before, or measured now."""
    chosen, device = contenders(call.shape, limits_of(call.like)), device_of(call)
    spare, arch = call, ""
    # The others are nowhere to be measured, which `tune` says.
    if not isinstance(device, str) and not driver.stream_is_capturing(
        stream_of(call.like), device[1]
    ):
        spare, arch = spare_call(call), driver.device(device[1]).arch
    launches: dict[Config, Callable[[], None]] = {}

    def run(config: Config) -> None:
        if config not in launches:
            launches[config] = launch_of(spare, config)
        launches[config]()

    return tune(
        NAME,
        key_of(call),
        chosen,
        run,
        Trial(call).fault,
        device=device,
        compile=lambda config: compile_for(spare, config, arch),
    )


def device_of(call: Call) -> Device:
    """Where a call is launched."""
    found = describe(call.like)
    assert found is not None
    return found.device


@functools.lru_cache(4096)
def contenders(shape: Shape, limits: Limits) -> tuple[Config, ...]:
    """The configurations that are measured, best guess first: the first of each kind, and then the first of all."""
    every = candidates(shape, limits)
    kinds: dict[Any, Config] = {}
    for c in every:
        kinds.setdefault((c.swap, c.splits > 1, c.consumers, c.cluster > 1, c.turns), c)
    chosen = {every[0], *[*kinds.values()][: MOST // 2]}
    for config in every:
        if len(chosen) < MOST:
            chosen.add(config)
    return tuple(c for c in every if c in chosen)


# -- what a choice depends on ----------------------------------------------------------------------


def key_of(call: Call) -> dict[str, Any]:
    """All that the choice may depend on."""
    p, options = call.p, call.options
    form = call.form(Config(0, 0))
    arrays = {"a": p.a, "b": p.b, **p.extras}
    known = {name: d for name, x in arrays.items() if (d := describe(x)) is not None}
    aligned = [name for name, d in known.items() if reachable(d)]
    return {
        **vars(call.shape),
        "lead": list(p.lead),
        "ranks": [len(known["a"].shape), len(known["b"].shape)],
        "transposed": [p.a_is_transposed, p.b_is_transposed],
        "dtypes": {**{name: d.dtype for name, d in known.items()}, "out": call.dtype},
        "aligned": [*aligned, *["out"] * _out_is_aligned(call)],
        "accumulate": options.accumulate.name,
        "epilogue": [*form.epilogue.names, options.activation],
        "function": function_name(options.epilogue),
    }


def _out_is_aligned(call: Call) -> bool:
    """Whether the copy engine can write the result; one that is made, or copied afterwards, lies without gaps."""
    if call.out is not None and has_lines(flat := call.flat(call.out)):
        found = describe(flat)
        assert found is not None
        return reachable(found)
    return call.p.n * call.shape.out_bytes % 16 == 0


def function_name(function: Callable[..., Any] | None) -> str:
    """The name of a function with a hash of its code, so that another one of this name is another one."""
    if function is None:
        return ""
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return f"{name} {hash_of(*_text_of(function, set()))[:16]}"


def _text_of(value: Any, seen: set[int]) -> Iterator[str]:
    """What is written in a function and in those that it encloses."""
    value = inspect.unwrap(value)
    code = value if isinstance(value, CodeType) else getattr(value, "__code__", None)
    if code is not None and id(code) not in seen:
        seen.add(id(code))
        yield code.co_code.hex()
        yield " ".join(code.co_names)
        for inner in (*code.co_consts, *_enclosed(value)):
            yield from _text_of(inner, seen)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _text_of(inner, seen)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value)
    else:
        yield type(value).__qualname__


def _enclosed(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a name that has no value yet
            yield cell.cell_contents


# -- what is measured ------------------------------------------------------------------------------


def compile_for(call: Call, config: Config, arch: str) -> None:
    """Compile what a configuration launches, from any thread; `call` has an output."""
    arguments = call.arguments(config, _lines(call), call.room(config).alone(call.like))
    call.kernel.compile(*arguments, arch=arch, **call.constants(config))


def launch_of(call: Call, config: Config) -> Callable[[], None]:
    """All launches of a configuration, with arguments and room that are made once: some microseconds on the host."""
    stream, made = stream_of(call.like), call.room(config).alone(call.like)
    arguments = call.arguments(config, _lines(call), made)
    launches = [Launch.of(call.kernel, arguments, **call.constants(config))]
    for name, shape in call.sums():
        total = empty(made[name], (*call.p.lead, shape[-1]))
        launches.append(Launch.of(add_up, (made[name], total)))

    def launch() -> None:
        for each in launches:
            each.launch(each.values, stream)

    return launch


@dataclass(frozen=True)
class Launch:
    """A bound launch with the addresses and numbers that it is made with, and the arrays, which live as long."""

    launch: BoundLaunch
    values: list[Any]
    arguments: tuple[Any, ...]

    @staticmethod
    def of(kernel: KernelFunction, arguments: tuple[Any, ...], **constants: Any) -> Launch:
        """The launch of a kernel with these arguments."""
        found = [(x, describe(x)) for x in arguments]
        values = [x if array is None else array.address for x, array in found]
        return Launch(kernel.bind(*arguments, **constants), values, arguments)


def _lines(call: Call) -> Any:
    """The output as the kernel takes it."""
    flat = call.flat(call.out)
    return flat if has_lines(flat) else empty(flat, tuple(flat.shape))
