"""Tiles, vectors and single elements between memory and registers, by chunks of neighbouring elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, Scalar, TileRef, Value
from pykittens.targets.address import TileAddress
from pykittens.targets.debug_sites import check_access
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index, least
from pykittens.targets.source import number, scalar_type
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RT, RV, Spread

MEMORY = Lowerings()

MEMORY_TYPES = {
    "f32": "float",
    "int32": "int",
    "bool": "bool",
    "int64": "i64",
    "bf16": "unsigned short",
    "f16": "unsigned short",
} | {name: "unsigned char" for name in ("e4m3", "e5m2", "int8", "uint8")}
# What memory is taken for where `op=` combines with it: 16-bit floats tell which they are.
COMBINED_TYPES = MEMORY_TYPES | {"bf16": "BF16", "f16": "F16"}


def address_of(e: Emitter, ref: TileRef | Global, rows: int, cols: int) -> TileAddress:
    """Where a tile of rows x cols lies; a window's matrix starts at the window's first element."""
    ref = ref.first
    check_access(e, ref, rows, cols)
    tensor, rank = ref.tensor, len(ref.tensor.extents)
    matrix = Index(e.pointer(tensor))
    for axis, index in enumerate(ref.index[:-2]):
        window = ref.windows.get(axis)
        at = e.index(index)
        if window is not None:
            at = e.index(window.origin) + at
        if at.number != 0:
            matrix += at * e.stride(tensor, axis)
    stride = "0" if rank == 1 else e.stride(tensor, rank - 2)
    row, height = Index(0), "1"
    if rank > 1:
        row, height = e.index(ref.index[-2]) * rows, e.extent(tensor, rank - 2)
    col, width = e.index(ref.index[-1]) * cols, e.extent(tensor, rank - 1)
    if (window := ref.windows.get(rank - 2)) is not None:
        matrix += e.index(window.low) * stride
        row, height = _in_window(e, window, row)
    if (window := ref.windows.get(rank - 1)) is not None:
        matrix += e.scalar(window.low)
        col, width = _in_window(e, window, col)
    return TileAddress(str(matrix), stride, row, col, height, width, starts_aligned(ref))


def starts_aligned(ref: TileRef | Global) -> bool:
    """Whether the rows of the matrix that tiles are cut from are known to start at multiples of 16 bytes."""
    window = ref.windows.get(len(ref.first.tensor.extents) - 1)
    starts = (window.low, window.origin) if window is not None else ()
    known = all(isinstance(x, int) and x * ref.dtype.bytes % 16 == 0 for x in starts)
    return ref.type.aligned and known


def _in_window(e: Emitter, window: Any, at: Index) -> tuple[Index, str]:
    """A coordinate that counts from a window's origin, counted from its first element; and the window's size."""
    origin, low, high = (e.index(x) for x in window.bounds)
    if window.origin is not window.low and origin.text != low.text:
        at = origin - low + at
    return at, (high - low).operand


@dataclass(frozen=True)
class Chunks:
    """How a lane holds a value: chunks of `size` neighbours, of `count` elements in all, and where chunk `i` lies.

    end: the column behind the last that may be touched. owner: which lanes store it, where several hold the same.
    """

    size: int
    count: int
    row: Index
    col: Index
    end: str = ""
    owner: str = ""


def chunks(e: Emitter, value: Value, at: TileAddress) -> Chunks:
    """How the lanes of the role hold a tile or a vector that lies at a place."""
    count, warps = e.registers(value), e.role.warps
    match value.type:
        case RT(cols=cols):
            row = at.row + f"tile_row<{cols}, {warps}>(i, warp, lane)"
            return Chunks(2, count, row, at.col + f"tile_col<{cols}>(i, lane)", at.cols)
        case RV(spread=Spread.PER_ROW):
            col = at.col + f"row_position<{warps}>(i, warp, lane)"
            return Chunks(1, count, at.row, col, at.cols, owner(Spread.PER_ROW, warps))
        case RV(spread=Spread.PER_COLUMN):
            col = at.col + "column_position(i, lane)"
            return Chunks(2, count, at.row, col, at.cols, owner(Spread.PER_COLUMN, warps))
        case RV(length=length):
            size = plain_chunk(length, warps)
            col = at.col + f"vector_at<{size}, {warps * 32}>(i, thread)"
            return Chunks(size, count, at.row, col, str(least(at.cols, at.col + length)))
        case _:
            raise AssertionError(f"{value.type} lies in no chunks")


def owner(spread: Spread, warps: int) -> str:
    """The lanes of which each stores what several hold: four of a row, eight of every warp of a column."""
    if spread is Spread.PER_ROW:
        return "lane % 4 == 0"
    return "lane < 4" if warps == 1 else "warp == 0 && lane < 4"


def each_chunk(
    e: Emitter, value: Value, at: TileAddress, move: str, parts: Chunks | None = None
) -> None:
    """A loop over the chunks of a value. `move` is a call with holes for its template, registers, row and columns."""
    parts = parts or chunks(e, value, at)
    extent = value.type.cols if isinstance(value.type, RT) else value.type.length  # type: ignore[union-attr]
    # A chunk is aligned if the rows are and tiles start at multiples of it.
    vector = at.aligned and (extent % parts.size == 0 or at.col.number == 0)
    with e.braces(f"UNROLL for (int i = 0; i < {parts.count}; i += {parts.size}) {{"):
        inside = "true"
        if parts.row.number != 0 or at.rows != "1":
            e.line(f"const {'i64' if '(i64)' in parts.row.text else 'int'} at_row = {parts.row};")
            e.line(f"const bool inside = at_row >= 0 && at_row < {at.rows};")
            inside = "inside"
        row = f"{at.matrix} + (inside ? at_row * (i64){at.stride} : 0)"
        e.line(
            move.format(
                template=f"{parts.size}, {str(vector).lower()}",
                registers=e.array(value),
                row=row if inside != "true" else at.matrix,
                col=parts.col,
                cols=f"inside ? {parts.end} : 0" if inside != "true" else parts.end,
            )
        )


def each_transposed(e: Emitter, tile: Value, at: TileAddress, move: str) -> None:
    """A loop over the elements of a tile that lies transposed at a place; `move` is a call as of `each_chunk`.

    `first` goes along with the columns of the tile: a product of a stride for each would cost more than the move.
    """
    assert isinstance(tile.type, RT), "only tiles have a transpose"
    cols, warps, word = tile.type.cols, e.role.warps, MEMORY_TYPES[tile.dtype.name]
    stride = (Index(at.stride) * tile.dtype.bytes).operand
    down, right = f"tile_col<{cols}>(i, 0)", f"tile_row<{cols}, {warps}>(i, 0, 0)"
    with e.braces("{"):
        row = at.row + f"tile_col<{cols}>(0, lane)"
        col = at.col + f"tile_row<{cols}, {warps}>(0, warp, lane)"
        e.line(f"const int at_row = {row}, at = {col};")
        e.line(f"auto first = (char*)({at.matrix} + at_row * (i64){at.stride} + at);")
        with e.braces(f"UNROLL for (int i = 0; i < {e.registers(tile)}; ++i) {{"):
            e.line(f"const bool inside = at_row + {down} >= 0 && at_row + {down} < {at.rows}")
            e.line(f"    && at + {right} >= 0 && at + {right} < {at.cols};")
            e.line(
                move.format(
                    template="1, false",
                    registers=e.array(tile),
                    row=f"({word}*)(i % 2 ? first + {stride} : first)",
                    col=right,
                    cols=f"inside ? {right} + 1 : 0",
                )
            )
            # Behind the last column of 16 rows come the first ones of the next.
            step = f"((i + 1) % {cols // 2} ? 8 : {8 - cols})"
            e.line(f"if (i % 4 == 3) first += {step} * {stride};")


def fill_bits(dtype: DType, value: float) -> str:
    """A number as it lies in memory."""
    if dtype.packing > 1:
        return f"{int(np.array(value, dtype.numpy).view(f'uint{dtype.bits}')):#x}u"
    return number(value, dtype)


def loading(fill: str) -> str:
    """The call that loads a chunk, with holes."""
    return f"load_chunk<{{template}}>({{registers}}, i, {{row}}, {{col}}, {{cols}}, {fill});"


def load_chunks(
    e: Emitter, value: Value, at: TileAddress, fill: str, parts: Chunks | None = None
) -> None:
    """Memory to registers."""
    e.declare(value)
    each_chunk(e, value, at, loading(fill), parts)


def storing(value: Value, op: str | None) -> str:
    """The call that stores a chunk, or combines memory with it, with holes."""
    function = (
        f"combine_chunk<{op.capitalize()}, {{template}}>" if op else "store_chunk<{template}>"
    )
    row = f"({COMBINED_TYPES[value.dtype.name]}*)({{row}})" if op else "{row}"
    return f"{function}({{registers}}, i, {row}, {{col}}, {{cols}});"


def store_chunks(
    e: Emitter, value: Value, at: TileAddress, op: str | None = None, parts: Chunks | None = None
) -> None:
    """Registers to memory, combined with what is there where `op` says so."""
    parts, call = parts or chunks(e, value, at), storing(value, op)
    if parts.owner:
        with e.braces(f"if ({parts.owner}) {{"):
            each_chunk(e, value, at, call, parts)
    else:
        each_chunk(e, value, at, call, parts)


@MEMORY.lower("load")
def lower_load(e: Emitter, call: Call) -> None:
    src, fill = call.args["src"], fill_bits(call.args["src"].dtype, call.args["fill"])
    (result,) = call.results
    if isinstance(result, Scalar):
        _load_scalar(e, result, address_of(e, src, 1, 1), fill)
        return
    rows, cols = result.type.shape if isinstance(result.type, RT) else (1, result.type.length)  # type: ignore[union-attr]
    if call.args["transposed"]:
        at = address_of(e, src, cols, rows)
        e.declare(result)
        each_transposed(e, result, at, loading(fill))
        return
    load_chunks(e, result, address_of(e, src, rows, cols), fill)


def _load_scalar(e: Emitter, result: Scalar, at: TileAddress, fill: str) -> None:
    """One element in a variable, read here: what the expression names may change."""
    edges = f"{at.stride}, {at.row}, {at.col}, {at.rows}, {at.cols}"
    define_element(e, result, f"load_element({at.matrix}, {edges}, {fill})")


def define_element(e: Emitter, result: Scalar, value: str) -> None:
    """A variable of what an expression reads in memory."""
    if result.dtype.packing > 1:
        value = f"from_{result.dtype}({value}, 0)"
    name = e.array(result)
    if e.storage.changes(result):
        e.declare(result)
        e.line(f"{name} = {value};")
    else:
        e.line(f"const {scalar_type(result.dtype)} {name} = {value};")


@MEMORY.lower("store")
def lower_store(e: Emitter, call: Call) -> None:
    """Registers to a tensor."""
    dst, value, op = call.args["dst"], call.args["value"], call.args["op"]
    if isinstance(value, Scalar | int | float):
        _store_scalar(e, value, dst.dtype, address_of(e, dst, 1, 1), op)
        return
    rows, cols = value.type.shape if isinstance(value.type, RT) else (1, value.length)
    if call.args["transposed"]:
        each_transposed(e, value, address_of(e, dst, cols, rows), storing(value, op))
        return
    store_chunks(e, value, address_of(e, dst, rows, cols), op)


def _store_scalar(e: Emitter, value: Any, dtype: DType, at: TileAddress, op: str | None) -> None:
    """One element, by one thread of the group."""
    text = e.scalar(value) if isinstance(value, Value) else number(value, dtype)
    if dtype.packing > 1:
        text = f"pack_{dtype}({text})"
    matrix = f"({COMBINED_TYPES[dtype.name]}*)({at.matrix})" if op else at.matrix
    function = f"combine_element<{op.capitalize()}>" if op else "store_element"
    edges = f"{at.stride}, {at.row}, {at.col}, {at.rows}, {at.cols}"
    first = "lane == 0" if e.role.warps == 1 else "thread == 0"
    e.line(f"if ({first}) {function}({matrix}, {edges}, {text});")


# -- rows by index ---------------------------------------------------------------------------------


def _indexed(e: Emitter, tile: Value, index: Value, ref: Any) -> tuple[TileAddress, Chunks]:
    """The place of a tile of columns, and the chunks of a tile whose rows are those that an index names."""
    cols = tile.type.cols  # type: ignore[union-attr]
    at = address_of(e, ref, 1, cols)
    row = at.row + f"(i64){e.array(index)}[row_of<{cols}>(i)]"
    return at, replace(chunks(e, tile, at), row=row)


@MEMORY.lower("gather")
def lower_gather(e: Emitter, call: Call) -> None:
    (result,) = call.results
    at, parts = _indexed(e, result, call.args["index"], call.args["src"])
    load_chunks(e, result, at, fill_bits(result.dtype, call.args["fill"]), parts)


@MEMORY.lower("scatter")
def lower_scatter(e: Emitter, call: Call) -> None:
    value = call.args["value"]
    at, parts = _indexed(e, value, call.args["index"], call.args["dst"])
    store_chunks(e, value, at, call.args["op"], parts)
