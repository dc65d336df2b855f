"""Reductions: over a lane's registers, then over the lanes, then over the warps of the group."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value
from pykittens.ops.reduce import Reduction
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.exchange import sync, tile_position, vector_position
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.scratch import SCRATCH, Partials, scratch, through_scratch
from pykittens.targets.source import number, rounded_scalar, scalar_type
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RT, RV, Spread

REDUCE = Lowerings()


@dataclass(frozen=True)
class Joining:
    """How partial results are written: their C++ type, the one that changes nothing, and the joining of two.

    fields: the bytes of a result and, where its place is looked for, of the place.
    """

    type: str
    fields: tuple[int, ...]
    nothing: str
    c: str
    finds: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of a partial result, whose fields are aligned to the widest."""
        return len(self.fields) * max(self.fields)

    @property
    def function(self) -> str:
        """The joining as a function of C++."""
        return f"[]({self.type} a, {self.type} b) {{ return {self.c.format('a', 'b')}; }}"

    def result(self, partial: str) -> str:
        """The element or place that a partial result stands for."""
        return f"{partial}.at" if self.finds else partial


def joining(meaning: Reduction, dtype: DType) -> Joining:
    """The joining of elements of a dtype."""
    type_, size = scalar_type(dtype), max(dtype.bytes, dtype.compute.bytes)
    nothing = number(meaning.identity_of(dtype), dtype.compute)
    if not meaning.finds:
        return Joining(type_, (size,), nothing, meaning.c)
    found = f"Found<{type_}>"
    return Joining(found, (size, 4), f"{found}{{{nothing}, 0x7fffffff}}", meaning.c, True)


def _joining(call: Call, operand: Value) -> Joining:
    assert isinstance(call.op.scalar, Reduction)
    return joining(call.op.scalar, operand.dtype)


def _element(e: Emitter, how: Joining, operand: Value, place: str) -> str:
    """Register i of the operand as a partial result."""
    x = e.element(operand, "i", operand)
    return f"{how.type}{{{x}, {place}}}" if how.finds else x


# -- along rows and columns ------------------------------------------------------------------------


@REDUCE.lower("row_reduce")
def lower_row_reduce(e: Emitter, call: Call) -> None:
    tile: Value = call.args["tile"]
    how = _joining(call, tile)
    _, col = tile_position(e, tile, "i")
    with _Partial(e, call.results[0], how) as partial:
        _over_registers(e, tile, how, partial, "row_of", col)
        partial.each(f"join_lanes<1, 2>({partial.name}[i], {how.function})")


@scratch("col_reduce")
def partial_columns(call: Call, warps: int) -> Partials | None:
    """What the rows of each warp give, if there are several."""
    tile: RegTile = call.args["tile"]
    how = _joining(call, tile)
    return Partials(tile.cols, how.fields, how.bytes) if warps > 1 else None


@REDUCE.lower("col_reduce")
def lower_col_reduce(e: Emitter, call: Call) -> None:
    tile: Value = call.args["tile"]
    how, warps = _joining(call, tile), e.role.warps
    row, _ = tile_position(e, tile, "i")
    with _Partial(e, call.results[0], how) as partial:
        _over_registers(e, tile, how, partial, "col_of", row)
        partial.each(f"join_lanes<4, 16>({partial.name}[i], {how.function})")
        moved = through_scratch(call, warps)
        if moved is None:
            return
        assert isinstance(moved, Partials)
        cols = moved.length
        at = e.scratch(warps * cols * moved.bytes, call)
        e.line(f"{how.type}* const held = ({how.type}*)(shared + {at});")
        # All lanes of a column hold the same now; they take turns to write.
        e.line(
            f"UNROLL for (int i = 0; i < {partial.count}; ++i) "
            f"if (lane / 4 == i / 2 % 8) held[warp * {cols} + col_at(i, lane)] = {partial.name}[i];"
        )
        e.line(sync(e))
        partial.each("held[col_at(i, lane)]")
        joined = how.c.format(f"{partial.name}[i]", f"held[w * {cols} + col_at(i, lane)]")
        with e.braces(f"UNROLL for (int w = 1; w < {warps}; ++w) {{"):
            partial.each(joined)
        e.line(sync(e))


