"""The attention mask: elements outside the columns that a row keeps become -inf."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Mismatch
from pykittens.ir.values import Int, RegTile, RegVector, describe
from pykittens.ops.arguments import check_int32, check_truth
from pykittens.ops.core import op
from pykittens.ops.map import loaded
from pykittens.types.dtypes import int32
from pykittens.types.tiles import RT, Spread


@op()
def mask(
    tile: RegTile,
    row: Int,
    col: Int,
    cols: Int | RegVector | None,
    causal: bool = False,
    offset: Int = 0,
    first: Int | RegVector | None = None,
) -> RegTile:
    """The tile with -inf where column >= cols, where column < first and, if causal, where column > row + offset.

    `row` and `col` are the coordinates of the tile's first element. The tile is of floats. `cols` and `first` are
    numbers, int32 per-row vectors with a number for each row, or None, which bounds nothing.
    """


@mask.type
def _mask_type(
    tile: Any, row: Any, col: Any, cols: Any, causal: Any, offset: Any, first: Any
) -> RT:
    if not isinstance(tile, RegTile) or not tile.dtype.is_float:
        known = isinstance(tile, RegTile)
        raise Mismatch(
            f"`tile` must be a register tile of floats, not {describe(tile)}",
            help="convert it: `tile.to(pk.f32)`" if known else loaded(tile, "tile"),
        )
    for name, x in (("row", row), ("col", col), ("offset", offset)):
        check_int32(name, x)
    check_truth("causal", causal)
    _check_bound("cols", cols, tile)
    _check_bound("first", first, tile)
    return tile.type


def _check_bound(name: str, bound: Any, tile: RegTile) -> None:
    """Raise unless a bound is None, an int32, or an int32 vector with an element for each row of the tile."""
    if bound is None:
        return
    if not isinstance(bound, RegVector):
        check_int32(name, bound)
        return
    kind = bound.type
    if bound.dtype != int32 or kind.spread is not Spread.PER_ROW or kind.length != tile.rows:
        wanted = f"an int32, or a per-row int32 vector of {tile.rows} elements"
        raise Mismatch(f"`{name}` must be {wanted}, not {describe(bound)}")


@mask.numpy
def _mask_numpy(
    tile: Any, row: int, col: int, cols: Any, causal: bool, offset: int, first: Any
) -> Any:
    rows_, cols_ = np.ogrid[row : row + tile.shape[0], col : col + tile.shape[1]]
    stays = (rows_ == rows_) & (cols_ == cols_) if cols is None else cols_ < cols
    if first is not None:
        stays = stays & (cols_ >= first)
    if causal:
        stays = stays & (cols_ <= rows_ + offset)
    return np.where(stays, tile, tile.dtype.type(-np.inf))
