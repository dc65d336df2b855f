"""Rotations of pairs of columns, as in rotary position embeddings."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, describe
from pykittens.lang.std.operands import check_tile, check_together
from pykittens.ops.compare import where
from pykittens.ops.core import composed
from pykittens.ops.creation import col_index
from pykittens.ops.map import NUMBER
from pykittens.ops.shape import concat, swap_pairs


@composed
def rotate_pairs(x: RegTile) -> Any:
    """Each pair of neighbouring columns (x0, x1) as (-x1, x0)."""
    check_tile("x", x, NUMBER)
    swapped = swap_pairs(x)
    return where(col_index(x.cols) & 1 == 0, -swapped, swapped)


@composed
def rotate_half(x: RegTile) -> Any:
    """The two halves of the columns (x1, x2) as (-x2, x1)."""
    check_tile("x", x, NUMBER)
    _check_halves(x)
    half = x.cols // 2
    return concat(-x[:, half:], x[:, :half], axis=1)


@composed
def rotary(x: RegTile, cos: Any, sin: Any, interleaved: bool = False) -> Any:
    """x * cos + rotated * sin: `rotate_pairs` of x where interleaved, else `rotate_half`."""
    check_tile("x", x, NUMBER)
    check_together(x=x, cos=cos, sin=sin)
    if not isinstance(interleaved, bool):
        raise Mismatch(f"`interleaved` must be a compile-time bool, not {describe(interleaved)}")
    if not interleaved:
        _check_halves(x)
    return x * cos + (rotate_pairs(x) if interleaved else rotate_half(x)) * sin


def _check_halves(x: RegTile) -> None:
    if x.cols % 32:
        raise Mismatch(
            f"`x` must have a multiple of 32 columns, so that its halves are tiles, not {x.cols}"
        )
