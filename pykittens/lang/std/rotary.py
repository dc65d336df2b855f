"""Rotations of pairs of columns, as in rotary position embeddings."""

from __future__ import annotations

from pykittens.ir.combining import Operand
from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile
from pykittens.lang.std.operands import check_tile_of, check_together
from pykittens.ops.arguments import check_truth
from pykittens.ops.compare import where
from pykittens.ops.core import composed
from pykittens.ops.creation import col_index
from pykittens.ops.map import NUMBER
from pykittens.ops.shape import concat, swap_pairs


@composed
def rotate_pairs(x: RegTile) -> RegTile:
    """The tile with each pair of neighbouring columns (x0, x1) replaced by (-x1, x0)."""
    check_tile_of(NUMBER, "x", x)
    swapped = swap_pairs(x)
    return where(col_index(x.cols) & 1 == 0, -swapped, swapped)


@composed
def rotate_half(x: RegTile) -> RegTile:
    """The tile with the two halves of its columns (x1, x2) replaced by (-x2, x1)."""
    check_tile_of(NUMBER, "x", x)
    _check_halves(x)
    half = x.cols // 2
    return concat(-x[:, half:], x[:, :half], axis=1)


@composed
def rotary(x: RegTile, cos: Operand, sin: Operand, interleaved: bool = False) -> RegTile:
    """x * cos + rotated * sin, where rotated is `rotate_pairs(x)` if interleaved, else `rotate_half(x)`."""
    check_tile_of(NUMBER, "x", x)
    check_together(x=x, cos=cos, sin=sin)
    check_truth("interleaved", interleaved)
    if not interleaved:
        _check_halves(x)
    return x * cos + (rotate_pairs(x) if interleaved else rotate_half(x)) * sin


def _check_halves(x: RegTile) -> None:
    if x.cols % 32:
        raise Mismatch(
            f"`x` must have a multiple of 32 columns, so that its halves are tiles, not {x.cols}"
        )
