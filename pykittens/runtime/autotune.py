"""`@pk.autotune`: a kernel whose constants are chosen by measurement, once for each kind of call."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError, KernelError
from pykittens.ir.evaluate import depends_on
from pykittens.ir.op import Mismatch, called
from pykittens.ir.signature import signature_of
from pykittens.lang.structures import rebuild
from pykittens.runtime import driver
from pykittens.runtime.arguments import Arguments, check, reachable, scalar_dtype
from pykittens.runtime.candidates import Candidate, TunedParameters, stable_text
from pykittens.runtime.function_names import function_name
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch
from pykittens.runtime.recording import Recording
from pykittens.runtime.trial import Trial
from pykittens.runtime.tune import one_at_a_time, tune
from pykittens.types.dtypes import DType


class TunedKernel(KernelFunction):
    """A kernel whose calls choose constants among candidates; without a GPU they have the values of the first.

    candidates: the values of the constants.
    """

    parameters: TunedParameters

    def __init__(
        self,
        kernel: KernelFunction,
        candidates: Iterable[Any],
        key: Callable[..., Any] | None,
        reference: Callable[..., Any] | None,
        tolerance: float | None,
    ) -> None:
        super().__init__(kernel.function, kernel.options)
        self.parameters = TunedParameters.tuned(kernel.function, candidates)
        self.candidates = tuple(dict(c.values) for c in self.parameters.candidates)
        self._key, self._reference, self._tolerance = key, reference, tolerance
        self._choices: dict[Hashable, Candidate] = {}

    def best(self, *args: Any, **constants: Any) -> dict[str, Any]:
        """The constants of a call with these arguments; on a GPU the candidates are measured if none is known."""
        arguments = check(self.parameters, args, constants)
        if arguments.device != "cpu":
            arguments = self._settled(arguments, constants)
        return {name: arguments.constants[name] for name in self.parameters.tuned_names}

    def launch_of(
        self, arguments: Arguments, recording: Recording | None = None, debug: bool = False
    ) -> Launch:
        """The Launch for checked arguments; with a key of the user, it holds for their numbers only."""
        launch = super().launch_of(arguments, recording, debug)
        launch.by_value = launch.by_value or (self._key is not None and bool(arguments.scalars))
        return launch

    def _settled(self, arguments: Arguments, given: Mapping[str, Any]) -> Arguments:
        candidates, torch = self.parameters.fitting(given), sys.modules.get("torch")
        owners = [array.owner for array in arguments.tensors.values()]
        if len(candidates) < 2 or not (torch and all(isinstance(x, torch.Tensor) for x in owners)):
            return arguments
        key = self._key_of(arguments, candidates)
        call = arguments.device, repr(key), candidates
        if call not in self._choices:
            with one_at_a_time:
                if call not in self._choices:  # another thread may have measured it in the meantime
                    self._choices[call] = self._choice(arguments, key, candidates)
        return self._choices[call].applied(arguments)

    def _choice(
        self, arguments: Arguments, key: Mapping[str, Any], candidates: tuple[Candidate, ...]
    ) -> Candidate:
        """The choice for these arguments: remembered or measured."""
        assert not isinstance(arguments.device, str)
        arch = driver.device(arguments.device[1]).arch
        trial = Trial(
            self, arguments, candidates, self._reference and self._expected, self._tolerance
        )
        try:
            return tune(
                self._name,
                {"kernel": function_name(self.function), **key},
                candidates,
                trial.run,
                trial.fault,
                device=arguments.device,
                kernels=self._programs,
                compile=lambda candidate: trial.compile(candidate, arch),
                restore=trial.restore,
            )
        except Mismatch as fault:
            message = f"{self.parameters.name}: {fault.message}"
            raise ArgumentError(message, help=fault.help) from None
        except KernelError as error:
            if len(trial.errors) < len(candidates):
                raise
            raise trial.errors[candidates[0]] from error

    def _expected(self, arguments: Arguments) -> Any:
        with sys.modules["torch"].no_grad():
            return self._asked(self._reference, arguments)

    # -- what a choice depends on --------------------------------------------------------------

    @functools.cached_property
    def _name(self) -> str:
        return re.sub(r"\W+", "_", self.function.__qualname__.replace("<locals>.", ""))

    @functools.cached_property
    def _programs(self) -> list[object]:
        """The kernel, and functions and classes of values of its constants: a result holds while their files do."""
        values = [value for c in self.candidates for value in c.values()]
        defined = [x if hasattr(x, "__qualname__") else type(x) for x in values]
        return [self.function, *(x for x in defined if x.__module__ != "builtins")]

    def _others(self, arguments: Arguments) -> dict[str, Any]:
        """The constants that are not tuned."""
        tuned = self.parameters.tuned_names
        return {name: x for name, x in arguments.constants.items() if name not in tuned}

    def _asked(self, function: Any, arguments: Arguments) -> Any:
        """What a function of the user returns for the arguments and those of the other constants that it names."""
        named = _parameters(function)
        others = {name: x for name, x in self._others(arguments).items() if name in named}
        return function(*_given(arguments), **others)

    def _key_of(self, arguments: Arguments, candidates: tuple[Candidate, ...]) -> dict[str, Any]:
        others = self._others(arguments).items()
        constants = {name: stable_text(value) for name, value in others}
        key: dict[str, Any] = {"constants": constants}
        if self._key is not None:
            return {**key, "key": _plain(self._asked(self._key, arguments))}
        read = self._numbers_read(arguments, candidates) if arguments.scalars else ()
        found: dict[str, Any] = dict.fromkeys(arguments.absent)
        for name, array in arguments.tensors.items():
            found[name] = [array.dtype, list(array.shape), reachable(array)]
        for name, value in arguments.scalars.items():
            found[name] = value if name in read else scalar_dtype(value).name
        return {**key, "arguments": found}

    def _numbers_read(self, arguments: Arguments, candidates: tuple[Candidate, ...]) -> list[str]:
        """The numbers that `pk.static` makes part of the program."""
        for candidate in candidates:
            try:
                kernel = self.record(candidate.applied(arguments))
            except KernelError:  # not every candidate fits
                continue
            statics = [value for value, _ in kernel.statics]
            return [p.name for p in kernel.params if any(depends_on(v, {p}) for v in statics)]
        return []


@called("autotune", ArgumentError)
def autotune(
    candidates: Iterable[Any],
    *,
    key: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Callable[[KernelFunction], TunedKernel]:
    """Decorator of a kernel: calls on a GPU use the fastest of these candidates whose results are right.

    candidates: dicts with values of constants of the kernel, best guess first. They are measured at the first call with
    a key, and the choice is remembered on disk. key: what the choice may depend on, a function of the arguments; by
    default all dtypes, shapes and other constants, and which tensors the copy engine reaches. reference: the expected
    outputs, from the arguments; by default those of the first candidate. tolerance: the largest error of an output,
    relative to the root mean square of its elements, beyond its rounding; by default it follows from the dtypes.
    key and reference take the arguments of a call, and by keyword the constants that they name and that are not tuned.
    """
    for word, function in (("key", key), ("reference", reference)):
        if function is not None and not callable(function):
            raise Mismatch(
                f"`{word}` must be a function of the arguments, not {function!r}",
                help="as in key=lambda x, y: (x.shape, x.dtype)",
            )
    if isinstance(candidates, KernelFunction) or inspect.isfunction(candidates):
        raise Mismatch("the candidates are missing", help=_ABOVE)

    def tuned(kernel: KernelFunction) -> TunedKernel:
        if not isinstance(kernel, KernelFunction):
            raise ArgumentError(
                f"autotune: takes a kernel, not a {type(kernel).__name__}", help=_ABOVE
            )
        try:
            return TunedKernel(kernel, candidates, key, reference, tolerance)
        except Mismatch as fault:
            raise ArgumentError(f"autotune: {fault.message}", help=fault.help) from None

    return tuned


_ABOVE = '@pk.autotune([{"rows": 64}, {"rows": 128}]) stands above @pk.kernel'


@functools.lru_cache(256)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature_of(function).parameters)


def _given(arguments: Arguments) -> list[Any]:
    """The arguments as the caller passed them."""
    tensors, scalars = arguments.tensors, arguments.scalars
    leaves = iter([scalars[n] if n in scalars else tensors[n].owner for n in arguments.order])
    return [rebuild(form, leaves) for form in arguments.forms.values()]


def _plain(x: Any) -> Any:
    """A key of the user as JSON has it; dtypes become texts."""
    if isinstance(x, tuple | list):
        return [_plain(part) for part in x]
    if isinstance(x, dict):
        return {str(name): _plain(part) for name, part in x.items()}
    if isinstance(x, np.generic):
        return x.item()
    is_dtype = isinstance(x, np.dtype | DType | type) or type(x).__name__ in ("dtype", "device")
    return str(x) if is_dtype else x
