"""Views of parts of shared tiles and vectors, which copy nothing."""

from __future__ import annotations

from typing import Any

from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch
from pykittens.ir.values import Int, SharedRow, SharedTile, SharedVector, describe
from pykittens.ops.arguments import check_index
from pykittens.ops.core import op
from pykittens.types.tiles import SR, ST, SV


@op(operator="view", shown="tiles")
def view(tile: SharedTile, i: Int, j: Int, *, rows: int, cols: int) -> SharedTile:
    """`tile.tiles(rows, cols)[i, j]`: part (i, j) of a shared tile cut into parts of rows x cols. No copy."""


@view.type
def _view_type(tile: SharedTile, i: Any, j: Any, rows: int, cols: int) -> ST:
    check_index("i", i, tile.rows // rows, "a row index")
    check_index("j", j, tile.cols // cols, "a column index")
    layout = tile.type.layout
    if rows % 8 and rows != tile.rows:
        raise Mismatch(f"`rows` must be a multiple of 8, not {rows}")
    whole = cols == tile.cols or not (cols % layout.panel_cols and layout.panel_cols % cols)
    # The first columns may end inside of a panel.
    if not whole and not (is_int(j) and j == 0 and cols % 16 == 0):
        raise Mismatch(
            f"`cols` must divide or be a multiple of {layout.panel_cols}, the width of a swizzled panel, not {cols}"
        )
    return tile.type.view(rows, cols)


@view.numpy
def _view_numpy(tile: Any, i: int, j: int, rows: int, cols: int) -> Any:
    return tile.part(i, j, rows, cols)


@op(operator="shared_row", shown="row")
def shared_row(tile: SharedTile, i: Int) -> SharedRow:
    """`tile.row(i)`: row i of a shared tile, which pk.load and pk.store move as a plain vector. No copy."""


@shared_row.type
def _row_type(tile: SharedTile, i: Any) -> SR:
    check_index("i", i, tile.rows, "a row index")
    return tile.type.row()


@shared_row.numpy
def _row_numpy(tile: Any, i: int) -> Any:
    return tile.row(i)


@op(operator="vector_part", shown="parts")
def vector_part(vector: SharedVector, i: Int, *, length: int) -> SharedVector:
    """`vector.parts(length)[i]`: part i of a shared vector cut into parts of `length` elements. No copy."""


@vector_part.type
def _vector_part_type(vector: SharedVector, i: Any, length: int) -> SV:
    check_index("i", i, vector.length // length, "an index")
    return vector.type.part(length)


@vector_part.numpy
def _vector_part_numpy(vector: Any, i: int, length: int) -> Any:
    return vector.part_of_vector(i, length)


def check_shared(name: str, tile: Any, help: str | None = None) -> None:
    """Raise unless an operand is a shared tile, or a shared vector that is no part of another."""
    if not isinstance(tile, SharedTile) or isinstance(tile, SharedRow):
        raise Mismatch(
            f"`{name}` must be a shared tile, not {describe(tile)}",
            help=getattr(tile, "way_in", help),
        )
    if isinstance(tile, SharedVector) and tile.whole is not tile:
        raise Mismatch(
            f"`{name}` must be a whole shared vector, not a part of {tile.whole.type}",
            help="pk.load and pk.store take parts; asynchronous copies take vectors made with pk.sv(dtype, length)",
        )
