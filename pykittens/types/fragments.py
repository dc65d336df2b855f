"""The lane and register of each element of the operands of a warp's product, 16 x k by k x 8.

An instruction takes 32 bytes of depth: 16 elements of 16 bits, 32 of 8, 8 of 32. A register holds as many neighbours
along the depth as fit. The accumulator lies like a tile of 16 x 8 (`layouts.tile_element`). Functions work on integers
and on arrays alike. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16", "...k32" and "...k8", and "ldmatrix".
"""

from __future__ import annotations

from pykittens.types.layouts import Index

DEPTH_BYTES = 32
A_REGISTERS, B_REGISTERS = 4, 2


def depth_of(itemsize: int) -> int:
    """Elements of depth that one instruction takes."""
    return DEPTH_BYTES // itemsize


def a_element(lane: Index, register: Index, part: Index, itemsize: int) -> tuple[Index, Index]:
    """Row and depth of the element of A in a part of a lane's register."""
    each = 4 // itemsize
    return lane // 4 + 8 * (register % 2), each * (lane % 4) + part + 4 * each * (register // 2)


def b_element(lane: Index, register: Index, part: Index, itemsize: int) -> tuple[Index, Index]:
    """Depth and column of the element of B in a part of a lane's register."""
    each = 4 // itemsize
    return each * (lane % 4) + part + 4 * each * register, lane // 4


def tile_depth(depth: Index, itemsize: int) -> Index:
    """The column of a register tile that stands at a depth of the instruction that takes its registers for A.

    Two neighbours of a row lie in one lane whatever their size, so elements that are not of 16 bits come in another
    order. A sum over the depth does not mind, if B comes in the same.
    """
    match itemsize:
        case 1:
            half, lane, part = depth // 16, depth // 4 % 4, depth % 4
            return 16 * half + 8 * (part // 2) + 2 * lane + part % 2
        case 4:
            return 2 * (depth % 4) + depth // 4
        case _:
            return depth


def matrix_row(lane: Index, along: Index) -> tuple[Index, Index]:
    """The row of 16 bytes whose address a lane gives to a load of four matrices, of 16 rows by two pieces.

    along: 1 where the second matrix lies in the second piece of the same rows, 0 where it lies in the next rows.
    """
    first, second = lane // 8 % 2, lane // 16
    row, piece = (second, first) if along else (first, second)
    return lane % 8 + 8 * row, piece
