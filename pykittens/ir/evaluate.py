"""Scalars evaluated from their definitions: on the host, from extents and scalar arguments, or in another algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pykittens.errors import KernelError
from pykittens.ir.nodes import Call, For, ForTasks, Grid, Role
from pykittens.ir.values import Scalar, Value


def definition(value: Any) -> Call | None:
    """The operation that computes a scalar from its operands alone.

    None for a scalar that is given, read from memory or bound by control flow, and for anything else.
    """
    call = value.source if isinstance(value, Scalar) else None
    return call if isinstance(call, Call) and call.op.effects.pure else None


def fold(call: Call, evaluate: Callable[[Any], Any]) -> Any:
    """The result of a call on the numbers or arrays that `evaluate` gives for its operands; None if one is None."""
    args = {name: evaluate(a) for name, a in call.args.items()}
    if any(a is None for a in args.values()):
        return None
    try:
        return call.op.evaluate(args)
    except KernelError as fault:
        fault.loc = call.loc  # in the kernel, not where it is called
        raise


def host_value(value: Any, known: Mapping[Value, Any]) -> Any:
    """The number that a value has for these arguments, None if only a running kernel knows it."""
    if isinstance(value, tuple):
        found = tuple(host_value(v, known) for v in value)
        return None if None in found else found
    if not isinstance(value, Value):
        return value
    if value in known:
        return known[value]
    call = definition(value)
    number = None if call is None else fold(call, lambda a: host_value(a, known))
    return number.item() if isinstance(number, np.generic) else number


def host_function(
    values: Sequence[Any], known: Mapping[Value, Any], position: Mapping[Value, int]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Host values as a function of a call's arguments: those at `position` vary, and the others are known.

    The function is compiled from one expression, because every launch with new numbers evaluates it.
    """
    names: dict[str, Any] = {}

    def named(value: Any) -> str:
        names[f"n{len(names)}"] = value
        return f"n{len(names) - 1}"

    def text(value: Any) -> str:
        if value in position:
            return f"arguments[{position[value]}]"
        if not depends_on(value, set(position)):
            return named(host_value(value, known))
        call = definition(value)
        assert call is not None, "a value that depends on an argument is computed from it"
        operands = [text(a) for a in call.args.values()]
        scalar = call.op.scalar if call.op.meaning is None else None
        if scalar is not None and scalar.numpy in _SYMBOLS:  # Python numbers need no rounding
            return f"({_SYMBOLS[scalar.numpy].join(operands)})"
        return f"{named(_meaning(call))}({', '.join(operands)})"

    compiled: Callable[[Sequence[Any]], tuple[Any, ...]] = eval(
        f"lambda arguments: ({''.join(f'{text(v)}, ' for v in values)})", names
    )

    def function(arguments: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return compiled(arguments)
        except KernelError:  # raised again by host_value, at its line in the kernel
            here = {**known, **{value: arguments[i] for value, i in position.items()}}
            return tuple(host_value(value, here) for value in values)

    return function


def _meaning(call: Call) -> Callable[..., Any]:
    """The meaning of a call as a function of its operands by position."""
    if call.op.meaning is None and call.op.scalar is not None:
        return call.op.scalar.numpy
    evaluate, names = call.op.evaluate, tuple(call.args)
    return lambda *operands: evaluate(dict(zip(names, operands, strict=True)))


# Python's operators take a tenth of the time of NumPy's functions.
_SYMBOLS: dict[Any, str] = {
    np.add: " + ",
    np.subtract: " - ",
    np.multiply: " * ",
    np.less: " < ",
    np.less_equal: " <= ",
    np.greater: " > ",
    np.greater_equal: " >= ",
    np.equal: " == ",
    np.not_equal: " != ",
}


def depends_on(value: Any, parameters: set[Value]) -> bool:
    """Whether a host value is computed from one of these parameters."""
    if not isinstance(value, Value):
        return False
    if value in parameters:
        return True
    call = definition(value)
    return call is not None and any(depends_on(a, parameters) for a in call.args.values())


def is_natural(value: Any) -> bool:
    """Whether a run-time int is known not to be negative: an index of a task, of the grid, of a role or of a loop."""
    if not isinstance(value, Value):
        return bool(value >= 0)
    match node := value.source:
        case Role():
            return True
        case Grid() | ForTasks():
            return any(value is index for index in node.index)
        case For():
            return value is node.index and node.step > 0 and is_natural(node.start)
        case _:
            return False
