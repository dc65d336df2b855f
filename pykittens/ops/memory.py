"""Moving tiles and vectors between registers and memory; the group that calls waits for the data.

Coordinates are in units of the tile moved. The last two axes have edges: outside them a load gives `fill` and a
store writes nothing. A leading index outside its axis is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, RegTile, RegVector, Scalar, SharedTile, TileRef, describe
from pykittens.ops.convert import check_tile_sides, check_vector_length
from pykittens.ops.core import op
from pykittens.types.tiles import RT, RV, ST, Spread


@op(effects=Effects(reads=("src",)))
def load(src: TileRef | Global, *, rows: int | None = None, cols: int, fill: float = 0) -> Any:
    """A tile of rows x cols from global memory; without `rows` a plain vector of `cols` elements of one row.

    `src[i, j]` counts in tiles: element (i * rows, j * cols) and on; for a vector (i, j * cols). Elements
    outside the tensor read as `fill`.
    """


@load.type
def _load_type(src: Any, rows: Any, cols: Any, fill: Any) -> RT | RV:
    from_tensor(src, "src")
    if not isinstance(fill, int | float) or not src.dtype.represents(fill):
        raise Mismatch(f"`fill` must be a number that {src.dtype} has, not {describe(fill)}")
    if not isinstance(cols, int) or isinstance(cols, bool) or cols < 0:
        raise Mismatch(
            f"`cols` must be a compile-time int, not {describe(cols)}",
            help="n = pk.static(x.cols) makes the width of x a constant of the kernel",
        )
    if rows is None:
        check_vector_length(cols)
        return RV(src.dtype, cols, Spread.PLAIN)
    if src.type.rank < 2:
        raise Mismatch(f"a tile needs a tensor of rank 2 or more, `src` has rank {src.type.rank}")
    check_tile_sides(rows, cols)
    return RT(src.dtype, rows, cols)


def from_tensor(src: Any, name: str) -> None:
    """Raise unless an operand is a tensor or a tile of one."""
    if not isinstance(src, TileRef | Global):
        raise Mismatch(f"`{name}` must be a tile of a tensor such as A[i, j], not {describe(src)}")


@load.numpy
def _load_numpy(src: Any, rows: int | None, cols: int, fill: float) -> Any:
    return src.read(rows, cols, fill)


@op(effects=Effects(writes=("dst",)))
def store(dst: TileRef | Global | SharedTile, value: Any) -> None:
    """Write a register tile or a plain vector to a tile of a tensor, or a register tile to a shared tile.

    The dtypes are equal. Elements outside the tensor are not written.
    """


@store.type
def _store_type(dst: Any, value: Any) -> None:
    if not isinstance(value, RegTile | RegVector):
        raise Mismatch(f"`value` must be a register tile or vector, not {describe(value)}")
    if isinstance(dst, SharedTile):
        if not isinstance(value, RegTile) or value.shape != dst.shape:
            raise Mismatch(
                f"`value` must be a register tile of {dst.rows}x{dst.cols}, not {describe(value)}"
            )
    elif isinstance(dst, TileRef | Global):
        if isinstance(value, RegVector) and value.type.spread is not Spread.PLAIN:
            raise Mismatch(f"a {value.type.spread} vector cannot be stored to a tensor")
        if isinstance(value, RegTile) and dst.type.rank < 2:
            raise Mismatch(
                f"a tile needs a tensor of rank 2 or more, `dst` has rank {dst.type.rank}"
            )
    else:
        raise Mismatch(f"`dst` must be a tile of a tensor or a shared tile, not {describe(dst)}")
    if value.dtype != dst.dtype:
        raise Mismatch(
            f"`value` is {value.dtype} and `dst` {dst.dtype}",
            help=f"store `value.to({dst.dtype})` instead",
        )


@store.numpy
def _store_numpy(dst: Any, value: Any) -> None:
    dst.write(np.atleast_1d(value))


@op(operator="view")
def view(tile: SharedTile, i: Any, j: Any, *, rows: int, cols: int) -> SharedTile:
    """The (i, j)-th rows x cols part of a shared tile: `tile.tiles(rows, cols)[i, j]`. No copy."""


@view.type
def _view_type(tile: SharedTile, i: Any, j: Any, rows: int, cols: int) -> ST:
    for name, index, count in (("i", i, tile.rows // rows), ("j", j, tile.cols // cols)):
        if isinstance(index, int) and not 0 <= index < count:
            raise Mismatch(f"`{name}` = {index} is outside the {count} parts of this tile")
        if not isinstance(index, int) and not (
            isinstance(index, Scalar) and index.dtype.kind == "int"
        ):
            raise Mismatch(f"`{name}` must be an int32, not {describe(index)}")
    layout = tile.type.layout
    if rows % 8 and rows != tile.rows:
        raise Mismatch(f"a view must have a multiple of 8 rows, not {rows}")
    if cols != tile.cols and cols % layout.panel_cols and layout.panel_cols % cols:
        raise Mismatch(f"a view of {cols} columns does not fit panels of {layout.panel_cols}")
    return tile.type.view(rows, cols)


@view.numpy
def _view_numpy(tile: Any, i: int, j: int, rows: int, cols: int) -> Any:
    return tile.part(i, j, rows, cols)
