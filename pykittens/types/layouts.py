"""Layouts: the lane and register, or the byte of shared memory, that holds each element.

All code that needs a lane index is derived from these pure functions. They take integers or NumPy arrays of
integers. Sources: PTX ISA, sections "Register Fragments for wgmma.mma_async.m64nNk16", "Shared Memory Matrix
Layout" and "Swizzling Modes" of the tensor copy.

A register tile of R x C over W warps is cut into blocks of 16 rows, distributed round-robin: block b of warp w
holds the 16 rows from (b W + w) 16 on. Inside a block the layout is that of a matrix product's accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Index = Any  # an int or a NumPy array of ints

LANES = 32
BLOCK_ROWS = 16


# -- registers: tiles ------------------------------------------------------------------------------


def tile_registers(rows: int, cols: int, warps: int) -> int:
    """Elements of a tile per lane."""
    return rows * cols // (warps * LANES)


def tile_element(
    lane: Index, register: Index, warp: Index, cols: int, warps: int
) -> tuple[Index, Index]:
    """Row and column of the element that a lane of a warp holds in a register."""
    block, inner = register // (cols // 2), register % (cols // 2)
    row = (block * warps + warp) * BLOCK_ROWS + lane // 4 + 8 * (inner // 2 % 2)
    col = 8 * (inner // 4) + 2 * (lane % 4) + inner % 2
    return row, col


def halves_element(
    lane: Index, chunk: Index, warp: Index, cols: int, warps: int
) -> tuple[Index, Index]:
    """Row and column of the first of the four 16-bit neighbours that a lane moves between a tensor and a tile.

    A lane holds two neighbours of eight columns, so four lanes hold 16 bytes of a row. To move whole sectors of 32
    bytes, an even lane moves four neighbours of the first eight of 16 columns, and the lane after it of the second.
    """
    row, col = tile_element(lane - lane % 2, chunk // 2 * 8 + chunk % 2 * 2, warp, cols, warps)
    return row, col + lane % 2 * 8


# -- registers: vectors ----------------------------------------------------------------------------


def row_vector_registers(length: int, warps: int) -> int:
    """Values of a per-row vector per lane; the four lanes of a row hold the same values."""
    return 2 * length // (warps * BLOCK_ROWS)


def row_vector_element(lane: Index, register: Index, warp: Index, warps: int) -> Index:
    """The row whose value a lane of a warp holds in a register of a per-row vector."""
    return (register // 2 * warps + warp) * BLOCK_ROWS + lane // 4 + 8 * (register % 2)


def col_vector_registers(length: int) -> int:
    """Values of a per-column vector per lane; all warps hold the same values."""
    return length // 4


def col_vector_element(lane: Index, register: Index) -> Index:
    """The column whose value a lane holds in a register of a per-column vector."""
    return 8 * (register // 2) + 2 * (lane % 4) + register % 2


def plain_chunk(length: int, warps: int) -> int:
    """Neighbouring elements of a plain vector in one lane: 2, 4 or 8, so that 16-bit elements are stored in pairs.

    The number does not depend on the dtype, so a conversion moves nothing between lanes. 8 elements are one access
    where 4 are two, unless they make the vector longer by a sixth or more: padding costs as much as other elements.
    """
    threads = warps * LANES
    chunk = 2
    while chunk < 8 and chunk * threads < length:
        chunk *= 2
    if chunk == 8:
        registers, fewer = (-(-length // (size * threads)) * size for size in (8, 4))
        if 6 * (registers - fewer) >= fewer:
            return 4
    return chunk


def plain_registers(length: int, warps: int) -> int:
    """Elements of a plain vector per lane, including padding past its end."""
    chunk = plain_chunk(length, warps)
    row = chunk * warps * LANES  # one chunk of each lane
    return -(-length // row) * chunk


def chunk_element(thread: Index, register: Index, chunk: int, warps: int) -> Index:
    """The element that a thread of the group holds in a register of a vector dealt out in chunks of neighbours.

    In a plain vector, its length and above are padding.
    """
    return (register // chunk * warps * LANES + thread) * chunk + register % chunk


# Neighbouring elements in one lane of a vector in lane order: 16 bytes of f32, which lanes move side by side.
LANE_CHUNK = 4


def lane_order_of_tile(rows: int, cols: int, warps: int) -> tuple[Index, Index]:
    """Row and column of each element of a tile in the order in which the lanes of a group hold it."""
    position = np.arange(rows * cols)
    chunk, thread = (
        position // LANE_CHUNK // (warps * LANES),
        position // LANE_CHUNK % (warps * LANES),
    )
    register = chunk * LANE_CHUNK + position % LANE_CHUNK
    return tile_element(thread % LANES, register, thread // LANES, cols, warps)


def part_is_aligned(length: int, warps: int) -> bool:
    """Whether each part of `length` elements of an aligned row starts at a multiple of a chunk of a plain vector."""
    return length % plain_chunk(length, warps) == 0


# -- shared memory ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedLayout:
    """The layout of a shared tile: panels of `swizzle` bytes per row, one after another, each swizzled.

    `panel_rows` are the rows of the allocation; a view of some rows has the panels of its owner.
    """

    swizzle: int
    panel_rows: int
    itemsize: int

    @property
    def panel_cols(self) -> int:
        """Columns of one panel."""
        return self.swizzle // self.itemsize

    @property
    def panel_bytes(self) -> int:
        """Distance in bytes between panels."""
        return self.panel_rows * self.swizzle

    @property
    def row_group_bytes(self) -> int:
        """Bytes of eight rows of a panel, which are the stride of a matrix descriptor."""
        return 8 * self.swizzle

    def offset(self, row: Index, col: Index) -> Index:
        """Byte offset of an element from the start of the allocation."""
        byte = col * self.itemsize
        linear = byte // self.swizzle * self.panel_bytes + row * self.swizzle + byte % self.swizzle
        return swizzled(linear, self.swizzle)


def swizzle_for(cols: int, itemsize: int) -> int:
    """The widest swizzle (128, 64 or 32 bytes) that divides a row; 16 bytes mean no swizzle."""
    return next(s for s in (128, 64, 32, 16) if cols * itemsize % s == 0)


def swizzled(address: Index, swizzle: int) -> Index:
    """The address to which the copy engine writes the byte of the unswizzled `address`.

    Bits from bit 4 on are XORed with the number of the 128-byte line: 3 bits for 128 bytes, 2 for 64, 1 for 32.
    """
    return address ^ (((address >> 7) & (swizzle // 16 - 1)) << 4)
