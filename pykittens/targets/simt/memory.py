"""Moves of tiles, vectors and single elements between memory and registers, in chunks of neighbouring elements."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, RegTile, RegVector, Scalar, TileRef, Value
from pykittens.ops.gather import names_elements
from pykittens.targets.address import TileAddress
from pykittens.targets.debug_sites import check_access
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index, least
from pykittens.targets.lines import unrolled
from pykittens.targets.source import memory_type, number, register_type
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType
from pykittens.types.layouts import LANES, plain_chunk, plain_registers
from pykittens.types.tiles import RT, RV, Spread

MEMORY = Lowerings()


def combined_type(dtype: DType) -> str:
    """The type of an element in memory that `op=` combines with: 16-bit floats have types that name them."""
    return dtype.name.upper() if dtype.packing == 2 else memory_type(dtype)


def address_of(e: Emitter, ref: TileRef | Global, rows: int, cols: int) -> TileAddress:
    """The address of a tile of rows x cols; the matrix of a window starts at the window's first element."""
    ref = ref.first
    check_access(e, ref, rows, cols)
    tensor, (*down, across) = ref.tensor, ref.plane
    last = len(ref.index) - 1

    def step(axis: int) -> str:
        return "1" if axis == last else e.stride(tensor, axis)

    matrix = Index(e.pointer(tensor))
    for axis in ref.fixed:
        at = e.index(ref.index[axis])
        if (window := ref.windows.get(axis)) is not None:
            at = e.index(window.origin) + at
        if at.number != 0:
            matrix += at * step(axis)
    stride, row, height = "0", Index(0), "1"
    for axis in down:
        stride = step(axis)
        row, height = e.index(ref.index[axis]) * rows, e.extent(tensor, axis)
    col, width, pitch = e.index(ref.index[across]) * cols, e.extent(tensor, across), step(across)
    for axis in down:
        if (window := ref.windows.get(axis)) is not None:
            matrix += e.index(window.low) * stride
            row, height = _in_window(e, window, row)
    if (window := ref.windows.get(across)) is not None:
        matrix += e.index(window.low) * pitch
        col, width = _in_window(e, window, col)
    aligned = starts_aligned(ref)
    whole = aligned and ref.type.whole_rows and across == last and across not in ref.windows
    rows_in = max((e.storage.depth(ref.index[axis]) for axis in down), default=0)
    along = e.storage.depth(ref.index[across]) > rows_in
    return TileAddress(str(matrix), stride, row, col, height, width, aligned, pitch, whole, along)


def address_of_element(e: Emitter, ref: TileRef | Global) -> TileAddress:
    """The address of one element."""
    return address_of(e, ref, 1, 1).element()


def starts_aligned(ref: TileRef | Global) -> bool:
    """Whether the rows of the matrix of a tile are known to start at multiples of 16 bytes."""
    window = ref.windows.get(ref.first.plane[-1])
    starts = (window.low, window.origin) if window is not None else ()
    known = all(isinstance(x, int) and x * ref.dtype.bytes % 16 == 0 for x in starts)
    return ref.type.aligned and known and not ref.first.is_strided


def _in_window(e: Emitter, window: Any, at: Index) -> tuple[Index, str]:
    """A coordinate relative to a window's origin, made relative to its first element; and the window's size."""
    origin, low, high = (e.index(x) for x in window.bounds)
    if window.origin is not window.low and origin.text != low.text:
        at = origin - low + at
    return at, (high - low).operand


@dataclass(frozen=True)
class Chunks:
    """How a lane moves a value: `count` elements in chunks of `size` neighbours, and the position of chunk `i`.

    end: the column after the last one that may be accessed. owner: the lanes that store, if several hold the same.
    halves: a lane holds two 16-bit elements of a chunk, and exchanges others with the next lane to move four.
    """

    size: int
    count: int
    row: Index
    col: Index
    end: str = ""
    owner: str = ""
    halves: bool = False


