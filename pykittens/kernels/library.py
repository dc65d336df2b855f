"""The library: `@entry`, which registers a host function, and KERNELS, the table that tests and docs read."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Protocol, cast

from pykittens import kernels
from pykittens.errors import ArgumentError
from pykittens.ir.signature import signature_of
from pykittens.kernels.plan import Plan, Prepared, Source
from pykittens.runtime.calls import Calls, Found, element_name
from pykittens.runtime.dynamo import leave_out


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
        function, name = host_function(plan, numbers or {}), plan.__name__
        KERNELS[name] = Entry(name, function, reference, cases, inputs, rival, work)
        return function

    return register


def load_all() -> dict[str, Entry]:
    """KERNELS, after every file of the library has been imported."""
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{module.name}")
    return KERNELS


class HostFunction(Protocol):
    """A function of the library: it makes a plan for a call and launches it.

    A prepared call serves all calls of its form, which need no plan. plan: the launches and the result of a call with
    the same arguments; nothing is launched. forget: forget all prepared calls, so that plans are made anew.
    """

    __name__: str
    plan: Callable[..., Plan]
    forget: Callable[[], None]
    calls: Calls[Prepared]

    def __call__(self, *args: Any, **words: Any) -> Any: ...


def host_function(function: Callable[..., Plan], numbers: Mapping[str, Any]) -> HostFunction:
    """The HostFunction of a function that makes plans.

    It is a Python function and no object with a `__call__`, whose calls take 0.1 us more.
    """
    calls: Calls[Prepared] = Calls(numbers)
    find, parameters = calls.find, tuple(signature_of(function).parameters)

    @functools.wraps(function)
    def call(*args: Any, **words: Any) -> Any:
        found = prepared, _, values, stream = find(args, words)
        if prepared is None or not (prepared.is_fixed or prepared.holds(values)):
            plan = made.plan(*args, **words)
            return launch_first(calls, plan, found, parameters, args, words)
        return prepared.launch(values, stream, args, words)

    leave_out(
        call,
        "a function of pykittens.kernels is no operator of PyTorch, so torch.compile leaves it out of its graph; "
        "pykittens.torch has operators, and pykittens.torch.op makes one of a function that calls it",
    )
    made = cast(HostFunction, call)
    made.plan, made.forget, made.calls = _planning(function, numbers), calls.forget, calls
    return made


def launch_first(
    calls: Calls[Prepared],
    plan: Plan,
    found: Found[Prepared],
    parameters: Sequence[str],
    args: tuple[Any, ...],
    words: Mapping[str, Any],
) -> Any:
    """Launch the plan of a call, and keep it prepared for all calls of its form; the result of the call.

    found: what `calls` found for these arguments. parameters: the plan's names of the positional ones.
    """
    _, form, values, stream = found
    if form is None or plan.arrays.copies or not plan.steps:
        return plan.run()
    names = calls.names(parameters, args, words)
    sources: dict[str, Source] = {name: name for name in words}
    sources |= {name: i for i, name in enumerate(parameters[: len(args)])}
    for name, x in words.items():
        if isinstance(x, tuple | list):
            sources |= {element_name(name, i): (name, i) for i in range(len(x))}
    memory = plan.memory()
    prepared = Prepared(plan, memory, names, sources)
    calls.keep(form, prepared)
    return prepared.launch(values, stream, args, words, memory)


def _planning(function: Callable[..., Plan], numbers: Mapping[str, Any]) -> Callable[..., Plan]:
    """`function` for the arguments of a call: numbers are floats, and no required argument is None."""
    name, parameters = function.__name__, signature_of(function).parameters.values()
    required = [
        p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty
    ]

    @functools.wraps(function)
    def plan(*args: Any, **words: Any) -> Plan:
        given = zip((p.name for p in parameters), args, strict=False)
        for argument, x in (*given, *words.items()):
            if x is None and argument in required:
                raise ArgumentError(f"{name}: `{argument}` must be an array, not NoneType")
        for number, neutral in numbers.items():
            if isinstance(x := words.get(number), Real) and not isinstance(neutral, tuple):
                try:
                    words[number] = None if x == neutral else float(x)
                except OverflowError:
                    raise ArgumentError(f"{name}: `{number}` is more than an f32 holds") from None
        return function(*args, **words)

    return plan
