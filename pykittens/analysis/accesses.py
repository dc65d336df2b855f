"""The addresses that each instruction of the lowerings of sm_90a touches, lane by lane, as integers.

They follow from types/layouts.py and types/fragments.py. The pattern of each move:

- 16-bit elements of a shared tile, and operands of products: 8x8 matrices, rows of 16 bytes (`matrices`). Operands
  that no load of matrices can bring to their lanes: element by element (`fragments`).
- Between registers and tensors, shared vectors or other shared tiles: chunks of neighbours, up to 16 bytes
  (`chunk_moves`). Plain vectors of tensors at any address: aligned granules of that size (`skewed_moves`).
- Elements that an index names: each lane its own, one by one (`element_moves`).
- Elements that change lanes through scratch memory: as the lowering declares (`exchanges`).
- Copies: lines of 128 bytes by the copy engine (`lines`); tiles that it cannot copy by aligned granules of tensors and
  pieces of 16 bytes of shared memory (`by_granules`), or element by element (`by_elements`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykittens.analysis.requests import Requests
from pykittens.ir.nodes import Role
from pykittens.ir.values import SharedTile, Value
from pykittens.targets.cuda.engines import rows_between
from pykittens.targets.simt.scratch import Exchange, JoinedPartials, Partials, Strides
from pykittens.types.dtypes import DType, int8
from pykittens.types.fragments import (
    A_REGISTERS,
    B_REGISTERS,
    a_element,
    b_element,
    depth_of,
    tile_depth,
)
from pykittens.types.layouts import (
    BLOCK_ROWS,
    LANES,
    chunk_element,
    col_vector_element,
    col_vector_registers,
    halves_element,
    plain_registers,
    row_vector_element,
    row_vector_registers,
    tile_element,
    tile_registers,
)
from pykittens.types.tiles import RT, RV, ST, Spread

Address = Callable[[Any, Any], Any]  # the byte address of the element in a row and a column

PIECE = 16  # bytes: the most that a lane moves at once, and a row of a matrix


# -- matrices and fragments ------------------------------------------------------------------------


def matrices(tile: ST) -> Requests:
    """All 8x8 matrices of a tile, 8 rows of 16 bytes each: a phase of ldmatrix and stmatrix, a core matrix of wgmma."""
    size = tile.dtype.bytes
    down, right, row = np.ogrid[: tile.rows // 8, : tile.cols * size // PIECE, :8]
    return Requests.of(tile.layout.offset(8 * down + row, right * (PIECE // size)), PIECE)


def fragments(tile: ST, left: bool, across: bool, reordered: bool = False) -> Requests:
    """One read of an operand of a product, `a` (left) or `b`: by matrices, or by elements if no matrices bring it.

    across: its depth runs along the rows of memory. reordered: the depth has the order of a register tile's columns,
    `tile_depth`.
    """
    size = tile.dtype.bytes
    if size == 2 or not (across or reordered):
        return matrices(tile)
    depth, beside = depth_of(size), BLOCK_ROWS if left else 8
    registers = A_REGISTERS if left else B_REGISTERS
    deep, wide = (tile.rows, tile.cols) if across else (tile.cols, tile.rows)
    step, block, register, part, lane = np.ogrid[
        : deep // depth, : wide // beside, :registers, : 4 // size, :LANES
    ]
    if left:
        other, at = a_element(lane, register, part, size)
    else:
        at, other = b_element(lane, register, part, size)
    at = (tile_depth(at, size) if reordered else at) + depth * step
    other = other + beside * block
    return Requests.of(tile.layout.offset(*((at, other) if across else (other, at))), size)


# -- values held in registers ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """The first elements of the chunks of `size` neighbours that the lanes of a group hold: warps x chunks x lanes.

    count: elements of a chunk that exist, fewer than `size` at the end of a plain vector. owner: the lanes that store,
    if several hold the same elements.
    """

    row: Any
    col: Any
    size: int
    count: Any
    owner: Any


def held(type_: RT | RV, warps: int, transposed: bool = False, tensor: bool = False) -> Held:
    """The chunks of a tile or vector, as lanes hold them or, with `tensor`, as they move them to and from a tensor.

    They are single elements if a tile is transposed in memory.
    """
    warp, _, lane = np.ogrid[:warps, :1, :LANES]
    match type_:
        case RT(rows=rows, cols=cols) if tensor and not transposed and type_.dtype.packing == 2:
            chunk = np.arange(tile_registers(rows, cols, warps) // 4)[:, None]
            return Held(*halves_element(lane, chunk, warp, cols, warps), 4, 4, True)
        case RT(rows=rows, cols=cols):
            size = 1 if transposed else 2
            register = np.arange(0, tile_registers(rows, cols, warps), size)[:, None]
            row, col = tile_element(lane, register, warp, cols, warps)
            return Held(col, row, 1, 1, True) if transposed else Held(row, col, 2, 2, True)
        case RV(length=length, spread=Spread.PER_ROW):
            register = np.arange(row_vector_registers(length, warps))[:, None]
            col = row_vector_element(lane, register, warp, warps)
            return Held(0, col, 1, 1, lane % 4 == 0)
        case RV(length=length, spread=Spread.PER_COLUMN):
            register = np.arange(0, col_vector_registers(length), 2)[:, None]
            col = col_vector_element(lane, register) + 0 * warp
            return Held(0, col, 2, 2, (warp == 0) & (lane < 4))
        case RV(length=length):
            size = type_.chunk(warps)
            register = np.arange(0, plain_registers(length, warps), size)[:, None]
            col = chunk_element(warp * LANES + lane, register, size, warps)
            return Held(0, col, size, np.clip(length - col, 0, size), True)


def steps(dtype: DType, size: int, aligned: bool, op: str | None = None) -> tuple[int, int]:
    """Elements that one instruction moves in a whole chunk, and in a partial one.

    aligned: the address of a chunk is a multiple of its size. op: the operation that combines them with memory.
    """
    if not aligned or size == 1 or dtype.kind == "bool":
        return 1, 1
    if op is not None:
        # PTX ISA, "red": adds two neighbours of these dtypes at once.
        count = 2 if op == "add" and dtype.name in ("f32", "f16", "bf16") else 1
        return count, count
    return min(size, PIECE // dtype.bytes), 2 if dtype.bits == 8 else 1


def chunk_moves(
    at: Held, dtype: DType, address: Address, aligned: bool, stores: bool, op: str | None = None
) -> Iterator[Requests]:
    """The requests that move a value between registers and memory in chunks."""
    owner = at.owner if stores else True
    whole, ragged = steps(dtype, at.size, aligned, op)
    if whole == ragged:
        yield from _run(at, dtype, address, whole, owner & (at.count > 0))
        return
    for k in range(0, at.size, whole):
        there = owner & (at.count == at.size)
        yield Requests.of(address(at.row, at.col + k), whole * dtype.bytes, there)
    if np.any(at.count < at.size):
        yield from _run(at, dtype, address, ragged, owner & (at.count < at.size))


def _run(at: Held, dtype: DType, address: Address, step: int, lanes: Any) -> Iterator[Requests]:
    """The requests for the chunks of some lanes: `step` elements at a time, and a single last one."""
    for k in range(0, at.size, step):
        first, remaining = address(at.row, at.col + k), at.count - k
        yield Requests.of(first, step * dtype.bytes, lanes & (remaining >= step))
        if step > 1 and np.any(remaining == 1):
            yield Requests.of(first, dtype.bytes, lanes & (remaining == 1))


def skewed_moves(at: Held, dtype: DType, address: Address, stores: bool) -> Iterator[Requests]:
    """The requests that move a plain vector at any address by aligned granules (skewed.cuh), inside its matrix."""
    bytes_ = at.size * dtype.bytes
    granule = min(bytes_, PIECE)
    start = np.broadcast_to(address(at.row, at.col), at.col.shape)
    skew = int(start[0, 0, 0]) % granule
    if stores:
        yield from _skewed_stores(at, dtype.bytes, start, granule, skew)
        return
    row = int(start[0, 0, 0])
    end = row + int(np.broadcast_to(at.count, start.shape).sum()) * dtype.bytes
    # A lane of few chunks loads the granule after each of them, too.
    few = start.shape[1] * granule <= 2 * PIECE
    for k in range(0, bytes_ + granule * (few and skew > 0), granule):
        yield Requests.of(start - skew + k, granule, _meets(start - skew, bytes_, row, end))
    if skew and not few:
        past = _past(start, bytes_) - skew
        yield Requests.of(past, granule, _meets(past, bytes_, row, end) & (past >= 0))


def _past(start: Any, bytes_: int) -> Any:
    """The addresses after the runs of neighbouring chunks of each warp, a lane each; far below 0 for other lanes."""
    warps, chunks, _ = start.shape
    lane = np.arange(LANES)
    if warps == 1:
        return np.where(lane == 0, start[0, -1, -1] + bytes_, -(1 << 40))[None, None]
    ends = start[:, :, -1] + bytes_
    there = lane < chunks
    return np.where(there, ends[:, np.minimum(lane, chunks - 1)], -(1 << 40))[:, None]


def _meets(at: Any, bytes_: int, first: int, end: int) -> Any:
    """Whether so many bytes from an address reach into a range."""
    return (at < end) & (at + bytes_ > first)


def _skewed_stores(at: Held, size: int, start: Any, granule: int, skew: int) -> Iterator[Requests]:
    """The stores of the lanes of each run of neighbouring chunks: all of one warp, or those of 32 lanes of several."""
    warps, chunks, _ = start.shape
    bytes_, lane = at.size * size, np.arange(LANES)
    count = np.broadcast_to(at.count, start.shape) * size
    if warps == 1:
        yield from _whole_row(start[:1, :1, :1], count.sum(), chunks, bytes_, size, granule, skew)
        return
    first, last = start[:, :, :1] - skew, skew + count.sum(axis=2, keepdims=True)
    own = lane * bytes_
    for k in range(0, bytes_, granule):
        there = True if k else lane > 0
        yield from _parts(first + own + k, skew - own - k, last - own - k, size, granule, there)
    # Lane i stores both ends of run i.
    first, last = np.moveaxis(first, 1, 2), np.moveaxis(last, 1, 2)
    for k in (0, LANES * bytes_):
        yield from _parts(first + k, skew - k, last - k, size, granule, last > skew)


def _whole_row(
    row: Any, length: int, chunks: int, bytes_: int, size: int, granule: int, skew: int
) -> Iterator[Requests]:
    """The stores of a warp to a row of `length` bytes: the granules that it fills, then the ends, an element a lane."""
    # One chunk more, of which the first lane stores the end of the last.
    own = (np.arange(chunks + 1)[:, None] * LANES + np.arange(LANES)) * bytes_
    for k in range(0, bytes_, granule):
        filled = (own + k >= skew) & (own + k + granule <= skew + length)
        yield Requests.of(row - skew + own + k, granule, filled[None])
    each = np.arange(granule // size) * size
    tail = length - granule + each
    byte = np.concatenate([each, tail, np.full(LANES - 2 * len(each), -1)])
    cut = np.concatenate(
        [(skew > 0) & (skew + each < granule), skew + tail >= (skew + length) // granule * granule]
    )
    there = (byte >= 0) & (byte < length) & np.resize(cut, LANES)
    yield Requests.of(row + byte, size, there[None, None])


def _parts(
    at: Any, first: Any, last: Any, size: int, granule: int, there: Any
) -> Iterator[Requests]:
    """The stores of bytes `first` to `last` of granules: at once, or in as few pieces as alignment permits."""
    whole = (first <= 0) & (last >= granule)
    yield Requests.of(at, granule, there & whole)
    done, end = np.maximum(first, 0), np.minimum(last, granule)
    rising = [piece for piece in (1, 2, 4) if size <= piece < granule]
    cut = there & ~whole & (done < end)
    steps_ = [(p, True) for p in rising] + [(8, False)] * (granule > 8)
    for piece, odd in steps_ + [(p, False) for p in reversed(rising)]:
        now = cut & (done + piece <= end) & ((done & piece > 0) | (not odd))
        yield Requests.of(at + done, piece, now)
        done = np.where(now, done + piece, done)


def element_moves(
    at: Held, size: int, stores: bool, pitch: int | None = None
) -> Iterator[Requests]:
    """The requests for elements that an index names, taken as neighbours: where they lie is not known.

    pitch: the distance between neighbours in bytes, if it is not their size.
    """
    for k in range(at.size):
        there = np.broadcast_to((at.owner if stores else True) & (at.count > k), at.col.shape)
        yield Requests.of((np.cumsum(there, axis=-1) - 1) * (pitch or size), size, there)


# -- scratch memory --------------------------------------------------------------------------------


def exchanges(moved: Exchange | Partials, result: Value, warps: int) -> Iterator[Requests]:
    """The requests of an exchange through the scratch memory of a group, as if all of it fitted there.

    The compiler moves the neighbours that a lane holds at once, up to 16 bytes, if they are neighbours in memory.
    """
    if isinstance(moved, JoinedPartials):
        yield from _joined(moved, warps)
        return
    if isinstance(moved, Partials):
        yield from _partials(moved, warps)
        return
    for put in moved.puts:
        at = held(_in_registers(put.value), warps)
        if put.row is not None:
            at = replace(at, owner=at.row == 0)  # every row is held by the same number of lanes
        yield from _strided(at, put.value.dtype, put.at, stores=True)
    at = held(_in_registers(result), warps)
    # The padding of a plain vector is read, too.
    yield from _strided(replace(at, count=at.size), result.dtype, moved.take, stores=False)


def _in_registers(value: Value) -> RT | RV:
    assert isinstance(value.type, RT | RV), value
    return value.type


def _strided(at: Held, dtype: DType, position: Strides, stores: bool) -> Iterator[Requests]:
    """The requests that move a value between registers and its positions in scratch memory."""
    aligned = position.col == 1 and not ((position.first or 0) % at.size or position.row % at.size)
    yield from chunk_moves(
        at,
        int8 if dtype.kind == "bool" else dtype,  # a bool is moved as a byte
        lambda row, col: position(row, col) * dtype.bytes,
        aligned,
        stores,
    )


def _partials(moved: Partials, warps: int) -> Iterator[Requests]:
    """Partial results of columns: the lanes of a column hold the same, and one of them writes each pair."""
    warp, pair, lane = np.ogrid[:warps, : moved.length // 8, :LANES]
    first = (warp * moved.length + 8 * pair + 2 * (lane % 4)) * moved.bytes
    for at, size in _pieces(moved):
        yield Requests.of(first + at, size, lane // 4 == pair % 8)
        yield Requests.of(first + at, size).times(warps)


def _pieces(moved: Partials) -> list[tuple[int, int]]:
    """Where the moves of two neighbours start, and their bytes: one if they fit in it, else one for each field."""
    if 2 * moved.bytes <= PIECE:
        return [(0, 2 * moved.bytes)]
    return [(k * moved.bytes + at, n) for k in range(2) for at, n in moved.places]


def _joined(moved: JoinedPartials, warps: int) -> Iterator[Requests]:
    """Partial results of columns, whose blocks of 8 the lanes share as far as these are even in number (groups.cuh)."""
    blocks, size = moved.length // 8, moved.bytes
    shares = math.gcd(blocks, 8)  # a lane has every so many blocks
    warp, pair, lane = np.ogrid[:warps, : blocks // shares, :LANES]
    column = 8 * (pair * shares + lane // 4 % shares) + 2 * (lane % 4)
    for at, n in _pieces(moved):
        yield Requests.of((warp * moved.length + column) * size + at, n)
    turn, warp, lane = np.ogrid[: -(-moved.length // (LANES * warps)), :warps, :LANES]
    column = (turn * warps + warp) * LANES + lane
    there = column < moved.length
    is_whole = len({*moved.fields}) == 1  # without padding
    for at, n in [(0, size)] if is_whole else moved.places:
        for of in (*range(warps), 0):  # loads of all, and the store of what they make
            yield Requests.of((of * moved.length + column) * size + at, n, there)
    pair, lane = np.ogrid[:blocks, :LANES]
    first = (8 * pair + 2 * (lane % 4)) * size
    last, n = moved.places[-1]
    alone = [(k * size + last, n) for k in range(2)]
    for at, n in _pieces(moved) if len(moved.fields) == 1 else alone:
        yield Requests.of(first + at, n).times(warps)


# -- copies ----------------------------------------------------------------------------------------


def by_elements(rows: int, cols: int, size: int, address: Address) -> Requests:
    """The requests that move a tile element by element in the order of its rows, by the lanes of one warp."""
    element = np.arange(-(-rows * cols // LANES) * LANES).reshape(-1, LANES)
    return Requests.of(address(element // cols, element % cols), size, element < rows * cols)


def by_granules(
    rows: int,
    cols: int,
    size: int,
    address: Address,
    stores: bool,
    alike: bool,
    tensor: Address | None = None,
) -> Iterator[Requests]:
    """The requests of lanes that copy a tile inside a tensor, to either memory (skewed.cuh).

    A row is loaded in pieces, each from two granules. It is stored in granules, and element by element at its ends if
    lanes are alike. tensor: where elements lie in the tensor, if `address` says where they lie in shared memory.
    """
    pieces, row_bytes, shared = cols * size // PIECE, cols * size, tensor is not None
    if not stores:
        row, piece, there = _dealt(rows, pieces)
        at = address(row, piece * (PIECE // size))
        skew = 0 if shared else at % PIECE
        yield Requests.of(at - skew, PIECE, there)
        yield Requests.of(at - skew + PIECE, PIECE, there & (skew > 0))
        return
    if alike:
        row, piece, there = _dealt(rows, pieces)
        skew = (tensor or address)(row, 0) % PIECE
        is_filled = there & ((piece > 0) | (skew == 0))
        if shared:
            for of in (np.maximum(piece - 1, 0), piece):
                yield Requests.of(address(row, of * (PIECE // size)), PIECE, is_filled)
        else:
            yield Requests.of(address(row, 0) - skew + PIECE * piece, PIECE, is_filled)
        for k in range(0, PIECE, pieces * size):
            byte = k + piece * size  # of both ends
            at = np.where(byte < PIECE - skew, byte, row_bytes - PIECE + byte)
            is_end = there & (skew > 0) & (byte < PIECE)
            yield Requests.of(address(row, np.minimum(at, row_bytes - 1) // size), size, is_end)
        return
    row, between, inner = _dealt(rows, pieces - 1)
    end, ends, outer = (x for x in _dealt(2, rows))
    for r, granule, there in ((row, between + 1, inner), (ends, end * pieces, outer)):
        if shared:
            for piece in (granule - 1, granule):
                at = address(r, np.clip(piece, 0, pieces - 1) * (PIECE // size))
                yield Requests.of(at, PIECE, there)
        else:
            start = address(r, 0)
            skew, begin = start % PIECE, PIECE * granule
            first, last = skew - begin, skew + row_bytes - begin
            yield from _parts(start - skew + begin, first, last, size, PIECE, there)


def are_alike(role: Role, tile: SharedTile) -> bool:
    """Whether the pieces of each lane that copies a tile are alike."""
    # Producers and storers that ask for no warps are taken as a whole warpgroup.
    warps = role.copy_warps or 4 if role.is_service else role.warps
    return rows_between(tile, LANES * warps) is not None


def _dealt(rows: int, cols: int) -> tuple[Any, Any, Any]:
    """Rows and columns dealt to the lanes of warps in their order, and which lanes have any."""
    item = np.arange(-(-rows * cols // LANES) * LANES).reshape(-1, LANES)
    there = item < rows * cols
    item = np.where(there, item, 0)
    return item // max(cols, 1), item % max(cols, 1), there


def lines(count: int) -> Requests:
    """`count` contiguous bytes, 128 at a time: swizzling moves them within their line."""
    address = PIECE * np.arange(-(-count // (8 * PIECE)) * 8).reshape(-1, 8)
    return Requests.of(address, PIECE, address < count)