def chunks(
    e: Emitter, value: Value, at: TileAddress, index: Value | None = None, moves: bool = False
) -> Chunks:
    """How the lanes of the role hold, or move, a tile or vector at an address.

    index: a vector of the row of each row of a tile.
    """
    count, warps = e.registers(value), e.role.warps
    match value.type:
        case RT(cols=cols):
            halves = moves and value.dtype.packing == 2
            i, column = ("halves(i)", "halves_col") if halves else ("i", "tile_col")
            row = f"tile_row<{cols}, {warps}>({i}, warp, lane)"
            if index is not None:
                row = f"(i64){e.array(index)}[row_of<{cols}>({i})]"
            col = at.col + f"{column}<{cols}>(i, lane)"
            return Chunks(4 if halves else 2, count, at.row + row, col, at.cols, "", halves)
        case RV(spread=Spread.PER_ROW):
            col = at.col + f"row_position<{warps}>(i, warp, lane)"
            return Chunks(1, count, at.row, col, at.cols, owner(Spread.PER_ROW, warps))
        case RV(spread=Spread.PER_COLUMN):
            col = at.col + "column_position(i, lane)"
            return Chunks(2, count, at.row, col, at.cols, owner(Spread.PER_COLUMN, warps))
        case RV(length=length):
            size = value.type.chunk(warps)
            col = at.col + f"vector_at<{size}, {warps * 32}>(i, thread)"
            return Chunks(size, count, at.row, col, str(least(at.cols, at.col + length)))
        case _:
            raise AssertionError(f"{value.type} lies in no chunks")


def owner(spread: Spread, warps: int) -> str:
    """The lanes that store a vector.

    Four lanes hold each element of a per-row vector, and eight lanes of every warp each element of a per-column vector.
    """
    if spread is Spread.PER_ROW:
        return "lane % 4 == 0"
    return "lane < 4" if warps == 1 else "warp == 0 && lane < 4"


def each_chunk(e: Emitter, value: Value, at: TileAddress, move: str, held: Chunks) -> None:
    """A loop over the chunks of a value, or over its elements if they are no neighbours in memory.

    `move` is a call with holes for its template, row and columns. Values that consist of chunks have a second loop, for
    those that no side of the matrix cuts, which need no test for each chunk.
    """
    in_chunks = isinstance(value.type, RT) or value.type.spread is Spread.LANE_ORDER  # type: ignore[union-attr]
    if not in_chunks or at.is_strided:
        each_of(e, value, at, move, held)
        return
    with e.braces(f"if ({is_whole(value, at, held)}) {{", None):
        each_of(e, value, at, move, held, whole=True)
    with e.braces("} else {"):
        each_of(e, value, at, move, held)


def is_whole(value: Value, at: TileAddress, held: Chunks) -> str:
    """The condition that no side of the matrix cuts a value."""
    starts = [] if at.col.number == 0 else [f"{at.col} >= 0"]
    return " && ".join([*starts, f"{at.col + extents(value)[1]} <= {held.end}"])


def each_of(
    e: Emitter, value: Value, at: TileAddress, move: str, held: Chunks, whole: bool = False
) -> None:
    """A loop over chunks, as in `each_chunk`, of which none has a test if the value is whole."""
    vector = chunks_aligned(value, at, held)
    if vector and are_uncut(value, at, held):
        each_uncut(e, value, at, move, held)
        return
    size = 1 if at.is_strided else held.size
    with e.braces(f"{unrolled(held.count, step=size)} {{"):
        row, col, cols = at.matrix, str(held.col), str(held.size) if whole else held.end
        if held.row.number != 0 or at.rows != "1":
            e.line(f"const {'i64' if '(i64)' in held.row.text else 'int'} at_row = {held.row};")
            e.line(f"const bool inside = at_row >= 0 && at_row < {at.rows};")
            row = f"{at.matrix} + (inside ? at_row * (i64){at.stride} : 0)"
            cols = f"inside ? {cols} : 0"
        if at.is_strided:
            e.line(f"const int at_col = {col};")
            e.line(f"const bool there = at_col >= 0 && at_col < ({cols});")
            row, col, cols = f"{row} + (there ? at_col * {at.pitch} : 0)", "0", "there"
        if whole:
            row, col = f"{row} + {col}", "0"
        template = f"{size}, {str(vector).lower()}"
        e.line(move.format(template=template, row=row, col=col, cols=cols))


def are_uncut(value: Value, at: TileAddress, held: Chunks) -> bool:
    """Whether no side of a matrix cuts a chunk of a plain vector: its rows and the vector consist of whole chunks."""
    if held.row.number == 0 and at.rows == "1":
        return False  # the bounds of a single row cost registers and save nothing
    is_plain = isinstance(value.type, RV) and value.type.spread is Spread.PLAIN
    is_small = held.size * value.dtype.bytes <= 16  # rows are multiples of that
    return at.whole and is_plain and is_small and extents(value)[1] % held.size == 0


