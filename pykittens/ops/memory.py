"""Loads and stores of tiles, vectors and single elements; the calling group waits for the data.

Coordinates count tiles of the size that is moved. The axes of a tile's rows and columns have edges: outside them a load
gives `fill` and a store writes nothing. An index of another axis that is outside it is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pykittens.ir.combining import Operand
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import (
    Global,
    RegTile,
    RegVector,
    Scalar,
    SharedRow,
    SharedTile,
    SharedVector,
    TileRef,
    describe,
)
from pykittens.ops.arguments import check_number, check_truth
from pykittens.ops.atomic import Combining, check_combining, combining
from pykittens.ops.core import op, typed
from pykittens.ops.creation import (
    check_cols,
    check_no_spread,
    check_rows,
    check_spread,
    spread_array,
    tile_type,
    vector_type,
)
from pykittens.ops.map import Registers, RegisterType, in_memory, loaded
from pykittens.types.dtypes import int32
from pykittens.types.tiles import RT, SCALAR, Spread

if TYPE_CHECKING:
    from pykittens.ir.combining import VectorOrTile
    from pykittens.ir.views import SharedEither, SharedElement

Tensor = TileRef | Global


class Load:
    """The type of `load`, for type checkers."""

    @overload
    def __call__(
        self, src: Tensor, *, rows: int, cols: int, fill: float = 0, transposed: bool = False
    ) -> RegTile: ...
    @overload
    def __call__(
        self, src: Tensor, *, cols: int, fill: float = 0, spread: Spread = Spread.PLAIN
    ) -> RegVector: ...
    @overload
    def __call__(self, src: Tensor, *, fill: float = 0) -> Scalar: ...
    @overload
    def __call__(
        self, src: SharedEither, *, spread: Spread = Spread.PLAIN, transposed: bool = False
    ) -> VectorOrTile: ...
    @overload
    def __call__(self, src: SharedElement) -> Scalar: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, src: SharedRow) -> RegVector: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, src: SharedVector, *, spread: Spread = Spread.PLAIN
    ) -> RegVector: ...
    @overload
    def __call__(self, src: SharedTile, *, transposed: bool = False) -> RegTile: ...
    def __call__(self, src: Any, **words: Any) -> Any:
        """See `load`."""


@op(effects=Effects(reads=("src",)))
@typed(Load)
def load(
    src: Tensor | SharedTile,
    *,
    rows: int | None = None,
    cols: int | None = None,
    fill: float = 0,
    spread: Spread = Spread.PLAIN,
    transposed: bool = False,
) -> Any:
    """Load a tile of rows x cols from a tensor. Without `rows`, load a vector of `cols` elements of one row with this
    spread; without both, one element. A shared tile or vector is loaded whole; a row of a tile, `tile.row(i)`, is
    loaded as a plain vector, and a part of one element of a vector, `vector.parts(1)[i]`, as that element. A stage of a
    pipeline must be taken with `drain`.

    The first element of `src[i, j]` is (i * rows, j * cols) for a tile, (i, j * cols) for a vector, (i, j) for one
    element. Elements outside the tensor read as `fill`. One element is a scalar, known to the whole group. With
    `transposed`, the result is the transpose of the cols x rows tile of the tensor, whose first element is
    (i * cols, j * rows).
    """


@load.type
def _load_type(
    src: Any, rows: Any, cols: Any, fill: Any, spread: Any, transposed: Any
) -> RegisterType:
    check_spread("spread", spread)
    if isinstance(src, SharedTile):
        type_ = _shared_load_type(src, (rows, cols), spread, transposed)
    else:
        type_ = _tensor_load_type(src, rows, cols, fill, spread)
    _check_transposed(transposed, isinstance(type_, RT))
    return type_


def _tensor_load_type(src: Any, rows: Any, cols: Any, fill: Any, spread: Spread) -> RegisterType:
    check_tensor("src", src)
    check_number("fill", fill, src.dtype)
    if rows is None and cols is None:
        return SCALAR(src.dtype)
    check_width(cols)
    if rows is None:
        return vector_type(src.dtype, "cols", cols, spread)
    check_matrix("src", src)
    check_no_spread(spread, "leave out `rows` to load a vector")
    return tile_type(src.dtype, rows, cols)


def _shared_load_type(
    src: SharedTile, sides: tuple[Any, Any], spread: Spread, transposed: Any
) -> RegisterType:
    """The type of a shared tile or vector in registers."""
    if sides != (None, None):
        raise Mismatch(
            f"`src` must be in a tensor if `rows` or `cols` is given, not {describe(src)}",
            help="a shared tile is loaded whole; tile.tiles(rows, cols)[i, j] is a part of it",
        )
    check_stage("src", src, "drain")
    if isinstance(src, SharedRow):
        help = f"it is loaded as a plain vector; pk.spread(vector, {spread!r}) converts one"
        check_no_spread(spread, help, "a row of a shared tile")
        return vector_type(src.dtype, "src.length", src.length, spread)
    if isinstance(src, SharedVector):
        if src.length == 1 and spread is Spread.PLAIN:
            return SCALAR(src.dtype)
        return vector_type(src.dtype, "src.length", src.length, spread)
    check_no_spread(spread, "only vectors have a spread")
    names, (rows, cols) = ("src.rows", "src.cols"), (src.rows, src.cols)
    if transposed is True:
        names, rows, cols = names[::-1], cols, rows
    check_rows(names[0], rows)
    check_cols(names[1], cols)
    return RT(src.dtype, rows, cols)


def _check_transposed(transposed: Any, is_tile: bool) -> None:
    check_truth("transposed", transposed)
    if transposed and not is_tile:
        raise Mismatch(
            "`transposed` must be False unless a tile is moved, not True",
            help="it exchanges the rows and columns of a tile",
        )


def check_tensor(name: str, x: Any) -> None:
    """Raise unless an operand is a tensor or a tile of a tensor."""
    if not isinstance(x, TileRef | Global):
        raise Mismatch(
            f"`{name}` must be a tile of a tensor such as A[i, j], not {describe(x)}",
            help=getattr(x, "way_in", None),
        )


def check_matrix(name: str, tensor: TileRef | Global, help: str | None = None) -> None:
    """Raise unless tiles can be moved to or from a tensor."""
    rank, axes = len(tensor.first.plane), tensor.type.rank
    if rank < 2:
        if axes > rank:
            help = f"{axes - rank} of the {axes} axes of this tensor are fixed: vectors are moved to and from it"
        raise Mismatch(f"`{name}` must have rank 2 or more for a tile, not {rank}", help=help)


def check_stage(name: str, tile: SharedTile, side: str) -> None:
    """Raise if a shared tile belongs to a stage of a pipeline that was taken from the other side."""
    if tile.stage is not None and (taken := tile.stage.acquire.side) != side:
        raise Mismatch(
            f"`{name}` must be in a stage taken with `{side}`, not with `{taken}`",
            help=f"`with pipeline.{side}() as stage:` takes one",
        )


def check_stored(value: Any, dst: Any) -> None:
    """Raise unless a value has the dtype of the memory that it is written to."""
    if value.dtype != dst.dtype:
        raise Mismatch(
            f"`value` must be {dst.dtype} like `dst`, not {value.dtype}",
            help=f"convert it: `value.to({dst.dtype.word})`",
        )


def check_width(cols: Any) -> None:
    """Raise unless `cols` is a compile-time width; 0 is one."""
    if not is_int(cols) or not 0 <= cols <= int32.largest:
        raise Mismatch(
            f"`cols` must be a compile-time int, not {describe(cols)}",
            help="n = pk.static(x.cols) makes the width of x a constant of the kernel",
        )


@load.numpy
def _load_numpy(
    src: Any, rows: int | None, cols: int | None, fill: float, spread: Spread, transposed: bool
) -> Any:
    if src.is_shared:
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


@op(effects=Effects(writes=("dst",)))
def store(
    dst: Tensor | SharedTile,
    value: Operand,
    *,
    op: Combining | None = None,
    transposed: bool = False,
) -> None:
    """Write a register tile, a vector or a number to a tensor, or a tile or vector to shared memory of its size. A row
    of a shared tile, `tile.row(i)`, takes a plain vector.

    The dtypes are equal. A number is one element. Elements outside the tensor are not written. With `op`, "add", "max"
    or "min", each element is combined atomically with that of the tensor. With `transposed`, the transpose of an r x c
    tile is written: `dst[i, j]` counts tiles of c x r, and a shared tile is c x r.
    """


@store.type
def _store_type(dst: Any, value: Any, op: Any, transposed: Any) -> None:
    if isinstance(dst, SharedTile):
        _check_shared_store(dst, value, op, transposed)
    elif isinstance(dst, TileRef | Global):
        if not isinstance(value, Registers | int | float):
            raise Mismatch(
                f"`value` must be a register tile, a vector or a number, not {describe(value)}",
                help=loaded(value, "value"),
            )
        if isinstance(value, RegTile):
            check_matrix("dst", dst)
    else:
        raise Mismatch(
            f"`dst` must be a tile of a tensor or a shared tile, not {describe(dst)}",
            help="the destination comes first: pk.store(dst, value)" if in_memory(value) else None,
        )
    if isinstance(value, int | float):
        check_number("value", value, dst.dtype)
    else:
        check_stored(value, dst)
    check_combining(op, dst.dtype)
    _check_transposed(transposed, isinstance(value, RegTile))


def _check_shared_store(dst: SharedTile, value: Any, op: Any, transposed: Any) -> None:
    help = None
    if isinstance(dst, SharedRow):
        is_plain = isinstance(value, RegVector) and value.type.spread is Spread.PLAIN
        fits = is_plain and value.length == dst.length
        wanted = f"plain register vector of {dst.length}"
        if isinstance(value, RegVector) and value.length == dst.length:
            help = "pk.spread(value, pk.plain) converts it"
    elif isinstance(dst, SharedVector):
        fits = isinstance(value, RegVector) and value.length == dst.length
        wanted = f"register vector of {dst.length}"
    else:
        rows, cols = (dst.cols, dst.rows) if transposed is True else (dst.rows, dst.cols)
        fits = isinstance(value, RegTile) and value.type.shape == (rows, cols)
        wanted = f"register tile of {rows}x{cols}"
    if not fits:
        raise Mismatch(f"`value` must be a {wanted}, not {describe(value)}", help=help)
    if op is not None:
        raise Mismatch(f"`op` must be left out for shared memory, not {describe(op)}")


@store.numpy
def _store_numpy(dst: Any, value: Any, op: str | None, transposed: bool) -> None:
    if dst.is_shared:
        dst.write(value.T if transposed else value)
        return
    array = np.atleast_1d(np.asarray(value, dst.dtype))
    dst.write(array.T if transposed or array.shape[1:] == (1,) else array, combining(op))
