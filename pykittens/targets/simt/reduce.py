"""Reductions: over the registers of a lane, then over lanes, then over the warps of the group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Scalar, Value
from pykittens.ops.reduce import SUM, Reduction
from pykittens.targets.emitter import Emitter
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.exchange import sync, tile_position, vector_position
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.scratch import SCRATCH, JoinedPartials, scratch
from pykittens.targets.source import number, rounded_scalar, scalar_type
from pykittens.targets.target import Lowerings
from pykittens.types.tiles import RT, RV, Spread

REDUCE = Lowerings()


@dataclass(frozen=True)
class Joining:
    """How partial results are joined: their C++ type, the identity, and the expression that joins two of them.

    fields: the bytes of an element and, if `finds`, of its index, which is the result.
    """

    type: str
    fields: tuple[int, ...]
    nothing: str
    c: str
    finds: bool = False

    @staticmethod
    def of(call: Call, operand: Value) -> Joining:
        """The joining of the elements of an operand of a reduction or scan."""
        meaning, dtype = call.op.scalar, operand.dtype
        assert isinstance(meaning, Reduction)
        type_, size = scalar_type(dtype), max(dtype.bytes, dtype.compute.bytes)
        identity = number(meaning.identity_of(dtype), dtype.compute)
        if not meaning.finds:
            return Joining(type_, (size,), identity, meaning.c)
        found = f"Found<{type_}>"
        return Joining(found, (size, 4), f"{found}{{{identity}, 0x7fffffff}}", meaning.c, True)

    @property
    def bytes(self) -> int:
        """Bytes of a partial result, whose fields are aligned to the widest."""
        return len(self.fields) * max(self.fields)

    @property
    def function(self) -> str:
        """The joining as a function of C++."""
        return f"[]({self.type} a, {self.type} b) {{ return {self.c.format('a', 'b')}; }}"

    def element(self, e: Emitter, operand: Value, index: str) -> str:
        """Register i of an operand as a partial result; `index` is the index of its element."""
        x = e.element(operand, "i", operand)
        return f"{self.type}{{{x}, {index}}}" if self.finds else x


@contextmanager
def partial_results(e: Emitter, result: Value, how: Joining, initial: str) -> Iterator[str]:
    """Registers for the partial results of a tile or vector, with initial values; gives their name.

    These are the registers of the result itself, unless they are packed or the result is an index.
    """
    own, count = not e.is_packed(result) and not how.finds, e.registers(result)
    name = e.array(result) if own else "partial"
    e.declare(result)
    with e.braces("{"):
        if not own:
            e.line(f"{how.type} partial[{count}];")
        e.each(count, f"{name}[i] = {initial};")
        yield name
        if not own:
            field = ".at" if how.finds else ""
            write_elements(e, result, lambda i: f"partial[{i}]{field}")


def shared_by_warps(e: Emitter, call: Call, how: Joining, size: int) -> str:
    """The operands of a device function that say where the warps of a group meet; `size` bytes of scratch memory."""
    if e.role.warps == 1:
        return f"({how.type}*)0, 0, 0"
    return f"({how.type}*)(shared + {e.scratch(size, call)}), {e.group_barrier}, warp"


# -- along rows and columns ------------------------------------------------------------------------


@REDUCE.lower("row_reduce")
def lower_row_reduce(e: Emitter, call: Call) -> None:
    tile, (result,) = call.args["tile"], call.results
    how = Joining.of(call, tile)
    with _of_each_lane(e, tile, result, how) as name:
        e.each(e.registers(result), f"{name}[i] = {_of_a_row(f'{name}[i]', how)};")


@REDUCE.lower("row_sum_in_parts")
def lower_row_parts(e: Emitter, call: Call) -> None:
    tile, (result,) = call.args["tile"], call.results
    with _of_each_lane(e, tile, result, Joining.of(call, tile)):
        pass


@REDUCE.lower("row_part_alone")
def lower_alone(e: Emitter, call: Call) -> None:
    x, (result,) = call.args["x"], call.results
    zero = number(0, result.dtype)
    write_elements(e, result, lambda i: f"lane % 4 == 0 ? {e.element(x, i, result)} : {zero}")


@REDUCE.lower("row_parts_joined")
def lower_joined(e: Emitter, call: Call) -> None:
    x, (result,) = call.args["x"], call.results
    how = Joining(scalar_type(x.dtype), (x.dtype.bytes,), number(0, x.dtype), SUM.c)
    write_elements(e, result, lambda i: _of_a_row(e.element(x, i, result), how))


@contextmanager
def _of_each_lane(e: Emitter, tile: RegTile, result: Value, how: Joining) -> Iterator[str]:
    """Registers for the elements of each row of a tile that a lane holds, joined; gives their name."""
    _, col = tile_position(e, tile, "i")
    with partial_results(e, result, how, how.nothing) as name:
        _join_registers(e, tile, how, f"{name}[row_of<{tile.cols}>(i)]", col)
        yield name


def _of_a_row(x: str, how: Joining) -> str:
    """A partial result joined with those of the other lanes of its row."""
    return f"join_lanes<1, 2>({x}, {how.function})"


@scratch("col_reduce")
def partial_columns(call: Call, warps: int) -> JoinedPartials | None:
    """The partial results of each warp's rows, if there are several warps."""
    tile: RegTile = call.args["tile"]
    how = Joining.of(call, tile)
    return JoinedPartials(tile.cols, how.fields, how.bytes) if warps > 1 else None


