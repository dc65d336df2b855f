"""Functions that replace a row or column of a tile, or convert a diagonal to a vector and back."""

from __future__ import annotations

from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, RegVector
from pykittens.lang.std.operands import Position, check_position, check_together, check_vector
from pykittens.ops.compare import where
from pykittens.ops.core import composed
from pykittens.ops.creation import check_cols, check_rows, col_index, row_index
from pykittens.ops.map import check_tile
from pykittens.ops.shape import column
from pykittens.types.tiles import per_column, per_row


@composed
def with_column(tile: RegTile, j: Position, vector: RegVector) -> RegTile:
    """The tile with a per-row vector in place of column j."""
    check_tile("tile", tile)
    check_position("j", j, tile)
    check_together(tile=tile, vector=vector)
    return where(col_index(tile.cols) == j, vector, tile)


@composed
def with_row(tile: RegTile, i: Position, vector: RegVector) -> RegTile:
    """The tile with a per-column vector in place of row i."""
    check_tile("tile", tile)
    check_position("i", i, tile)
    check_together(tile=tile, vector=vector)
    return where(row_index(tile.rows) == i, vector, tile)


@composed
def diagonal(tile: RegTile) -> RegVector:
    """The elements (i, i) of a tile with at most as many rows as columns, as a per-row vector."""
    check_tile("tile", tile)
    if tile.rows > tile.cols:
        raise Mismatch(
            f"`tile` must have at most as many rows as columns, {tile.cols}, not {tile.rows}",
            help="use the first rows, `tile[:n, :]`",
        )
    return column(tile, row_index(tile.rows))


@composed
def diagonal_matrix(vector: RegVector) -> RegTile:
    """The tile with a per-row or per-column vector on its diagonal and zeros elsewhere."""
    check_vector("vector", vector, per_row, per_column)
    check_rows("vector.length", vector.length)
    check_cols("vector.length", vector.length)
    return where(row_index(vector.length) == col_index(vector.length), vector, 0)
