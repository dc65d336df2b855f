"""Which addresses the lanes of a group touch, instruction by instruction: the lowerings of sm_90a on integers.

All follows from types/layouts.py and types/fragments.py. Which move has which pattern:

- shared tile and registers: of 16-bit elements four 8x8 matrices, ldmatrix and stmatrix (`matrices`), of others two
  neighbours (`pairs`), one where it is moved transposed (`elements`);
- tensor and registers, shared vector and registers: chunks of neighbours, up to 16 bytes (`chunk_moves`);
- shared operands of single warps' products: 16 rows of 32 bytes, ldmatrix, or elements where no load of matrices
  brings them to their lanes (`left_fragments`, `right_fragments`);
- shared operands of warpgroups' products: 8 rows of 16 bytes (`core_matrices`);
- copies: by the engine lines of 128 bytes (`lines`); those it does not reach element by element, by one warp
  (`by_elements`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.types.dtypes import DType
from pykittens.types.fragments import (
    A_REGISTERS,
    B_REGISTERS,
    DEPTH_BYTES,
    a_element,
    b_element,
    depth_of,
    matrix_row,
    tile_depth,
)
from pykittens.types.layouts import (
    BLOCK_ROWS,
    LANES,
    col_vector_element,
    col_vector_registers,
    plain_chunk,
    plain_element,
    plain_registers,
    row_vector_element,
    row_vector_registers,
    tile_element,
    tile_registers,
)
from pykittens.types.tiles import RT, RV, ST, Spread

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
Address = Callable[[Any, Any], Any]  # the byte address of the element in a row and a column

NOWHERE = -1  # the address of a lane that takes no part
PIECE = 16  # bytes: the most that a lane moves at once, and a row of a matrix


@dataclass(frozen=True, eq=False)
class Requests:
    """Instructions that move `size` bytes a lane: the address of each lane, instructions by lanes."""

    addresses: Numbers
    size: int

    @staticmethod
    def of(addresses: Any, size: int, present: Any = True) -> Requests:
        """The instructions whose lanes are the last axis, those of lanes that are not present left out."""
        whole = np.where(present, addresses, NOWHERE).astype(np.int64)
        rows = whole.reshape(-1, whole.shape[-1])
        return Requests(rows[(rows != NOWHERE).any(axis=1)], size)

    def times(self, count: int) -> Requests:
        """The same instructions so many times."""
        return Requests(np.tile(self.addresses, (count, 1)), self.size)


def in_order(numbers: Numbers) -> tuple[Numbers, Truths]:
    """Each row in ascending order, and where in it a number other than NOWHERE stands for the first time."""
    ordered: Numbers = np.sort(numbers, axis=1)
    first: Truths = ordered != NOWHERE
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered, first


# -- shared tiles and registers --------------------------------------------------------------------


def pairs(tile: ST, warps: int) -> Requests:
    """Two neighbours of a row at once."""
    count = tile_registers(tile.rows, tile.cols, warps)
    warp, register, lane = np.ogrid[:warps, :count:2, :LANES]
    row, col = tile_element(lane, register, warp, tile.cols, warps)
    return Requests.of(tile.layout.offset(row, col), 2 * tile.dtype.bytes)


def elements(tile: ST, warps: int) -> Requests:
    """One element at once, of the transpose of a tile."""
    warp, register, lane = np.ogrid[:warps, : tile_registers(tile.cols, tile.rows, warps), :LANES]
    row, col = tile_element(lane, register, warp, tile.rows, warps)
    return Requests.of(tile.layout.offset(col, row), tile.dtype.bytes)


def matrices(tile: ST, warps: int, transposed: bool = False) -> Requests:
    """Four 8x8 matrices of 16-bit elements at once, 16 rows by 16 columns: a row of 16 bytes a lane."""
    if transposed:
        deep = tile.rows // 16
        count = tile.cols // (BLOCK_ROWS * warps) * deep
        warp, turn, lane = np.ogrid[:warps, :count, :LANES]
        row, piece = matrix_row(lane, 1)
        block = turn // deep * warps + warp
        return Requests.of(
            tile.layout.offset(row + 16 * (turn % deep), 8 * piece + BLOCK_ROWS * block), PIECE
        )
    across = tile.cols // 16
    count = tile.rows // (BLOCK_ROWS * warps) * across
    warp, turn, lane = np.ogrid[:warps, :count, :LANES]
    row, piece = matrix_row(lane, 0)
    block = turn // across * warps + warp
    return Requests.of(
        tile.layout.offset(row + BLOCK_ROWS * block, 8 * piece + 16 * (turn % across)), PIECE
    )


# -- shared operands of products -------------------------------------------------------------------


def left_fragments(tile: ST, across: bool) -> Requests:
    """All of an `a` once. across: its depth goes down the rows of memory."""
    if not across or tile.dtype.bits == 16:
        return _fragment_matrices(tile, across)
    size, depth = tile.dtype.bytes, depth_of(tile.dtype.bytes)
    step, block, register, part, lane = np.ogrid[
        : tile.rows // depth, : tile.cols // BLOCK_ROWS, :A_REGISTERS, : 4 // size, :LANES
    ]
    row, at = a_element(lane, register, part, size)
    return Requests.of(tile.layout.offset(at + depth * step, row + BLOCK_ROWS * block), size)


def right_fragments(tile: ST, across: bool, reordered: bool) -> Requests:
    """All of a `b` once. across: its depth goes down the rows of memory.

    reordered: its depth comes in the order of a register tile's columns, `fragments.tile_depth`.
    """
    if tile.dtype.bits == 16 or not (across or reordered):
        return _fragment_matrices(tile, not across)
    size, depth = tile.dtype.bytes, depth_of(tile.dtype.bytes)
    deep, wide = (tile.rows, tile.cols) if across else (tile.cols, tile.rows)
    step, block, register, part, lane = np.ogrid[
        : deep // depth, : wide // 8, :B_REGISTERS, : 4 // size, :LANES
    ]
    at, col = b_element(lane, register, part, size)
    at = (tile_depth(at, size) if reordered else at) + depth * step
    col = col + 8 * block
    return Requests.of(tile.layout.offset(*((at, col) if across else (col, at))), size)


def _fragment_matrices(tile: ST, along: bool) -> Requests:
    """16 rows of 32 bytes at a time. along: see `fragments.matrix_row`."""
    size = tile.dtype.bytes
    down, right, lane = np.ogrid[
        : tile.rows // BLOCK_ROWS, : tile.cols * size // DEPTH_BYTES, :LANES
    ]
    row, piece = matrix_row(lane, int(along))
    col = (right * DEPTH_BYTES + piece * PIECE) // size
    return Requests.of(tile.layout.offset(row + BLOCK_ROWS * down, col), PIECE)


def core_matrices(tile: ST) -> Requests:
    """All of an operand of a warpgroup's product once, 8 rows of 16 bytes at a time."""
    size = tile.dtype.bytes
    down, right, row = np.ogrid[: tile.rows // 8, : tile.cols * size // PIECE, :8]
    return Requests.of(tile.layout.offset(8 * down + row, right * (PIECE // size)), PIECE)


# -- values held in registers ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """Where the chunks of `size` neighbours begin that the lanes of a group hold: warps by chunks by lanes.

    count: elements of a chunk that are there, fewer than `size` at the end of a plain vector. owner: the lanes that
    store, where several hold the same.
    """

    row: Any
    col: Any
    size: int
    count: Any
    owner: Any


def held(type_: RT | RV, warps: int, transposed: bool = False) -> Held:
    """The chunks of a tile or vector; of a tile that lies transposed in memory, its single elements."""
    warp, _, lane = np.ogrid[:warps, :1, :LANES]
    match type_:
        case RT(rows=rows, cols=cols) if transposed:
            register = np.arange(tile_registers(rows, cols, warps))[:, None]
            row, col = tile_element(lane, register, warp, cols, warps)
            return Held(col, row, 1, 1, True)
        case RT(rows=rows, cols=cols):
            register = np.arange(0, tile_registers(rows, cols, warps), 2)[:, None]
            row, col = tile_element(lane, register, warp, cols, warps)
            return Held(row, col, 2, 2, True)
        case RV(length=length, spread=Spread.PER_ROW):
            register = np.arange(row_vector_registers(length, warps))[:, None]
            col = row_vector_element(lane, register, warp, warps)
            return Held(0, col, 1, 1, lane % 4 == 0)
        case RV(length=length, spread=Spread.PER_COLUMN):
            register = np.arange(0, col_vector_registers(length), 2)[:, None]
            col = col_vector_element(lane, register) + 0 * warp
            return Held(0, col, 2, 2, (warp == 0) & (lane < 4))
        case RV(length=length):
            size = plain_chunk(length, warps)
            register = np.arange(0, plain_registers(length, warps), size)[:, None]
            col = plain_element(warp * LANES + lane, register, length, warps)
            return Held(0, col, size, np.clip(length - col, 0, size), True)


def steps(dtype: DType, size: int, aligned: bool, op: str | None = None) -> tuple[int, int]:
    """Elements that one instruction moves of a whole chunk, and of one that is not.

    aligned: the address of a chunk is a multiple of its size. op: what memory is combined with.
    """
    if not aligned or size == 1 or dtype.kind == "bool":
        return 1, 1
    if op is not None:
        # PTX ISA, "red": of these dtypes two neighbours are added at once.
        count = 2 if op == "add" and dtype.name in ("f32", "f16", "bf16") else 1
        return count, count
    return min(size, PIECE // dtype.bytes), 2 if dtype.bits == 8 else 1


def chunk_moves(
    at: Held, dtype: DType, address: Address, aligned: bool, stores: bool, op: str | None = None
) -> Iterator[Requests]:
    """A value between registers and memory, in chunks."""
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
    """Some lanes' chunks, `step` elements at a time and a last one by itself, as far as they are there."""
    for k in range(0, at.size, step):
        place, left = address(at.row, at.col + k), at.count - k
        yield Requests.of(place, step * dtype.bytes, lanes & (left >= step))
        if step > 1 and np.any(left == 1):
            yield Requests.of(place, dtype.bytes, lanes & (left == 1))


# -- copies --------------------------------------------------------------------------------------


def by_elements(rows: int, cols: int, size: int, address: Address) -> Requests:
    """A tile element by element in the order of its rows, by the lanes of one warp."""
    place = np.arange(-(-rows * cols // LANES) * LANES).reshape(-1, LANES)
    return Requests.of(address(place // cols, place % cols), size, place < rows * cols)


def lines(count: int) -> Requests:
    """So many bytes one behind the other, 128 at a time: swizzling moves them within their line."""
    address = np.arange(0, count, PIECE)
    whole = np.full(-(-len(address) // 8) * 8, NOWHERE)
    whole[: len(address)] = address
    return Requests.of(whole.reshape(-1, 8), PIECE)
