"""Views of parts of shared tiles and vectors, without a copy."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import SharedTile, SharedVector
from pykittens.ops.arguments import check_index
from pykittens.ops.core import op
from pykittens.types.tiles import ST, SV


@op(operator="view", shown="tiles")
def view(tile: SharedTile, i: Any, j: Any, *, rows: int, cols: int) -> SharedTile:
    """The (i, j)-th rows x cols part of a shared tile: `tile.tiles(rows, cols)[i, j]`. No copy."""


@view.type
def _view_type(tile: SharedTile, i: Any, j: Any, rows: int, cols: int) -> ST:
    check_index("i", i, tile.rows // rows, "the rows of parts")
    check_index("j", j, tile.cols // cols, "the columns of parts")
    layout = tile.type.layout
    if rows % 8 and rows != tile.rows:
        raise Mismatch(f"`rows` must be a multiple of 8, not {rows}")
    if cols != tile.cols and cols % layout.panel_cols and layout.panel_cols % cols:
        raise Mismatch(
            f"`cols` must divide or be a multiple of {layout.panel_cols}, as the tile lies in memory, not {cols}"
        )
    return tile.type.view(rows, cols)


@view.numpy
def _view_numpy(tile: Any, i: int, j: int, rows: int, cols: int) -> Any:
    return tile.part(i, j, rows, cols)


@op(operator="vector_part", shown="parts")
def vector_part(vector: SharedVector, i: Any, *, length: int) -> SharedVector:
    """The i-th `length` elements of a shared vector: `vector.parts(length)[i]`. No copy."""


@vector_part.type
def _vector_part_type(vector: SharedVector, i: Any, length: int) -> SV:
    check_index("i", i, vector.length // length, "the parts of the vector")
    return vector.type.part(length)


@vector_part.numpy
def _vector_part_numpy(vector: Any, i: int, length: int) -> Any:
    return vector.part_of_vector(i, length)


def check_whole(name: str, tile: SharedTile) -> None:
    """Raise where a part of a shared vector stands for what is moved whole."""
    if isinstance(tile, SharedVector) and tile.whole is not tile:
        raise Mismatch(
            f"`{name}` must be a whole shared vector, not a part of {tile.whole.type}",
            help="pk.load and pk.store move parts; a vector of its own, pk.sv(dtype, length), is copied by itself",
        )
