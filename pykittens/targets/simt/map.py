"""Operations element by element: one loop over the registers of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, RegVector, Scalar, Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.target import SIMT
from pykittens.targets.source import scalar_type
from pykittens.types.tiles import RT, RV, Spread


def write_elements(e: Emitter, result: Value, element: Callable[[str], str]) -> None:
    """A loop that gives each register of a result its element; 16-bit elements are rounded in pairs."""
    e.declare(result)
    count, name = e.registers(result), e.array(result)
    if e.is_packed(result):
        pair = f"pack_{result.dtype}({element('i')}, {element('i + 1')})"
        e.line(f"UNROLL for (int i = 0; i < {count}; i += 2) {name}[i / 2] = {pair};")
    else:
        e.line(f"UNROLL for (int i = 0; i < {count}; ++i) {name}[i] = {element('i')};")


@SIMT.lower("map", "integer", "truth")
def lower_map(e: Emitter, call: Call) -> None:
    assert call.op.scalar is not None
    spelling, operands = call.op.scalar.c, list(call.args.values())
    (result,) = call.results
    shape = largest(operands)
    if isinstance(result, Scalar):
        e.define_scalar(
            result, spelling.format(*(scalar_operand(e, o, shape) for o in operands)), call.loc
        )
        return
    write_elements(
        e, result, lambda i: spelling.format(*(e.element(o, i, shape) for o in operands))
    )


@SIMT.lower("div")
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


@SIMT.lower("where")
def lower_where(e: Emitter, call: Call) -> None:
    condition, a, b = call.args["condition"], call.args["a"], call.args["b"]
    (result,) = call.results
    if isinstance(result, Scalar):
        choice = f"{e.scalar(condition)} ? {scalar_operand(e, a, result)} : {scalar_operand(e, b, result)}"
        e.define_scalar(result, choice, call.loc)
        return
    write_elements(
        e,
        result,
        lambda i: (
            f"{e.array(condition)}[{i}] ? {e.element(a, i, result)} : {e.element(b, i, result)}"
        ),
    )


@SIMT.lower("to")
def lower_to(e: Emitter, call: Call) -> None:
    x = call.args["x"]
    (result,) = call.results
    kind = scalar_type(result.dtype)
    convert = "{}" if x.dtype.kind == result.dtype.kind else f"({kind})({{}})"
    if isinstance(result, Scalar):
        e.define_scalar(result, convert.format(e.scalar(x)), call.loc)
        return
    write_elements(e, result, lambda i: convert.format(e.element(x, i, x)))


@SIMT.lower("making")
def lower_zeros(e: Emitter, call: Call) -> None:
    write_elements(
        e,
        call.results[0],
        lambda i: {"float": "0.0f", "int": "0", "bool": "false"}[call.results[0].dtype.kind],
    )


@SIMT.lower("columns")
def lower_columns(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    (result,) = call.results
    start = call.args["index"][1].start or 0
    wide, narrow = tile.cols // 2, result.type.cols // 2  # type: ignore[union-attr]
    write_elements(
        e,
        result,
        lambda i: e.element(
            tile, f"({i}) / {narrow} * {wide} + {start // 2} + ({i}) % {narrow}", tile
        ),
    )


@SIMT.lower("mask")
def lower_mask(e: Emitter, call: Call) -> None:
    a = call.args
    (result,) = call.results
    cols, warps = result.type.cols, e.role.warps  # type: ignore[union-attr]
    row, col, width = e.scalar(a["row"]), e.scalar(a["col"]), e.scalar(a["cols"])

    def element(i: str) -> str:
        stays = f"{col} + tile_col<{cols}>({i}, lane) < {width}"
        if a["causal"]:
            offset = (
                f" + {e.scalar(a['offset'])}"
                if isinstance(a["offset"], Value) or a["offset"] != 0
                else ""
            )
            diagonal = f"{row} + tile_row<{cols}, {warps}>({i}, warp, lane){offset}"
            stays += f" && {col} + tile_col<{cols}>({i}, lane) <= {diagonal}"
        return f"{stays} ? {e.element(a['tile'], i, result)} : as_float(0xff800000u)"

    write_elements(e, result, element)


def largest(operands: list[Any]) -> Value:
    """The operand with the shape of the result."""
    values = [o for o in operands if isinstance(o, Value)]
    return max(values, key=lambda v: len(v.type.shape))  # type: ignore[union-attr]


def scalar_operand(e: Emitter, operand: Any, shape: Value) -> str:
    """A scalar operand; a Python number takes the dtype of the others."""
    if isinstance(operand, Value):
        return e.scalar(operand)
    return e.element(operand, "", shape) if shape.dtype.is_float else e.scalar(operand)


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