def each_uncut(e: Emitter, value: Value, at: TileAddress, move: str, held: Chunks) -> None:
    """A loop over chunks that no side of the matrix cuts, because its rows consist of whole chunks: one test for each.

    What the inner loop changes is added last to an address, so that the rest is found once.
    """
    length, threads = extents(value)[1], e.role.warps * LANES
    end = at.cols if plain_registers(length, e.role.warps) * threads == length else held.end
    with e.braces(f"{unrolled(held.count, step=held.size)} {{"):
        e.line(f"const int at_row = {held.row};")
        if at.along or held.count > held.size:
            row = Index(f"row_at({at.matrix}, at_row, {at.stride})") + held.col
        else:
            row = Index(f"row_at({Index(at.matrix) + held.col}, at_row, {at.stride})")
        e.line(f"const bool inside = is_below(at_row, {at.rows}) && is_below({held.col}, {end});")
        cols = f"inside ? {held.size} : 0"
        e.line(move.format(template=f"{held.size}, true", row=row, col="0", cols=cols))


def chunks_aligned(value: Value, at: TileAddress, held: Chunks) -> bool:
    """Whether chunks start at multiples of their size: the rows do, and tiles start at multiples of a chunk."""
    return at.aligned and (extents(value)[1] % held.size == 0 or at.col.number == 0)


def has_granules(type_: RT | RV, dtype: DType, warps: int) -> bool:
    """Whether a value of a tensor at any address moves by aligned granules (skewed.cuh): its chunks are long enough."""
    if not isinstance(type_, RV) or type_.spread is not Spread.PLAIN or dtype.kind == "bool":
        return False
    chunk = plain_chunk(type_.length, warps)
    # Lane i moves the granule after the chunks i of its warp.
    return chunk * dtype.bytes >= 4 and plain_registers(type_.length, warps) <= LANES * chunk


def is_skewed(e: Emitter, value: Value, at: TileAddress) -> bool:
    """Whether a value of a tensor moves by granules because its chunks are not aligned."""
    assert isinstance(value.type, RT | RV), value
    if at.is_strided:
        return False
    aligned = chunks_aligned(value, at, chunks(e, value, at))
    return not aligned and has_granules(value.type, value.dtype, e.role.warps)


def skewed(e: Emitter, function: str, value: Value, at: TileAddress, more: str = "") -> str:
    """A call that moves a plain vector at any address, without its last operands; `more` of its template's."""
    length = extents(value)[1]
    template = f"{plain_chunk(length, e.role.warps)}, {e.role.warps * LANES}{more}"
    return f"{function}<{template}>({e.array(value)}, {at.matrix}, {at.operands}, {length}"


def each_transposed(e: Emitter, tile: Value, at: TileAddress, move: str) -> None:
    """A loop over the elements of a tile that lies transposed at an address; `move` is as in `each_chunk`.

    `first` follows the columns of the tile, because a product with a stride for each would cost more than the move.
    """
    assert isinstance(tile.type, RT), "only tiles have a transpose"
    cols, warps = tile.type.cols, e.role.warps
    stride = (Index(at.stride) * tile.dtype.bytes).operand
    down, right = f"tile_col<{cols}>(i, 0)", f"tile_row<{cols}, {warps}>(i, 0, 0)"
    with e.braces("{"):
        first_row = at.row + f"tile_col<{cols}>(0, lane)"
        first_col = at.col + f"tile_row<{cols}, {warps}>(0, warp, lane)"
        e.line(f"const int at_row = {first_row}, at = {first_col};")
        across = Index("at") * at.pitch
        e.line(f"auto first = (char*)({at.matrix} + at_row * (i64){at.stride} + {across});")
        with e.braces(f"{unrolled(e.registers(tile))} {{"):
            e.line(f"const bool inside = at_row + {down} >= 0 && at_row + {down} < {at.rows}")
            e.line(f"    && at + {right} >= 0 && at + {right} < {at.cols};")
            row = f"({memory_type(tile.dtype)}*)(i % 2 ? first + {stride} : first)"
            col, end = right, f"inside ? {right} + 1 : 0"
            if at.is_strided:
                row, col, end = f"{row} + {Index(right) * at.pitch}", "0", "inside"
            e.line(move.format(template="1, false", row=row, col=col, cols=end))
            # The last column of 16 rows is followed by the first column of the next 16.
            step = f"((i + 1) % {cols // 2} ? 8 : {8 - cols})"
            e.line(f"if (i % 4 == 3) first += {step} * {stride};")


def extents(value: Value) -> tuple[int, int]:
    """Rows and columns of a tile; a vector is one row."""
    if isinstance(value.type, RT):
        return value.type.rows, value.type.cols
    return 1, value.type.length  # type: ignore[union-attr]


