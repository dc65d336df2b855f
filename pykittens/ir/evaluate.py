"""Scalars evaluated from their definitions: on the host, from extents and scalar arguments, or in another algebra."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from pykittens.errors import KernelError
from pykittens.ir.nodes import Call, For, ForTasks, Grid, Kernel, Role, Sharing
from pykittens.ir.operators import OPERATORS
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
    return number.item() if isinstance(number, np.generic | np.ndarray) else number


def is_on_host(value: Any, known: Collection[Value]) -> bool:
    """Whether the host can compute a value from those that it knows; it may still divide by 0."""
    if not isinstance(value, Value) or value in known:
        return True
    call = definition(value)
    return call is not None and all(is_on_host(a, known) for a in call.args.values())


def host_text(
    value: Any, known: Mapping[Value, Any], names: Mapping[Any, str], constants: dict[str, Any]
) -> str:
    """A host value as a Python expression of the variables in `names` and of constants, which it adds to `constants`.

    An operation that raises does so without the line in the kernel; `host_value` adds it.
    """

    def constant(value: Any) -> str:
        if type(value) is int and value >= 0:
            return str(value)
        constants[name := f"constant{len(constants)}"] = value
        return name

    def text(value: Any) -> str:
        if value in names:
            return names[value]
        if not depends_on(value, set(names)):
            return constant(host_value(value, known))
        call = definition(value)
        assert call is not None, "a value that depends on an argument is computed from it"
        operands = [text(a) for a in call.args.values()]
        scalar = call.op.scalar if call.op.meaning is None else None
        if scalar is not None:
            if scalar.c in IN_PYTHON:  # Python numbers need no rounding
                return f"({scalar.c.format(*operands)})"
            if scalar.quotient and operands[1].isdigit() and operands[1] != "0":
                return f"({scalar.quotient.format(*operands)})"
        return f"{constant(_meaning(call))}({', '.join(operands)})"

    return text(value)


def _meaning(call: Call) -> Callable[..., Any]:
    """The meaning of a call as a function of its operands by position."""
    if call.op.meaning is None and call.op.scalar is not None:
        return call.op.scalar.numpy
    evaluate, names = call.op.evaluate, tuple(call.args)
    return lambda *operands: evaluate(dict(zip(names, operands, strict=True)))


# The spellings that C and Python share. A Python operator takes a fraction of the time of a function.
IN_PYTHON = {
    f"{{0}} {symbol} {{1}}" for symbol in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=")
}


def depends_on(value: Any, parameters: set[Value]) -> bool:
    """Whether a host value is computed from one of these parameters."""
    if not isinstance(value, Value):
        return False
    if value in parameters:
        return True
    call = definition(value)
    return call is not None and any(depends_on(a, parameters) for a in call.args.values())


def numbers_read(kernel: Kernel) -> set[str]:
    """The numbers among the arguments of a kernel that `pk.static` made part of its program."""
    values = [value for value, _ in kernel.statics]
    return {p.name for p in kernel.params if any(depends_on(value, {p}) for value in values)}


def is_natural(value: Any) -> bool:
    """Whether a run-time int is known not to be negative.

    It is an index of a task, of the grid, of a role or of a loop, a maximum of such a number, a sum, product or
    quotient of them, or a remainder of a division by a positive number.
    """
    if not isinstance(value, Value):
        return bool(value >= 0)
    match node := value.source:
        case Call() if node.op is OPERATORS["maximum"]:
            return any(map(is_natural, node.args.values()))
        case Call() if node.op in (OPERATORS["+"], OPERATORS["*"], OPERATORS["//"]):
            return all(map(is_natural, node.args.values()))
        case Call() if node.op is OPERATORS["%"]:
            return isinstance(by := node.args["b"], int) and by > 0
        case Role():
            return True
        case Grid() | Sharing() | ForTasks():
            return any(value is index for index in node.index)
        case For():
            return value is node.index and node.step > 0 and is_natural(node.start)
        case _:
            return False


def is_multiple(value: Any, of: int) -> bool:
    """Whether an int is known to be a multiple of a number: a sum of multiples, or a product with one."""
    if not isinstance(value, Value):
        return bool(value % of == 0)
    call = definition(value)
    if call is None or call.op not in (OPERATORS["+"], OPERATORS["*"]):
        return False
    known = (is_multiple(a, of) for a in call.args.values())
    return any(known) if call.op is OPERATORS["*"] else all(known)
