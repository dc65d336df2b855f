"""Tiles as vectors in the order in which the lanes of the group hold their elements, and back."""

from __future__ import annotations

from pykittens.ir.build import current
from pykittens.ir.values import RegTile, RegVector
from pykittens.ops import lane_order as ops
from pykittens.ops.core import composed


@composed
def in_lane_order(tile: RegTile) -> RegVector:
    """The elements of a tile as a vector in lane order, the order in which the lanes of the group hold them.

    Nothing is moved. The vector has the spread pk.lane_order: lanes store and load 16 bytes of f32 at a time, without
    bank conflicts. The order depends on the sides of the tile and on the warps of the group.
    """
    return ops.in_lane_order(tile, warps=current("in_lane_order").warps)


@composed
def from_lane_order(vector: RegVector, rows: int, cols: int) -> RegTile:
    """The tile of rows x cols whose elements in lane order are a vector: the inverse of `pk.in_lane_order`.

    The vector may come from memory, `pk.load(x, cols=rows * cols, spread=pk.lane_order)`, if a group of as many warps
    has stored it from a tile of these sides.
    """
    return ops.from_lane_order(vector, rows, cols, warps=current("from_lane_order").warps)
