"""The lane and register of each element of the operands of a warp's product, 16 x k by k x 8.

An instruction takes 32 bytes of depth: 16 elements of 16 bits, 32 of 8 bits or 8 of 32 bits. A register holds as many
neighbours along the depth as fit. The accumulator has the layout of a tile of 16 x 8 (`layouts.tile_element`). The
functions take integers or arrays. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16", "...k32" and "...k8", and
"ldmatrix".
"""

from __future__ import annotations

from pykittens.types.layouts import Index

DEPTH_BYTES = 32
A_REGISTERS, B_REGISTERS = 4, 2


def depth_of(itemsize: int) -> int:
    """The depth of one instruction, in elements."""
    return DEPTH_BYTES // itemsize


def a_element(lane: Index, register: Index, slot: Index, itemsize: int) -> tuple[Index, Index]:
    """Row and depth of the element of A in a slot of a lane's register; slots count from the low bits."""
    each = 4 // itemsize
    return lane // 4 + 8 * (register % 2), each * (lane % 4) + slot + 4 * each * (register // 2)


def b_element(lane: Index, register: Index, slot: Index, itemsize: int) -> tuple[Index, Index]:
    """Depth and column of the element of B in a slot of a lane's register; slots count from the low bits."""
    each = 4 // itemsize
    return each * (lane % 4) + slot + 4 * each * register, lane // 4


def tile_depth(depth: Index, itemsize: int) -> Index:
    """The column of a register tile at a depth of the instruction that reads the tile's registers as A.

    One lane holds two neighbours of a row whatever their size, so elements of 8 and 32 bits are permuted. The sum over
    the depth is the same if B is permuted alike.
    """
    match itemsize:
        case 1:
            half, lane, slot = depth // 16, depth // 4 % 4, depth % 4
            return 16 * half + 8 * (slot // 2) + 2 * lane + slot % 2
        case 4:
            return 2 * (depth % 4) + depth // 4
        case _:
            return depth


def matrix_row(lane: Index, along: Index) -> tuple[Index, Index]:
    """The row and 16-byte piece whose address a lane gives to a load of four matrices, of 16 rows by two pieces.

    along: 1 if the second matrix is the second piece of the same rows, 0 if it is in the next rows.
    """
    first, second = lane // 8 % 2, lane // 16
    row, piece = (second, first) if along else (first, second)
    return lane % 8 + 8 * row, piece
