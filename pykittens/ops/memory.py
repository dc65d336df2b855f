"""Loads and stores of tiles, vectors and single elements; the calling group waits for the data.

Coordinates are in units of the tile moved. The last two axes have edges: outside them a load gives `fill` and a
store writes nothing. A leading index outside its axis is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import (
    Global,
    RegTile,
    RegVector,
    Scalar,
    SharedTile,
    SharedVector,
    TileRef,
    describe,
)
from pykittens.ops.arguments import check_truth
from pykittens.ops.atomic import check_combining, combining
from pykittens.ops.core import op
from pykittens.ops.creation import (
    MAX_VECTOR_REGISTERS,
    check_cols,
    check_rows,
    check_tile_sides,
    check_vector_length,
)
from pykittens.ops.map import loaded
from pykittens.types.dtypes import DType, int32
from pykittens.types.tiles import RT, RV, SCALAR, Spread


@op(effects=Effects(reads=("src",)))
def load(
    src: TileRef | Global | SharedTile,
    *,
    rows: int | None = None,
    cols: int | None = None,
    fill: float = 0,
    spread: Spread = Spread.PLAIN,
    transposed: bool = False,
) -> Any:
    """A tile of rows x cols of a tensor; without `rows` a vector of `cols` elements of one row, spread as said;
    without both one element. Or the whole of a shared tile or vector, of a stage taken with `drain`; of a part of
    one element, `vector.parts(1)[i]`, that element.

    `src[i, j]` counts in tiles: element (i * rows, j * cols) and on; for a vector (i, j * cols), for one element
    (i, j). Elements outside the tensor read as `fill`. One element is a scalar, known to the whole group.
    With `transposed` the tile is the transpose of what lies there, of cols x rows, in which `src[i, j]` counts, too.
    """


@load.type
def _load_type(
    src: Any, rows: Any, cols: Any, fill: Any, spread: Any, transposed: Any
) -> RT | RV | SCALAR:
    type_ = _type_as_it_lies(src, rows, cols, fill, spread, transposed)
    _check_transposed(transposed, isinstance(type_, RT))
    return type_


def _type_as_it_lies(
    src: Any, rows: Any, cols: Any, fill: Any, spread: Any, transposed: Any
) -> RT | RV | SCALAR:
    """The type of what is loaded."""
    if not isinstance(spread, Spread):
        raise Mismatch(
            f"`spread` must be pk.plain, pk.per_row or pk.per_column, not {describe(spread)}"
        )
    if isinstance(src, SharedTile):
        return _shared_load_type(src, (rows, cols), spread, transposed)
    from_tensor(src, "src")
    check_fill(fill, src.dtype)
    if rows is None and cols is None:
        return SCALAR(src.dtype)
    check_width(cols)
    if rows is None:
        check_spread_length("cols", cols, spread)
        return RV(src.dtype, cols, spread)
    if src.type.rank < 2:
        raise Mismatch(f"`src` must be of rank 2 or more for a tile, not {src.type.rank}")
    _check_no_spread(spread, "without `rows` the elements of one row are loaded")
    check_tile_sides(rows, cols)
    return RT(src.dtype, rows, cols)


def _shared_load_type(
    src: SharedTile, sides: tuple[Any, Any], spread: Spread, transposed: Any
) -> RT | RV | SCALAR:
    """The type of a shared tile or vector in registers."""
    if sides != (None, None):
        raise Mismatch(
            f"`src` must be of a tensor where `rows` or `cols` is given, not {describe(src)}",
            help="a shared tile is loaded whole; tile.tiles(rows, cols)[i, j] is a part of it",
        )
    if src.stage is not None and src.stage.acquire.side != "drain":
        raise Mismatch(
            "`src` must be of a stage taken with `drain`, not with `fill`",
            help="what a stage is filled with is there when it is drained",
        )
    if isinstance(src, SharedVector):
        if src.length == 1 and spread is Spread.PLAIN:
            return SCALAR(src.dtype)
        check_spread_length("src.length", src.length, spread)
        return RV(src.dtype, src.length, spread)
    _check_no_spread(spread, "a shared vector has one")
    if transposed is True:
        check_rows("src.cols", src.cols)
        check_cols("src.rows", src.rows)
        return RT(src.dtype, src.cols, src.rows)
    check_rows("src.rows", src.rows)
    check_cols("src.cols", src.cols)
    return RT(src.dtype, src.rows, src.cols)


def _check_no_spread(spread: Spread, help: str) -> None:
    if spread is not Spread.PLAIN:
        raise Mismatch(f"`spread` must be left out for a tile, not {spread}", help=help)


def _check_transposed(transposed: Any, is_tile: bool) -> None:
    check_truth("transposed", transposed)
    if transposed and not is_tile:
        raise Mismatch(
            "`transposed` must be left out where no tile is moved, not True",
            help="it exchanges the rows and columns of a tile",
        )


def from_tensor(src: Any, name: str) -> None:
    """Raise unless an operand is a tensor or a tile of one."""
    if not isinstance(src, TileRef | Global):
        raise Mismatch(
            f"`{name}` must be a tile of a tensor such as A[i, j], not {describe(src)}",
            help=getattr(src, "way_in", None),
        )


def check_fill(fill: Any, dtype: DType) -> None:
    """Raise unless `fill` is a number of the dtype."""
    if not isinstance(fill, int | float) or not dtype.represents(fill):
        raise Mismatch(f"`fill` must be a number that {dtype} has, not {describe(fill)}")


def check_width(cols: Any) -> None:
    """Raise unless `cols` is a width known when the kernel is compiled."""
    if not isinstance(cols, int) or isinstance(cols, bool) or not 0 <= cols <= int32.largest:
        raise Mismatch(
            f"`cols` must be a compile-time int, not {describe(cols)}",
            help="n = pk.static(x.cols) makes the width of x a constant of the kernel",
        )


def check_spread_length(name: str, length: int, spread: Spread) -> None:
    """Raise unless a vector can be spread so over the lanes of the group."""
    warps = current("vector").warps
    if spread is Spread.PLAIN:
        check_vector_length(name, length)
        return
    per_row = spread is Spread.PER_ROW
    (check_rows if per_row else check_cols)(name, length)
    most = MAX_VECTOR_REGISTERS * (8 * warps if per_row else 4)
    if length > most:
        raise Mismatch(
            f"`{name}` must be at most {most}, what the registers hold {spread}, not {length}",
            help="loop over parts of it",
        )


@load.numpy
def _load_numpy(
    src: Any, rows: int | None, cols: int | None, fill: float, spread: Spread, transposed: bool
) -> Any:
    if not hasattr(src, "gather"):  # shared memory
        tile = src.read().copy()  # the stage may be given back
        if transposed:
            return tile.T
        if tile.size == 1 and spread is Spread.PLAIN:
            return tile[0, 0]
        return spread_array(tile, spread) if len(tile) == 1 else tile
    if cols is None:
        return src.read(None, 1, fill)[0]
    if transposed:
        return src.read(cols, rows, fill).T
    tile = src.read(rows, cols, fill)
    return tile if rows is not None else spread_array(tile, spread)


def spread_array(vector: Any, spread: Spread) -> Any:
    """A vector in the shape that NumPy broadcasts as its spread says."""
    shapes = {Spread.PER_ROW: (-1, 1), Spread.PER_COLUMN: (1, -1), Spread.PLAIN: (-1,)}
    return vector.reshape(shapes[spread])


@op(effects=Effects(writes=("dst",)))
def store(
    dst: TileRef | Global | SharedTile,
    value: Any,
    *,
    op: str | None = None,
    transposed: bool = False,
) -> None:
    """Write a register tile, a vector or a number to a tensor, or a tile or a vector to a shared one of its size.

    The dtypes are equal. Elements outside the tensor are not written. A number is one element. With `op`, "add",
    "max" or "min", an element of a tensor becomes what it was, combined with what is stored, in one step.
    With `transposed` the transpose of a tile is written: of a tile of r x c `dst[i, j]` counts in tiles of c x r, and
    a shared tile is c x r.
    """


@store.type
def _store_type(dst: Any, value: Any, op: Any, transposed: Any) -> None:
    if isinstance(dst, SharedTile):
        _check_shared_store(dst, value, op, transposed)
    elif isinstance(dst, TileRef | Global):
        if not isinstance(value, RegTile | RegVector | Scalar | int | float):
            raise Mismatch(
                f"`value` must be a register tile, a vector or a number, not {describe(value)}",
                help=loaded(value, "value"),
            )
        if isinstance(value, RegTile) and dst.type.rank < 2:
            raise Mismatch(f"`dst` must be of rank 2 or more for a tile, not {dst.type.rank}")
    else:
        raise Mismatch(f"`dst` must be a tile of a tensor or a shared tile, not {describe(dst)}")
    if isinstance(value, int | float):
        if not dst.dtype.represents(value):
            raise Mismatch(f"`value` must be a number that {dst.dtype} has, not {describe(value)}")
    elif value.dtype != dst.dtype:
        raise Mismatch(
            f"`value` must be {dst.dtype} as `dst` is, not {value.dtype}",
            help=f"store `value.to({dst.dtype.word})` instead",
        )
    check_combining(op, dst.dtype)
    _check_transposed(transposed, isinstance(value, RegTile))


def _check_shared_store(dst: SharedTile, value: Any, op: Any, transposed: Any) -> None:
    if isinstance(dst, SharedVector):
        fits = isinstance(value, RegVector) and value.length == dst.length
        wanted = f"register vector of {dst.length}"
    else:
        rows, cols = (dst.cols, dst.rows) if transposed is True else (dst.rows, dst.cols)
        fits = isinstance(value, RegTile) and value.type.shape == (rows, cols)
        wanted = f"register tile of {rows}x{cols}"
    if not fits:
        raise Mismatch(f"`value` must be a {wanted}, not {describe(value)}")
    if op is not None:
        raise Mismatch(f"`op` must be left out for shared memory, not {describe(op)}")


@store.numpy
def _store_numpy(dst: Any, value: Any, op: str | None, transposed: bool) -> None:
    if not hasattr(dst, "gather"):  # shared memory
        dst.write(value.T if transposed else value)
        return
    array = np.atleast_1d(np.asarray(value, dst.dtype))
    dst.write(array.T if transposed or array.shape[1:] == (1,) else array, combining(op))
