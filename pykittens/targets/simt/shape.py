"""Parts, joins and transposes of tiles and vectors: moves between registers of a lane if possible, else an exchange."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, RegVector, Value
from pykittens.ops.shape import bounds
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.exchange import bits, exchange, write_bits
from pykittens.targets.simt.scratch import Exchange, Put, Strides, scratch
from pykittens.targets.source import memory_type
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import LANES, plain_chunk
from pykittens.types.tiles import RV, Spread

SHAPE = Lowerings()

# Padding of a row in scratch memory, in elements: without it a transposed read would have bank conflicts.
PITCH = 4


# -- register moves --------------------------------------------------------------------------------


@scratch("part")
def part_exchange(call: Call, warps: int) -> Exchange | None:
    """A part of a plain vector, unless its elements stay in their lanes."""
    x, (result,) = call.args["x"], call.results
    if isinstance(x, RegTile):
        return None
    ((start, _),) = bounds(x, call.args["index"])
    chunk = plain_chunk(result.type.length, warps)  # type: ignore[union-attr]
    if chunk == plain_chunk(x.length, warps) and start % (chunk * warps * LANES) == 0:
        return None
    return Exchange((Put(x),), Strides(first=start))


@SHAPE.lower("part")
def lower_part(e: Emitter, call: Call) -> None:
    if exchange(e, call):
        return
    x: RegTile | RegVector = call.args["x"]
    (result,) = call.results
    found = bounds(x, call.args["index"])
    if isinstance(x, RegVector):
        first = found[0][0] // (e.role.warps * LANES)
        write_bits(e, result, lambda i: bits(e, x, f"{first} + {i}"))
        return
    (row, _), (col, _) = found
    wide, narrow = x.cols // 2, result.type.cols // 2  # type: ignore[union-attr]
    first = row // (16 * e.role.warps) * wide + col // 2

    def element(i: str) -> str:
        register = Index(i)
        if wide == narrow:
            return bits(e, x, str(register + first))
        return bits(e, x, str(register // narrow * wide + first + register % narrow))

    write_bits(e, result, element)


@scratch("concat")
def concat_exchange(call: Call, warps: int) -> Exchange | None:
    """Two plain vectors, one after the other."""
    a, b, (result,) = call.args["a"], call.args["b"], call.results
    if not (isinstance(result.type, RV) and result.type.spread is Spread.PLAIN):
        return None
    return Exchange((Put(a), Put(b, Strides(first=a.length))))


@SHAPE.lower("concat")
def lower_concat(e: Emitter, call: Call) -> None:
    if exchange(e, call):
        return
    a: Value = call.args["a"]
    b: Value = call.args["b"]
    (result,) = call.results
    if call.args["axis"] == 1:
        left, right = a.type.cols // 2, b.type.cols // 2  # type: ignore[union-attr]

        def beside(i: str) -> str:
            block, inner = Index(i) // (left + right), Index(i) % (left + right)
            mine = bits(e, a, str(block * left + inner))
            theirs = bits(e, b, str(block * right + inner - left))
            return f"({inner} < {left} ? {mine} : {theirs})"

        write_bits(e, result, beside)
        return
    count = e.registers(a)
    write_bits(
        e, result, lambda i: f"({i} < {count} ? {bits(e, a, i)} : {bits(e, b, f'{i} - {count}')})"
    )


@SHAPE.lower("in_lane_order")
def lower_in_lane_order(e: Emitter, call: Call) -> None:
    """Tiles and vectors in lane order have the same registers."""
    x = call.args["tile"] if "tile" in call.args else call.args["vector"]
    write_bits(e, call.results[0], lambda i: bits(e, x, i))


SHAPE.lower("from_lane_order")(lower_in_lane_order)


@SHAPE.lower("swap_pairs")
def lower_swap_pairs(e: Emitter, call: Call) -> None:
    x: Value = call.args["x"]
    (result,) = call.results
    if result.dtype.packing > 1:
        write_bits(e, result, lambda i: bits(e, x, f"({i}) ^ 1"))
        return
    e.declare(result)
    # The result may share the variable of x: both neighbours are read before one is written.
    with e.braces(f"{unrolled(e.registers(x), step=2)} {{"):
        e.line(f"const {memory_type(x.dtype)} first = {e.array(x)}[i];")
        e.line(f"{e.array(result)}[i] = {e.array(x)}[i + 1];")
        e.line(f"{e.array(result)}[i + 1] = first;")


@scratch("shifted")
def shifted_exchange(call: Call, warps: int) -> Exchange | None:
    """Two plain vectors, one after the other, of which the result is a part; None if shuffles move the elements."""
    vector, other, by = (call.args[name] for name in ("vector", "other", "by"))
    chunk, length = plain_chunk(vector.length, warps), vector.length
    is_whole = warps == 1 and vector.dtype.packing == 1 and length % (chunk * LANES) == 0
    if is_whole and abs(by) <= chunk:
        return None
    first, last = (other, vector) if by >= 0 else (vector, other)
    puts = (Put(first), Put(last, Strides(first=length)))
    return Exchange(puts, Strides(first=length - by if by >= 0 else -by))


@SHAPE.lower("shifted")
def lower_shifted(e: Emitter, call: Call) -> None:
    if exchange(e, call):
        return
    vector, other, (result,) = call.args["vector"], call.args["other"], call.results
    e.declare(result)
    chunk = plain_chunk(vector.length, 1)
    operands = ", ".join(e.array(x) for x in (result, vector, other))
    e.line(f"shift_vector<{chunk}, {call.args['by']}>({operands}, lane);")


@SHAPE.lower("column")
def lower_column(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    j = call.args["j"]
    (result,) = call.results
    count, cols, kind = e.registers(result), tile.cols, memory_type(result.dtype)
    e.declare(result)
    with e.braces("{"):
        if not isinstance(j, RegVector):
            e.line(f"const int chosen = {e.scalar(j)};")

        def chosen(i: str) -> str:
            return f"{e.array(j)}[{i}]" if isinstance(j, RegVector) else "chosen"

        # Four lanes hold eight columns of a row: each selects its register, then the lane of the column is asked.
        e.line(f"{kind} partial[{count}] = {{}};")
        selected = f"tile_col<{cols}>(i, 0) == ({chosen(f'row_of<{cols}>(i)')} & ~6)"
        partial = f"partial[row_of<{cols}>(i)]"
        e.each(e.registers(tile), f"if ({selected}) {partial} = {bits(e, tile, 'i')};")
        e.each(count, f"partial[i] = __shfl_sync(~0u, partial[i], {chosen('i')} % 8 / 2, 4);")
        write_bits(e, result, lambda i: f"partial[{i}]")


# -- exchanges -------------------------------------------------------------------------------------


@scratch("transpose")
def transpose_exchange(call: Call, warps: int) -> Exchange:
    """A tile, written by rows and read by columns."""
    tile: RegTile = call.args["tile"]
    pitch = tile.cols + PITCH
    return Exchange((Put(tile, Strides(row=pitch)),), Strides(row=1, col=pitch), unit=16 * pitch)


@scratch("spread")
def spread_exchange(call: Call, warps: int) -> Exchange | None:
    """A vector whose layout changes."""
    vector, (result,) = call.args["vector"], call.results
    return None if vector.type == result.type else Exchange((Put(vector),))


@scratch("row")
def row_exchange(call: Call, warps: int) -> Exchange:
    """One row of a tile, written by the lanes that hold it."""
    return Exchange((Put(call.args["tile"], row=call.args["i"]),))


@SHAPE.lower("transpose", "row")
def lower_exchange(e: Emitter, call: Call) -> None:
    exchange(e, call)


@SHAPE.lower("spread")
def lower_spread(e: Emitter, call: Call) -> None:
    if not exchange(e, call):
        e.declare(call.results[0])
        e.copy(call.args["vector"], call.results[0])