def fill_bits(dtype: DType, value: float) -> str:
    """A number as it lies in memory."""
    if dtype.packing > 1:
        return f"{int(np.array(value, dtype.numpy).view(f'uint{dtype.bits}')):#x}u"
    return number(value, dtype)


def loading(e: Emitter, value: Value, fill: str, halves: bool = False) -> str:
    """The call that loads a chunk, with holes."""
    chunk = "halves" if halves else "chunk"
    return f"load_{chunk}<{{template}}>({e.array(value)}, i, {{row}}, {{col}}, {{cols}}, {fill});"


def storing(e: Emitter, value: Value, op: str | None, halves: bool = False) -> str:
    """The call that stores a chunk or combines memory with it, with holes."""
    chunk, lane = ("halves", ", lane") if halves else ("chunk", "")
    function = f"combine_{chunk}<{op.capitalize()}, " if op else f"store_{chunk}<"
    row = f"({combined_type(value.dtype)}*)({{row}})" if op else "{row}"
    return f"{function}{{template}}>({e.array(value)}, i, {row}, {{col}}, {{cols}}{lane});"


def load_chunks(
    e: Emitter, value: Value, at: TileAddress, fill: str, index: Value | None = None
) -> None:
    """Memory to registers; `index` as in `chunks`."""
    e.declare(value)
    held = chunks(e, value, at, index, moves=not at.is_strided)
    each_chunk(e, value, at, loading(e, value, fill, held.halves), held)
    if held.halves:
        e.each(held.count, f"exchange_halves({e.array(value)}, i, lane);", step=held.size)


def load_tensor(e: Emitter, value: Value, at: TileAddress, fill: str) -> None:
    """A tile or vector of a tensor to registers."""
    if is_skewed(e, value, at):
        e.declare(value)
        one_row = ", true" if at.rows == "1" else ""
        e.line(f"{skewed(e, 'load_skewed', value, at, one_row)}, {fill}, thread);")
    else:
        load_chunks(e, value, at, fill)


def store_tensor(e: Emitter, value: Value, at: TileAddress, op: str | None) -> None:
    """A tile or vector to a tensor, combined with its contents by `op` if given."""
    if op is None and is_skewed(e, value, at):
        e.line(f"{skewed(e, 'store_skewed', value, at)}, thread);")
    else:
        store_chunks(e, value, at, op)


def store_chunks(
    e: Emitter, value: Value, at: TileAddress, op: str | None = None, index: Value | None = None
) -> None:
    """Registers to memory, combined with its contents by `op` if given; `index` as in `chunks`."""
    held = chunks(e, value, at, index, moves=not at.is_strided)
    each_stored(e, value, at, storing(e, value, op, held.halves), held)


def each_stored(e: Emitter, value: Value, at: TileAddress, move: str, held: Chunks) -> None:
    """A loop over the chunks of a value in the lanes that store it; `move` is as in `each_chunk`."""
    with e.braces(f"if ({held.owner}) {{") if held.owner else nullcontext():
        each_chunk(e, value, at, move, held)


def define_element(e: Emitter, result: Scalar, element: str) -> None:
    """Write a scalar that is read from memory: a variable, because the memory may change before it is used."""
    if result.dtype.packing > 1:
        element = f"from_{result.dtype}({element}, 0)"
    e.assign(result, element)


@MEMORY.lower("load")
def lower_load(e: Emitter, call: Call) -> None:
    src, (result,) = call.args["src"], call.results
    fill = fill_bits(src.dtype, call.args["fill"])
    if isinstance(result, Scalar):
        at = address_of_element(e, src)
        define_element(e, result, f"load_element({at.matrix}, {at.operands}, {fill})")
        return
    rows, cols = extents(result)
    if not call.args["transposed"]:
        load_tensor(e, result, address_of(e, src, rows, cols), fill)
        return
    at = address_of(e, src, cols, rows)
    e.declare(result)
    each_transposed(e, result, at, loading(e, result, fill))


@MEMORY.lower("store")
def lower_store(e: Emitter, call: Call) -> None:
    dst, value, op = call.args["dst"], call.args["value"], call.args["op"]
    if isinstance(value, Scalar | int | float):
        _store_scalar(e, value, dst.dtype, address_of_element(e, dst), op)
        return
    rows, cols = extents(value)
    if call.args["transposed"]:
        each_transposed(e, value, address_of(e, dst, cols, rows), storing(e, value, op))
    else:
        store_tensor(e, value, address_of(e, dst, rows, cols), op)


