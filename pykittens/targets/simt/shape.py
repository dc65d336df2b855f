"""Parts, joins and turns of tiles and vectors: register moves where lanes allow it, else an exchange."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, RegVector, Value
from pykittens.ops.shape import bounds
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index
from pykittens.targets.simt.exchange import (
    Put,
    bits,
    exchange,
    memory_type,
    put_vector,
    tile_place,
    vector_place,
    write_bits,
)
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RV, Spread

SHAPE = Lowerings()

# Elements between the rows of a tile in shared memory that are no columns: a transposed read then meets each bank once.
PITCH = 4


# -- register moves --------------------------------------------------------------------------------


@SHAPE.lower("part")
def lower_part(e: Emitter, call: Call) -> None:
    x: RegTile | RegVector = call.args["x"]
    (result,) = call.results
    found = bounds(x, call.args["index"])
    if isinstance(x, RegVector):
        _vector_part(e, call, x, found[0][0])
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


def _vector_part(e: Emitter, call: Call, x: RegVector, start: int) -> None:
    (result,) = call.results
    assert isinstance(result.type, RV)
    warps, length = e.role.warps, result.type.length
    chunk = plain_chunk(length, warps)
    threads = warps * 32
    if chunk == plain_chunk(x.length, warps) and start % (chunk * threads) == 0:
        write_bits(e, result, lambda i: bits(e, x, f"{start // threads} + {i}"))
        return
    places = max(x.length, start + e.registers(result) * threads)  # padding is read, too
    exchange(
        e, call, [put_vector(e, x)], lambda i: f"{start} + {vector_place(e, result, i)}", places
    )


@SHAPE.lower("concat")
def lower_concat(e: Emitter, call: Call) -> None:
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
    if isinstance(result.type, RV) and result.type.spread is Spread.PLAIN:
        _concat_plain(e, call, a, b)
        return
    write_bits(
        e, result, lambda i: f"({i} < {count} ? {bits(e, a, i)} : {bits(e, b, f'{i} - {count}')})"
    )


def _concat_plain(e: Emitter, call: Call, a: Value, b: Value) -> None:
    (result,) = call.results
    first = a.type.length  # type: ignore[union-attr]
    places = e.registers(result) * e.role.warps * 32
    exchange(
        e,
        call,
        [put_vector(e, a), put_vector(e, b, first)],
        lambda i: vector_place(e, result, i),
        places,
    )


@SHAPE.lower("swap_pairs")
def lower_swap_pairs(e: Emitter, call: Call) -> None:
    x: Value = call.args["x"]
    (result,) = call.results
    if result.dtype.packing > 1:
        write_bits(e, result, lambda i: bits(e, x, f"({i}) ^ 1"))
        return
    e.declare(result)
    # The result may lie in x: both neighbours are read before one is written.
    with e.braces(f"UNROLL for (int i = 0; i < {e.registers(x)}; i += 2) {{"):
        e.line(f"const {memory_type(x)} first = {e.array(x)}[i];")
        e.line(f"{e.array(result)}[i] = {e.array(x)}[i + 1];")
        e.line(f"{e.array(result)}[i + 1] = first;")


@SHAPE.lower("column")
def lower_column(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    j = call.args["j"]
    (result,) = call.results
    count, cols, kind = e.registers(result), tile.cols, memory_type(result)
    e.declare(result)
    with e.braces("{"):
        if not isinstance(j, RegVector):
            e.line(f"const int chosen = {e.scalar(j)};")

        def chosen(i: str) -> str:
            return f"{e.array(j)}[{i}]" if isinstance(j, RegVector) else "chosen"

        # Of the eight columns that a lane of each row holds two of, the right one is found, then asked for.
        e.line(f"{kind} partial[{count}] = {{}};")
        mine = f"tile_col<{cols}>(i, 0) == ({chosen(f'row_of<{cols}>(i)')} & ~6)"
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(tile)}; ++i) "
            f"if ({mine}) partial[row_of<{cols}>(i)] = {bits(e, tile, 'i')};"
        )
        e.line(
            f"UNROLL for (int i = 0; i < {count}; ++i) "
            f"partial[i] = __shfl_sync(~0u, partial[i], {chosen('i')} % 8 / 2, 4);"
        )
        write_bits(e, result, lambda i: f"partial[{i}]")


# -- exchanges -------------------------------------------------------------------------------------


@SHAPE.lower("transpose")
def lower_transpose(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    (result,) = call.results
    pitch = tile.cols + PITCH

    def put(i: str) -> str:
        row, col = tile_place(e, tile, i)
        return f"{row} * {pitch} + {col}"

    def take(i: str) -> str:
        row, col = tile_place(e, result, i)
        return f"{col} * {pitch} + {row}"

    exchange(e, call, [Put(tile, put, lambda i: None)], take, tile.rows * pitch, unit=16 * pitch)


@SHAPE.lower("spread")
def lower_spread(e: Emitter, call: Call) -> None:
    vector: RegVector = call.args["vector"]
    (result,) = call.results
    if vector.type == result.type:
        e.declare(result)
        e.copy(vector, result)
        return
    assert isinstance(result.type, RV)
    places = vector.length
    if result.type.spread is Spread.PLAIN:
        places = e.registers(result) * e.role.warps * 32  # padding is read, too
    exchange(e, call, [put_vector(e, vector)], lambda i: vector_place(e, result, i), places)


@SHAPE.lower("row")
def lower_row(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    (result,) = call.results
    i_th = e.scalar(call.args["i"])

    def when(i: str) -> str:
        return f"{tile_place(e, tile, i)[0]} == {i_th}"

    put = Put(tile, lambda i: tile_place(e, tile, i)[1], when)
    exchange(e, call, [put], lambda i: vector_place(e, result, i), tile.cols)