@REDUCE.lower("col_reduce")
def lower_col_reduce(e: Emitter, call: Call) -> None:
    tile, (result,) = call.args["tile"], call.results
    how, warps = Joining.of(call, tile), e.role.warps
    row, _ = tile_position(e, tile, "i")
    with partial_results(e, result, how, how.nothing) as name:
        _join_registers(e, tile, how, f"{name}[col_of<{tile.cols}>(i)]", row)
        where = shared_by_warps(e, call, how, warps * tile.cols * how.bytes)
        e.line(f"join_columns<{tile.cols}, {warps}>({name}, {where}, lane, {how.function});")


def _join_registers(e: Emitter, tile: Value, how: Joining, partial: str, index: str) -> None:
    """Join each register of a tile with a partial result."""
    e.each(e.registers(tile), f"{partial} = {how.c.format(partial, how.element(e, tile, index))};")


# -- over all elements -----------------------------------------------------------------------------

SCRATCH["reduce"] = SCRATCH["parts_joined"] = "one value per warp: no two lanes meet in a bank"


@REDUCE.lower("reduce")
def lower_reduce(e: Emitter, call: Call) -> None:
    x, (result,) = call.args["x"], call.results
    how, name, changes = Joining.of(call, x), e.array(result), e.storage.changes(result)
    if changes:
        e.declare(result)
    if not how.finds:
        e.line(f"{'' if changes else f'{how.type} '}{name} = {how.nothing};")
        _reduce(e, call, x, how, name)
        if result.dtype.packing > 1:
            e.line(f"{name} = {rounded_scalar(name, result.dtype)};")
        return
    if not changes:
        e.line(f"{scalar_type(result.dtype)} {name};")
    with e.braces("{"):
        e.line(f"{how.type} partial = {how.nothing};")
        _reduce(e, call, x, how, "partial")
        e.line(f"{name} = partial.at;")


# The lanes that count the elements of vectors that several hold: a row has four lanes, and a column eight of each warp.
ONCE = {Spread.PER_ROW: "lane % 4 == 0", Spread.PER_COLUMN: "warp == 0 && lane < 4"}


@REDUCE.lower("sum_in_parts")
def lower_parts(e: Emitter, call: Call) -> None:
    x, (result,) = call.args["x"], call.results
    how, name = Joining.of(call, x), e.array(result)
    e.line(f"{'' if e.storage.changes(result) else f'{how.type} '}{name} = {how.nothing};")
    once = ONCE.get(x.type.spread) if isinstance(x.type, RV) else None
    with e.braces(f"if ({once}) {{") if once else nullcontext():
        _reduce_own(e, x, how, name)


@REDUCE.lower("part_alone")
def lower_one_part(e: Emitter, call: Call) -> None:
    (result,) = call.results
    assert isinstance(result, Scalar)
    e.assign(result, f"thread == 0 ? {e.scalar(call.args['x'])} : 0")


@REDUCE.lower("parts_joined")
def lower_sum_of_parts(e: Emitter, call: Call) -> None:
    x, (result,) = call.args["x"], call.results
    how = Joining(scalar_type(x.dtype), (x.dtype.bytes,), number(0, x.dtype), SUM.c)
    e.declare(result)
    e.line(f"{e.array(result)} = join_lanes<1, 16>({e.scalar(x)}, {how.function});")
    if e.role.warps > 1:
        _join_warps(e, call, e.array(result), how)


def _reduce(e: Emitter, call: Call, x: Value, how: Joining, total: str) -> None:
    """Join all elements of a tile or vector, each counted once, into a variable of every thread."""
    _reduce_own(e, x, how, total)
    spread = x.type.spread if isinstance(x.type, RV) else Spread.PLAIN
    lanes = {Spread.PER_ROW: "4, 16", Spread.PER_COLUMN: "1, 2"}.get(spread, "1, 16")
    e.line(f"{total} = join_lanes<{lanes}>({total}, {how.function});")
    if e.role.warps > 1 and spread is not Spread.PER_COLUMN:  # all warps hold the same columns
        _join_warps(e, call, total, how)


def _reduce_own(e: Emitter, x: Value, how: Joining, total: str) -> None:
    """Join the elements of a tile or vector that a lane holds with a variable."""
    warps, count, whole = e.role.warps, e.registers(x), e.registers(x)
    inside = ""
    match x.type:
        case RT(cols=cols):
            row, col = tile_position(e, x, "i")
            index = f"{row} * {cols} + {col}"
        case RV(length=length, spread=spread):
            index = vector_position(e, x, "i")
            if spread not in ONCE:
                # Registers without padding come first.
                chunk, threads = x.type.chunk(warps), warps * 32
                whole = length // (chunk * threads) * chunk
                inside = f"if ({index} < {length}) "
        case _:
            raise AssertionError(x.type)
    joined = f"{total} = {how.c.format(total, how.element(e, x, index))};"
    if whole:
        e.each(whole, joined)
    if whole < count:
        e.line(f"{unrolled(count, first=whole)} {inside}{joined}")


def _join_warps(e: Emitter, call: Call, total: str, how: Joining) -> None:
    """Join one value per warp through scratch memory; every thread of the group gets the result."""
    warps = e.role.warps
    held = f"(({how.type}*)(shared + {e.scratch(warps * how.bytes, call)}))"
    e.line(f"if (lane == 0) {held}[warp] = {total};")
    e.line(sync(e))
    e.line(f"{total} = {held}[0];")
    e.line(f"{unrolled(warps, first=1)} {total} = {how.c.format(total, f'{held}[i]')};")
    e.line(sync(e))