def _stored(e: Emitter, value: Any, dtype: DType) -> str:
    """A scalar or a number in a register, as it is stored."""
    text = e.scalar(value) if isinstance(value, Value) else number(value, dtype)
    return f"pack_{dtype}({text})" if dtype.packing > 1 else text


def _store_scalar(e: Emitter, value: Any, dtype: DType, at: TileAddress, op: str | None) -> None:
    """One element, by one thread of the group."""
    text = _stored(e, value, dtype)
    matrix = f"({combined_type(dtype)}*)({at.matrix})" if op else at.matrix
    function = f"combine_element<{op.capitalize()}>" if op else "store_element"
    first = "lane == 0" if e.role.warps == 1 else "thread == 0"
    e.line(f"if ({first}) {function}({matrix}, {at.operands}, {text});")


# -- rows and elements by index --------------------------------------------------------------------


@MEMORY.lower("gather")
def lower_gather(e: Emitter, call: Call) -> None:
    (result,) = call.results
    if names_elements(call):
        gather_elements(e, call, address_of(e, call.args["src"], 1, 1))
        return
    at = address_of(e, call.args["src"], 1, extents(result)[1])
    load_chunks(e, result, at, fill_bits(result.dtype, call.args["fill"]), call.args["index"])


@MEMORY.lower("scatter")
def lower_scatter(e: Emitter, call: Call) -> None:
    value, op = call.args["value"], call.args["op"]
    if names_elements(call):
        scatter_elements(e, call, address_of(e, call.args["dst"], 1, 1))
        return
    at = address_of(e, call.args["dst"], 1, extents(value)[1])
    store_chunks(e, value, at, op, call.args["index"])


def gather_elements(e: Emitter, call: Call, at: TileAddress) -> None:
    """Elements of a row of memory, each by its index, to registers."""
    (result,), fill = call.results, fill_bits(call.args["src"].dtype, call.args["fill"])
    e.declare(result)
    _each_element(e, call, at, "", loading(e, result, fill))


def scatter_elements(e: Emitter, call: Call, at: TileAddress) -> None:
    """Registers, or one number, to elements of a row of memory, each by its index."""
    index, value, op = call.args["index"], call.args["value"], call.args["op"]
    held, dtype = chunks(e, index, at), call.args["dst"].dtype
    conditions = [held.owner] if held.owner else []
    warps, type_ = e.role.warps, index.type
    is_plain = isinstance(type_, RV) and type_.spread is Spread.PLAIN
    if is_plain and e.registers(index) * warps * LANES > type_.length:
        conditions.append(f"vector_at<{held.size}, {warps * 32}>(i, thread) < {type_.length}")
    if isinstance(value, RegTile | RegVector):
        _each_element(e, call, at, " && ".join(conditions), storing(e, value, op))
        return
    with e.braces("{"):
        e.line(f"const {register_type(dtype)} held = {_stored(e, value, dtype)};")
        matrix = f"({combined_type(dtype)}*)({{row}})" if op else "{row}"
        function = f"combine_element<{op.capitalize()}>" if op else "store_element"
        move = f"{function}({matrix}, 0, 0, {{col}}, 1, {{cols}}, held);"
        _each_element(e, call, at, " && ".join(conditions), move)


def _each_element(e: Emitter, call: Call, at: TileAddress, condition: str, move: str) -> None:
    """A loop over the elements that an index names; `move` is as in `each_chunk`."""
    index = call.args["index"]
    is_int = index.dtype.bits == 32 and at.col.number == 0
    column = Index(f"{'' if is_int else '(i64)'}{e.array(index)}[i]") + at.col
    row, cols = at.matrix, at.cols
    with e.braces("{"):
        if at.row.number != 0 or at.rows != "1":
            e.line(f"const int at_row = {at.row};")
            e.line(f"const int width = at_row >= 0 && at_row < {at.rows} ? {cols} : 0;")
            row, cols = f"{row} + (width > 0 ? at_row * (i64){at.stride} : 0)", "width"
        with e.braces(f"{unrolled(e.registers(index))} {{"):
            if condition:
                e.line(f"if (!({condition})) continue;")
            e.line(f"const {'int' if is_int else 'i64'} at = {column};")
            e.line(f"const bool inside = at >= 0 && at < {cols};")
            place = f"{row} + (inside ? {Index('at') * at.pitch} : 0)"
            e.line(move.format(template="1, false", row=place, col="0", cols="inside"))
