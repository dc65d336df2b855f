"""Copies of matrices whose rows start at lines of 128 bytes: the copy engine reaches them, and reads no line twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

# Warps of a block, each of which has one row: a warp waits for each of its loads, and other warps hide that.
WARPS = 8
WIDEST = 1024  # bytes of a row that a warp copies


@pk.kernel
def copy_to_lines(*matrices, cols):  # type: ignore[no-untyped-def]
    """Copy a matrix, or a batch, to the one after it, for each pair; a warp copies `cols` elements of a row."""
    pk.overlap()
    pairs = list(zip(matrices[::2], matrices[1::2], strict=True))
    counts = [_pieces(x, cols) for x, _ in pairs]
    (piece,) = pk.grid(sum(counts))
    with pk.warps(WARPS) as w:
        for (x, to), count in zip(pairs, counts, strict=True):
            if (piece >= 0) & (piece < count):
                _copy(x, to, piece, w, cols)
            piece = piece - count


@pk.function
def _pieces(x: Any, cols: int) -> Any:
    """The number of blocks that copy a matrix or a batch."""
    count = pk.cdiv(x.rows, WARPS) * pk.cdiv(x.cols, cols)
    for extent in x.shape[:-2]:
        count = count * extent
    return count


@pk.function
def _copy(x: Any, to: Any, piece: Any, w: Any, cols: int) -> None:
    """Copy the rows and columns of a block. Neighbours in the grid copy neighbours in memory."""
    *lead, height, width = x.shape
    index: tuple[Any, ...] = ()
    for extent in (pk.cdiv(width, cols), pk.cdiv(height, WARPS), *lead[::-1]):
        index, piece = (piece % extent, *index), piece // extent
    *batch, row, col = index
    place = (*batch, row * WARPS + w, col)
    pk.store(to[place], pk.load(x[place], cols=cols))


def in_lines(arrays: Arrays, names: Sequence[str]) -> tuple[dict[str, Scratch], list[PlanStep]]:
    """Memory for copies of these arrays, with "_lines" after their names, and the launch that copies them.

    An empty array is not copied.
    """
    found = {name: arrays.views[name] for name in names if 0 not in arrays.views[name].shape}
    if not found:
        return {}, []
    scratch = {
        f"{name}_lines": Scratch(tuple(x.shape), dtype=arrays.found[name].dtype, in_lines=True)
        for name, x in found.items()
    }
    widest = max(x.shape[-1] for x in found.values())
    most = WIDEST // max(arrays.found[name].itemsize for name in found)
    cols = min(max(1 << (widest - 1).bit_length(), 64), most)
    pairs = [name for pair in zip(found, scratch, strict=True) for name in pair]
    return scratch, [PlanStep(copy_to_lines, tuple(pairs), {"cols": cols})]
