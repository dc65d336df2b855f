"""The library: `@entry`, which registers a host function, and KERNELS, the table that tests and docs read."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from pykittens import kernels
from pykittens.errors import ArgumentError
from pykittens.kernels.plan import Plan, Prepared
from pykittens.runtime.calls import Calls


@dataclass(frozen=True)
class Entry:
    """A kernel of the library, from which its tests, compilations, checks, benchmarks and documentation are drawn.

    function: the function that users call. reference: the same in float64 NumPy. cases: shapes and constants, as
    keyword arguments of `inputs`. inputs: for a generator and a case, the NumPy arrays and constants that the function
    and the reference take. rival: for the module torch and the same arguments as tensors, the result of the vendor's
    library. work: for a case, the number of floating-point operations, or of bytes that must be moved, and its unit.
    """

    name: str
    function: HostFunction
    reference: Callable[..., Any]
    cases: tuple[dict[str, Any], ...]
    inputs: Callable[..., dict[str, Any]]
    rival: Callable[..., Any] | None
    work: Callable[..., tuple[float, Literal["FLOP", "bytes"]]] | None


KERNELS: dict[str, Entry] = {}


def entry(
    *,
    reference: Callable[..., Any],
    cases: tuple[dict[str, Any], ...],
    inputs: Callable[..., dict[str, Any]],
    rival: Callable[..., Any] | None = None,
    work: Callable[..., tuple[float, Literal["FLOP", "bytes"]]] | None = None,
    numbers: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Plan]], HostFunction]:
    """Decorator: calls of the function launch the plan that it returns. The function is added to KERNELS.

    numbers: keyword arguments that are numbers for the kernel, each with the value that is the same as None. A tuple of
    arrays and numbers may be among them. All arguments except these, arrays and positional numbers are constants.
    """

    def register(plan: Callable[..., Plan]) -> HostFunction:
        function, name = HostFunction(plan, numbers or {}), plan.__name__
        KERNELS[name] = Entry(name, function, reference, cases, inputs, rival, work)
        return function

    return register


def load_all() -> dict[str, Entry]:
    """KERNELS, after every file of the library has been imported."""
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{module.name}")
    return KERNELS


class HostFunction:
    """A function of the library: it makes a plan for a call and launches it.

    A prepared call serves all calls of its form, which need no plan.
    """

    def __init__(self, function: Callable[..., Plan], numbers: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._numbers = function, numbers
        self._calls: Calls[Prepared] = Calls(numbers)
        parameters = inspect.signature(function).parameters
        self._parameters = tuple(parameters)
        self._required = [
            name
            for name, p in parameters.items()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty
        ]

    def __call__(self, *args: Any, **words: Any) -> Any:
        prepared, form, values, stream = self._calls.find(args, words)
        if prepared is None or not (prepared.is_fixed or prepared.holds(values)):
            plan = self.plan(*args, **words)
            if form is None or plan.arrays.copies or not plan.steps:
                return plan.run()
            names = self._calls.names(self._parameters, args, words)
            sources: dict[str, int | str] = {name: name for name in words}
            sources |= {name: i for i, name in enumerate(self._parameters[: len(args)])}
            memory = plan.memory()
            prepared = Prepared(plan, memory, names, sources)
            self._calls.keep(form, prepared)
            return prepared.launch(values, stream, args, words, memory)
        return prepared.launch(values, stream, args, words)

    def plan(self, *args: Any, **words: Any) -> Plan:
        """The launches and the result of a call with these arguments; nothing is launched."""
        for name, x in (*zip(self._parameters, args, strict=False), *words.items()):
            if x is None and name in self._required:
                raise self._fail(f"`{name}` must be an array, not NoneType")
        for name, neutral in self._numbers.items():
            if isinstance(x := words.get(name), Real) and not isinstance(neutral, tuple):
                words[name] = None if x == neutral else self._number(name, x)
        return self._function(*args, **words)

    def forget(self) -> None:
        """Forget all prepared calls, so that plans are made anew."""
        self._calls.forget()

    def _number(self, name: str, value: Real) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self._fail(f"`{name}` is more than an f32 holds") from None

    def _fail(self, message: str) -> ArgumentError:
        return ArgumentError(f"{self.__name__}: {message}")  # type: ignore[attr-defined]