class _Partial:
    """The partial results of a vector that is made: the result's own registers where they can be."""

    def __init__(self, e: Emitter, result: Value, how: Joining) -> None:
        self.e, self.result, self.how = e, result, how
        self.own = not e.is_packed(result) and not how.finds
        self.name = e.array(result) if self.own else "partial"
        self.count = e.registers(result)

    def each(self, expression: str) -> None:
        """Give each partial result, number i, a value."""
        self.e.line(f"UNROLL for (int i = 0; i < {self.count}; ++i) {self.name}[i] = {expression};")

    def __enter__(self) -> _Partial:
        e = self.e
        e.declare(self.result)
        e.line("{")
        e.depth += 1
        if not self.own:
            e.line(f"{self.how.type} partial[{self.count}];")
        self.each(self.how.nothing)
        return self

    def __exit__(self, *fault: object) -> None:
        if not self.own:
            write_elements(self.e, self.result, lambda i: self.how.result(f"partial[{i}]"))
        self.e.depth -= 1
        self.e.line("}")


def _over_registers(
    e: Emitter, tile: Value, how: Joining, partial: _Partial, of: str, place: str
) -> None:
    into = f"{partial.name}[{of}<{tile.type.cols}>(i)]"  # type: ignore[union-attr]
    joined = how.c.format(into, _element(e, how, tile, place))
    e.line(f"UNROLL for (int i = 0; i < {e.registers(tile)}; ++i) {into} = {joined};")


# -- over all elements -----------------------------------------------------------------------------

SCRATCH["reduce"] = "one value a warp: no two lanes meet in a bank"


@REDUCE.lower("reduce")
def lower_reduce(e: Emitter, call: Call) -> None:
    x: Value = call.args["x"]
    (result,) = call.results
    how = _joining(call, x)
    total = e.names(result)
    own = not how.finds
    shared = e.storage.changes(result)
    if shared:
        e.declare(result)
        total = e.array(result)
    if own:
        e.line(f"{'' if shared else f'{how.type} '}{total} = {how.nothing};")
        _reduce(e, call, x, how, total)
        if result.dtype.packing > 1:
            e.line(f"{total} = {rounded_scalar(total, result.dtype)};")
        return
    if not shared:
        e.line(f"{scalar_type(result.dtype)} {total};")
    with e.braces("{"):
        e.line(f"{how.type} partial = {how.nothing};")
        _reduce(e, call, x, how, "partial")
        e.line(f"{total} = {how.result('partial')};")


def _reduce(e: Emitter, call: Call, x: Value, how: Joining, total: str) -> None:
    """Join all elements of a tile or vector, each counted once, into a variable of every thread."""
    warps, count, whole = e.role.warps, e.registers(x), e.registers(x)
    inside = ""
    match x.type:
        case RT():
            row, col = tile_position(e, x, "i")
            lanes, place = "1, 16", f"{row} * {x.type.cols} + {col}"
        case RV(spread=Spread.PER_ROW):
            lanes, place = "4, 16", vector_position(e, x, "i")
        case RV(spread=Spread.PER_COLUMN):
            lanes, place, warps = "1, 2", vector_position(e, x, "i"), 1  # all warps hold the same
        case RV():
            lanes, place = "1, 16", vector_position(e, x, "i")
            chunk, threads = plain_chunk(x.type.length, warps), warps * 32
            whole = x.type.length // (chunk * threads) * chunk  # registers without padding
            inside = f"if ({place} < {x.type.length}) "
        case _:
            raise AssertionError(x.type)
    joined = how.c.format(total, _element(e, how, x, place))
    if whole:
        e.line(f"UNROLL for (int i = 0; i < {whole}; ++i) {total} = {joined};")
    if whole < count:
        e.line(f"UNROLL for (int i = {whole}; i < {count}; ++i) {inside}{total} = {joined};")
    e.line(f"{total} = join_lanes<{lanes}>({total}, {how.function});")
    if warps > 1:
        _across_warps(e, call, total, how)


def _across_warps(e: Emitter, call: Call, total: str, how: Joining) -> None:
    """Join one value a warp through shared memory; every thread of the group gets the result."""
    warps = e.role.warps
    held = f"(({how.type}*)(shared + {e.scratch(warps * how.bytes, call)}))"
    e.line(f"if (lane == 0) {held}[warp] = {total};")
    e.line(sync(e))
    e.line(f"{total} = {held}[0];")
    joined = how.c.format(total, f"{held}[i]")
    e.line(f"UNROLL for (int i = 1; i < {warps}; ++i) {total} = {joined};")
    e.line(sync(e))
