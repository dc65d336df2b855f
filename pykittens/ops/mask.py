"""The attention mask: elements outside the matrix or above its diagonal become -inf."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Mismatch
from pykittens.ir.values import Int, RegTile, describe
from pykittens.ops.arguments import check_int32, check_truth
from pykittens.ops.core import op
from pykittens.ops.map import loaded
from pykittens.types.tiles import RT


@op()
def mask(
    tile: RegTile, row: Int, col: Int, cols: Int, causal: bool = False, offset: Int = 0
) -> RegTile:
    """The tile with -inf where column >= cols and, if causal, where column > row + offset.

    `row` and `col` are the coordinates of the tile's first element. The tile is of floats.
    """


@mask.type
def _mask_type(tile: Any, row: Any, col: Any, cols: Any, causal: Any, offset: Any) -> RT:
    if not isinstance(tile, RegTile) or not tile.dtype.is_float:
        known = isinstance(tile, RegTile)
        raise Mismatch(
            f"`tile` must be a register tile of floats, not {describe(tile)}",
            help="convert it: `tile.to(pk.f32)`" if known else loaded(tile, "tile"),
        )
    for name, x in (("row", row), ("col", col), ("cols", cols), ("offset", offset)):
        check_int32(name, x)
    check_truth("causal", causal)
    return tile.type


@mask.numpy
def _mask_numpy(tile: Any, row: int, col: int, cols: int, causal: bool, offset: int) -> Any:
    rows_, cols_ = np.ogrid[row : row + tile.shape[0], col : col + tile.shape[1]]
    stays = cols_ < cols
    if causal:
        stays = stays & (cols_ <= rows_ + offset)
    return np.where(stays, tile, tile.dtype.type(-np.inf))
