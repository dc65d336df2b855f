"""Tiles as vectors in the order in which lanes hold their elements, which moves nothing.

A lane of a group holds four neighbours of such a vector at a time, and moves them at once, where of a row of a tile it
holds two. So a sum that passes through memory, or a tile that another kernel continues, takes this order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, RegVector, describe
from pykittens.ops.core import op
from pykittens.ops.creation import check_vector_length, tile_type
from pykittens.ops.map import check_tile, loaded
from pykittens.types.layouts import lane_order_of_tile
from pykittens.types.tiles import RT, RV, Spread


@op(shown="in_lane_order")
def in_lane_order(tile: RegTile, *, warps: int) -> RegVector:
    """`pk.in_lane_order(tile)`: the elements of a tile as a vector in the order in which lanes hold them."""


@in_lane_order.type
def _in_lane_order_type(tile: Any, warps: int) -> RV:
    check_tile("tile", tile)
    length = tile.rows * tile.cols
    check_vector_length("tile.rows * tile.cols", length)
    return RV(tile.dtype, length, Spread.LANE_ORDER)


@in_lane_order.numpy
def _in_lane_order_numpy(tile: Any, warps: int) -> Any:
    rows, cols = tile.shape
    return tile[lane_order_of_tile(rows, cols, warps)]


@op(shown="from_lane_order")
def from_lane_order(vector: RegVector, rows: int, cols: int, *, warps: int) -> RegTile:
    """`pk.from_lane_order(vector, rows, cols)`: the tile whose elements in the order of lanes are a vector."""


@from_lane_order.type
def _from_lane_order_type(vector: Any, rows: Any, cols: Any, warps: int) -> RT:
    if not isinstance(vector, RegVector) or vector.type.spread is not Spread.LANE_ORDER:
        help = "pk.load(x, cols=n, spread=pk.lane_order) loads one"
        raise Mismatch(
            f"`vector` must be a vector in lane order, not {describe(vector)}",
            help=loaded(vector, "vector") or help,
        )
    found = tile_type(vector.dtype, rows, cols)
    if rows * cols != vector.length:
        raise Mismatch(
            f"`rows` x `cols` must be the {vector.length} elements of `vector`, not {rows} x {cols}"
        )
    return found


@from_lane_order.numpy
def _from_lane_order_numpy(vector: Any, rows: int, cols: int, warps: int) -> Any:
    tile = np.empty((rows, cols), vector.dtype)
    tile[lane_order_of_tile(rows, cols, warps)] = vector
    return tile
