"""Reductions: over a lane's registers, then over the lanes, then over the warps of the group."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.ops.reduce import Reduction
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.target import SIMT
from pykittens.targets.source import float_literal, rounded_scalar, scalar_type
from pykittens.types.dtypes import DType
from pykittens.types.layouts import plain_chunk

INT_MIN = "(int)0x80000000"


def _identity(meaning: Reduction, dtype: DType) -> str:
    if dtype.is_float:
        return float_literal(meaning.identity)
    return INT_MIN if meaning.identity < 0 else str(int(meaning.identity))


@SIMT.lower("row_reduce")
def lower_row_reduce(e: Emitter, call: Call) -> None:
    meaning = call.op.scalar
    assert isinstance(meaning, Reduction)
    tile: Value = call.args["tile"]
    (result,) = call.results
    count, cols = e.registers(result), tile.type.cols  # type: ignore[union-attr]
    word = call.op.name.removeprefix("row_")
    packed = e.is_packed(result)
    rows = "partial" if packed else e.array(result)
    e.declare(result)
    with e.braces("{"):
        if packed:
            e.line(f"float partial[{count}];")
        e.line(
            f"UNROLL for (int i = 0; i < {count}; ++i) {rows}[i] = {_identity(meaning, tile.dtype)};"
        )
        place = f"{rows}[row_of<{cols}>(i)]"
        joined = meaning.c.format(place, e.element(tile, "i", tile))
        e.line(f"UNROLL for (int i = 0; i < {e.registers(tile)}; ++i) {place} = {joined};")
        e.line(f"UNROLL for (int i = 0; i < {count}; ++i) {rows}[i] = quad_{word}({rows}[i]);")
        if packed:
            write_elements(e, result, lambda i: f"partial[{i}]")


@SIMT.lower("vector_reduce")
def lower_vector_reduce(e: Emitter, call: Call) -> None:
    meaning = call.op.scalar
    assert isinstance(meaning, Reduction)
    vector: Value = call.args["vector"]
    (result,) = call.results
    warps, length = e.role.warps, vector.type.length  # type: ignore[union-attr]
    count, chunk = e.registers(vector), plain_chunk(length, warps)
    total = e.names(result)
    if len(e.storage.members[e.storage.find(result)]) > 1:
        e.declare(result)
        total = e.array(result)
        e.line(f"{total} = {_identity(meaning, vector.dtype)};")
    else:
        e.line(f"{scalar_type(result.dtype)} {total} = {_identity(meaning, vector.dtype)};")
    joined = meaning.c.format(total, e.element(vector, "i", vector))
    threads = warps * 32
    whole = length // (chunk * threads) * chunk  # registers that hold no padding in any thread
    if whole:
        e.line(f"UNROLL for (int i = 0; i < {whole}; ++i) {total} = {joined};")
    if whole < count:
        inside = f"vector_at<{chunk}, {threads}>(i, thread) < {length}"
        e.line(f"UNROLL for (int i = {whole}; i < {count}; ++i) if ({inside}) {total} = {joined};")
    e.line(f"{total} = warp_{call.op.name}({total});")
    if warps > 1:
        _across_warps(e, total, meaning, result.dtype)
    if result.dtype.packing > 1:
        e.line(f"{total} = {rounded_scalar(total, result.dtype)};")


def _across_warps(e: Emitter, total: str, meaning: Reduction, dtype: DType) -> None:
    """Join one value a warp through shared memory; every thread of the group gets the result."""
    number, warps = scalar_type(dtype), e.role.warps
    scratch = f"(({number}*)(shared + {e.scratch()}))"
    e.line(f"if (lane == 0) {scratch}[warp] = {total};")
    e.line(f"group_sync({e.group_barrier}, {warps * 32});")
    e.line(f"{total} = {_identity(meaning, dtype)};")
    joined = meaning.c.format(total, f"{scratch}[i]")
    e.line(f"UNROLL for (int i = 0; i < {warps}; ++i) {total} = {joined};")
    e.line(f"group_sync({e.group_barrier}, {warps * 32});")
