"""Operations element by element: one loop over the registers of the result."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegVector, Scalar, Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index
from pykittens.targets.target import Lowerings
from pykittens.targets.values import register_beside
from pykittens.types.tiles import RT, RV

MAP = Lowerings()


def write(e: Emitter, call: Call, element: Callable[[str], str]) -> None:
    """Write the elements of a call's result, or its only element if it is a scalar."""
    (result,) = call.results
    if isinstance(result, Scalar):
        e.define_scalar(result, element(""), call.loc)
    else:
        write_elements(e, result, element)


def write_elements(
    e: Emitter, result: Value, element: Callable[[str], str], join: str | None = None
) -> None:
    """A loop that writes the elements of a result to its registers.

    The device function `join` packs elements that share a register; by default it rounds them.
    """
    e.declare(result)
    count, name, packing = e.registers(result), e.array(result), result.dtype.packing
    if packing == 1:
        e.each(count, f"{name}[i] = {element('i')};")
        return
    join = join or f"pack_{result.dtype}"
    whole = count // packing * packing
    if whole:
        e.each(whole, f"{name}[i / {packing}] = {packed(join, element, 'i', packing)};", packing)
    if whole < count:
        last = packed(join, element, str(whole), count - whole)
        e.line(f"{name}[{whole // packing}] = {last};")


def packed(join: str, element: Callable[[str], str], first: str, count: int) -> str:
    """The expression of a register of `count` neighbouring elements."""
    elements = [element(str(Index(first) + k)) for k in range(count)]
    return f"{join}({', '.join(elements)})"


@MAP.lower("map", "integer", "truth")
def lower_map(e: Emitter, call: Call) -> None:
    assert call.op.scalar is not None
    operands = list(call.args.values())
    dtype = next(o.dtype for o in operands if isinstance(o, Value))
    wraps = dtype.is_int and not isinstance(call.results[0], Scalar)
    write_expression(e, call, wraps and call.op.scalar.wrapping or call.op.scalar.c, operands)


# Arithmetic of integer scalars that is folded, by its C++ expression.
_FOLDED = {"{0} + {1}": add, "{0} - {1}": sub, "{0} * {1}": mul}


def write_expression(e: Emitter, call: Call, expression: str, operands: list[Any]) -> None:
    """Write each element of the result as a C++ expression of the operands' elements."""
    (result,) = call.results
    dtype = next(o.dtype for o in operands if isinstance(o, Value))
    fold = _FOLDED.get(expression) if isinstance(result, Scalar) and result.dtype.is_int else None

    def element(i: str) -> str:
        if fold is not None:
            return str(fold(*(e.index(o) for o in operands)))
        return expression.format(*(e.element(o, i, result, dtype) for o in operands))

    write(e, call, element)


@MAP.lower("pow")
def lower_pow(e: Emitter, call: Call) -> None:
    a, b = call.args["a"], call.args["b"]
    if not isinstance(b, Value) and b in (2, 3, 4):
        write_expression(e, call, f"power<{int(b)}>({{0}})", [a])
    else:
        lower_map(e, call)


@MAP.lower("div")
def lower_div(e: Emitter, call: Call) -> None:
    a, b = call.args["a"], call.args["b"]
    (result,) = call.results
    if isinstance(result, Scalar) or _elements(b) == _elements(result):
        lower_map(e, call)
        return
    # One divisor divides several elements: they are multiplied by its reciprocal.
    e.declare(result)
    with e.braces("{"):
        if isinstance(b, RegVector):
            e.line(f"float inverse[{e.registers(b)}];")
            e.each(e.registers(b), f"inverse[i] = 1.0f / {e.element(b, 'i', b)};")
        else:
            e.line(f"const float inverse = 1.0f / {e.element(b, '', result)};")

        def element(i: str) -> str:
            index = f"[{register_beside(b, result, i)}]" if isinstance(b, RegVector) else ""
            return f"{e.element(a, i, result)} * inverse{index}"

        write_elements(e, result, element)


@MAP.lower("where")
def lower_where(e: Emitter, call: Call) -> None:
    condition, a, b = call.args["condition"], call.args["a"], call.args["b"]
    (result,) = call.results

    def element(i: str) -> str:
        choices = (e.element(a, i, result), e.element(b, i, result))
        return f"{e.element(condition, i, result)} ? {choices[0]} : {choices[1]}"

    write(e, call, element)


def _elements(value: Any) -> int:
    """The number of elements of a tile or vector, 1 of a scalar."""
    match value.type if isinstance(value, Value) else None:
        case RT(rows=rows, cols=cols):
            return rows * cols
        case RV(length=length):
            return length
        case _:
            return 1
