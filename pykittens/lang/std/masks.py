"""Tiles with a triangle, or the rows or columns on one side, replaced by a value.

Rows and columns count from 0 in the tile; bounds may be run-time ints.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.combining import Operand
from pykittens.ir.values import RegTile
from pykittens.lang.std.operands import Position, check_position, check_together
from pykittens.ops.compare import where
from pykittens.ops.core import composed
from pykittens.ops.creation import col_index, row_index
from pykittens.ops.map import check_tile


@composed
def tril(tile: RegTile, diagonal: Position = 0, fill: Operand = 0) -> RegTile:
    """The tile with `fill` above a diagonal, where column > row + `diagonal`."""
    _check(tile, "diagonal", diagonal, "fill", fill)
    rows, cols = row_index(tile.rows), col_index(tile.cols)
    return where(cols <= rows + diagonal, tile, fill)


@composed
def triu(tile: RegTile, diagonal: Position = 0, fill: Operand = 0) -> RegTile:
    """The tile with `fill` below a diagonal, where column < row + `diagonal`."""
    _check(tile, "diagonal", diagonal, "fill", fill)
    rows, cols = row_index(tile.rows), col_index(tile.cols)
    return where(cols >= rows + diagonal, tile, fill)


@composed
def left_fill(tile: RegTile, col: Position, value: Operand) -> RegTile:
    """The tile with `value` where column < `col`."""
    _check(tile, "col", col, "value", value)
    return where(col_index(tile.cols) >= col, tile, value)


@composed
def right_fill(tile: RegTile, col: Position, value: Operand) -> RegTile:
    """The tile with `value` where column >= `col`."""
    _check(tile, "col", col, "value", value)
    return where(col_index(tile.cols) < col, tile, value)


@composed
def upper_fill(tile: RegTile, row: Position, value: Operand) -> RegTile:
    """The tile with `value` in all rows above `row`."""
    _check(tile, "row", row, "value", value)
    return where(row_index(tile.rows) >= row, tile, value)


@composed
def lower_fill(tile: RegTile, row: Position, value: Operand) -> RegTile:
    """The tile with `value` in row `row` and all rows below it."""
    _check(tile, "row", row, "value", value)
    return where(row_index(tile.rows) < row, tile, value)


def _check(tile: Any, bound: str, position: Any, name: str, value: Any) -> None:
    check_tile("tile", tile)
    check_position(bound, position, tile)
    check_together(tile=tile, **{name: value})
