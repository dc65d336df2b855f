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
from pykittens.types.tiles import RT, RV, Spread

MAP = Lowerings()


def write(e: Emitter, call: Call, element: Callable[[str], str]) -> None:
    """Give the result of a call its elements: a scalar its only one."""
    (result,) = call.results
    if isinstance(result, Scalar):
        e.define_scalar(result, element(""), call.loc)
    else:
        write_elements(e, result, element)


def write_elements(
    e: Emitter, result: Value, element: Callable[[str], str], join: str | None = None
) -> None:
    """A loop that gives each register of a result its element.

    Those that share one are joined by the device function `join`, which rounds them if not said.
    """
    e.declare(result)
    count, name, packing = e.registers(result), e.array(result), result.dtype.packing
    if packing == 1:
        e.line(f"UNROLL for (int i = 0; i < {count}; ++i) {name}[i] = {element('i')};")
        return
    join = join or f"pack_{result.dtype}"
    whole = count // packing * packing
    if whole:
        e.line(
            f"UNROLL for (int i = 0; i < {whole}; i += {packing}) "
            f"{name}[i / {packing}] = {joined(join, element, 'i', packing)};"
        )
    if whole < count:
        last = joined(join, element, str(whole), count - whole)
        e.line(f"{name}[{whole // packing}] = {last};")


def joined(join: str, element: Callable[[str], str], first: str, count: int) -> str:
    """`count` neighbouring elements in one register."""
    elements = [element(str(Index(first) + k)) for k in range(count)]
    return f"{join}({', '.join(elements)})"


@MAP.lower("map", "integer", "truth")
def lower_map(e: Emitter, call: Call) -> None:
    assert call.op.scalar is not None
    operands = list(call.args.values())
    dtype = next(o.dtype for o in operands if isinstance(o, Value))
    wraps = dtype.is_int and not isinstance(call.results[0], Scalar)
    spell(e, call, wraps and call.op.scalar.wrapping or call.op.scalar.c, operands)


# The arithmetic of integers that are no tiles, by its spelling: what is known of it is computed here.
_FOLDED = {"{0} + {1}": add, "{0} - {1}": sub, "{0} * {1}": mul}


def spell(e: Emitter, call: Call, spelling: str, operands: list[Any]) -> None:
    """Give each element of the result an expression of the operands' elements."""
    (result,) = call.results
    dtype = next(o.dtype for o in operands if isinstance(o, Value))
    fold = _FOLDED.get(spelling) if isinstance(result, Scalar) and result.dtype.is_int else None

    def element(i: str) -> str:
        if fold is not None:
            return str(fold(*(e.index(o) for o in operands)))
        return spelling.format(*(e.element(o, i, result, dtype) for o in operands))

    write(e, call, element)


@MAP.lower("pow")
def lower_pow(e: Emitter, call: Call) -> None:
    a, b = call.args["a"], call.args["b"]
    if not isinstance(b, Value) and b in (2, 3, 4):
        spell(e, call, f"power<{int(b)}>({{0}})", [a])
    else:
        lower_map(e, call)


@MAP.lower("div")
def lower_div(e: Emitter, call: Call) -> None:
    a, b = call.args["a"], call.args["b"]
    (result,) = call.results
    if isinstance(result, Scalar) or _elements(b) == _elements(result):
        lower_map(e, call)
        return
    # One divisor for many elements: a reciprocal each.
    e.declare(result)
    with e.braces("{"):
        if isinstance(b, RegVector):
            count = e.registers(b)
            e.line(f"float inverse[{count}];")
            e.line(
                f"UNROLL for (int i = 0; i < {count}; ++i) inverse[i] = 1.0f / {e.element(b, 'i', b)};"
            )
            place = "row_of" if b.type.spread is Spread.PER_ROW else "col_of"
            write_elements(
                e,
                result,
                lambda i: f"{e.element(a, i, result)} * inverse[{place}<{result.type.cols}>({i})]",  # type: ignore[union-attr]
            )
        else:
            e.line(f"const float inverse = 1.0f / {e.element(b, '', result)};")
            write_elements(e, result, lambda i: f"{e.element(a, i, result)} * inverse")


@MAP.lower("where")
def lower_where(e: Emitter, call: Call) -> None:
    condition, a, b = call.args["condition"], call.args["a"], call.args["b"]
    (result,) = call.results

    def element(i: str) -> str:
        choices = (e.element(a, i, result), e.element(b, i, result))
        return f"{e.element(condition, i, result)} ? {choices[0]} : {choices[1]}"

    if isinstance(result, Scalar):
        e.define_scalar(result, element(""), call.loc)
    else:
        write_elements(e, result, element)


def _elements(value: Any) -> int:
    if not isinstance(value, Value):
        return 1
    match value.type:
        case RT():
            return value.type.rows * value.type.cols
        case RV():
            return value.type.length
        case _:
            return 1
