"""Gather and scatter: rows of a matrix, or elements of a row or of a shared vector, by index.

Rows: `src` and `dst` are matrices, such as `A`, `A.at(b)` or `A[:, h]`, or `A[..., j]`, the j-th tile of columns. The
index is a per-row vector, for example `pk.load(x, cols=n, spread=pk.per_row)`.

Elements: `src` and `dst` are tensors of rank 1, rows `A[i]` and columns `A[:, j]` of matrices, windows of them, or
shared vectors. The index is a vector of any spread or a tile.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np

from pykittens.ir.combining import Operand
from pykittens.ir.nodes import Call, moved
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
from pykittens.ops.arguments import check_number
from pykittens.ops.atomic import COMBINING, Combining, check_combining, combining
from pykittens.ops.core import op, typed
from pykittens.ops.creation import tile_type
from pykittens.ops.map import RegisterType, loaded
from pykittens.ops.memory import (
    Tensor,
    check_matrix,
    check_stage,
    check_stored,
    check_tensor,
    check_width,
)
from pykittens.types.dtypes import int32, int64
from pykittens.types.tiles import Spread, with_dtype

Index = RegVector | RegTile
I = TypeVar("I", bound=Index)


def names_elements(call: Call) -> bool:
    """Whether an index names the elements of memory that a call moves, not whole rows."""
    index: Any = call.args.get(call.op.effects.index or "")
    return index is not None and bool(moved(call).type.shape == index.type.shape)


class Gather:
    """The type of `gather`, for type checkers."""

    @overload
    def __call__(self, src: Tensor, index: RegVector, *, cols: int, fill: float = 0) -> RegTile: ...
    @overload
    def __call__(self, src: Tensor | SharedVector, index: I, *, fill: float = 0) -> I: ...
    def __call__(self, src: Any, index: Any, **words: Any) -> Any:
        """See `gather`."""


@op(effects=Effects(reads=("src",), index="index"))
@typed(Gather)
def gather(
    src: Tensor | SharedVector, index: Index, *, cols: int | None = None, fill: float = 0
) -> Any:
    """With `cols`, the tile whose row i is row index[i] of the matrix; rows and columns outside read as `fill`.

    Without `cols`, the vector or tile of the shape and spread of `index` whose element i is element index[i] of a
    tensor of rank 1, of a row `A[i]` of a matrix, or of a shared vector; an element outside reads as `fill`.
    """


@gather.type
def _gather_type(src: Any, index: Any, cols: Any, fill: Any) -> RegisterType:
    if cols is None:
        if _is_matrix(src):
            raise Mismatch(
                "`cols` must be the width of the rows that are gathered, not None",
                help="A[i] is a row whose elements `index` can name",
            )
        _check_elements(src, "src", index)
        if isinstance(src, SharedVector):
            check_stage("src", src, "drain")
    else:
        _check_rows(src, "src", index)
        check_width(cols)
    check_number("fill", fill, src.dtype)
    if cols is None:
        return with_dtype(index.type, src.dtype)
    return tile_type(src.dtype, index.length, cols)


def _is_matrix(memory: Any) -> bool:
    return isinstance(memory, Global) and memory.rank > 1


def _check_rows(matrix: Any, name: str, index: Any) -> None:
    """Raise unless an operand is a matrix, without a row, and the index a vector of row numbers."""
    check_tensor(name, matrix)
    check_matrix(name, matrix)
    row = matrix.first.index[matrix.first.plane[0]]
    if not isinstance(row, int) or row:
        raise Mismatch(
            f"`{name}` must have 0 as its row, as `index` selects the rows, not {describe(row)}",
            help="A[..., j] is the j-th tile of columns",
        )
    if not isinstance(index, RegVector) or index.type.spread is not Spread.PER_ROW:
        raise Mismatch(
            f"`index` must be a per-row vector, not {describe(index)}",
            help="pk.load(x, cols=n, spread=pk.per_row) loads one; pk.spread(index, pk.per_row) converts a plain one",
        )
    _check_numbers(index)


def _check_numbers(index: Any) -> None:
    """Raise unless the elements of an index are integers that can number memory."""
    if index.dtype not in (int32, int64):
        raise Mismatch(
            f"`index` must be int32 or int64, not {index.dtype}",
            help="convert it: `index.to(pk.int32)`",
        )


def _check_elements(memory: Any, name: str, index: Any) -> None:
    """Raise unless an operand is a row of elements and the index a vector or tile of their numbers."""
    if not isinstance(memory, Global | TileRef | SharedVector):
        raise Mismatch(
            f"`{name}` must be a tensor of rank 1, a row such as A[i], or a shared vector, not {describe(memory)}",
            help=getattr(memory, "way_in", None),
        )
    col = memory.index[memory.plane[-1]] if isinstance(memory, TileRef) else 0
    if not isinstance(col, int) or col:
        raise Mismatch(
            f"`{name}` must have 0 as its column, as `index` selects the elements, not {describe(col)}",
            help="A[i] is row i",
        )
    if not isinstance(index, Index):
        raise Mismatch(f"`index` must be a register vector or tile, not {describe(index)}")
    _check_numbers(index)


@gather.numpy
def _gather_numpy(src: Any, index: Any, cols: int | None, fill: float) -> Any:
    if cols is None:
        return src.gather_elements(index, fill)
    return src.gather(index[:, 0], cols, fill)


@op(effects=Effects(writes=("dst",), index="index"))
def scatter(
    dst: Tensor | SharedVector, index: Index, value: Operand, *, op: Combining | None = None
) -> None:
    """Write row i of a tile to row index[i] of the matrix; rows and columns outside the matrix are not written.

    If `index` is a tile, or `value` is no tile: write element i of `value` to element index[i] of a tensor of rank 1,
    of a row `A[i]` of a matrix, or of a shared vector. `value` has the shape and spread of `index`, or is one number
    for all. An element outside is not written.

    With `op`, "add", "max" or "min", elements are combined atomically with those in memory, also if several have the
    same index; in shared memory they are f32, int32 or int64. Without `op`, each element is that of one of these rows
    or elements, and which one is undefined.
    """


@scatter.type
def _scatter_type(dst: Any, index: Any, value: Any, op: Any) -> None:
    if _moves_rows(dst, index, value):
        if isinstance(value, RegTile):
            _check_rows(dst, "dst", index)
        if not isinstance(value, RegTile) or value.rows != index.length:
            rows = f" of {index.length} rows" if isinstance(index, RegVector) else ""
            raise Mismatch(
                f"`value` must be a register tile{rows}, not {describe(value)}",
                help=None
                if isinstance(value, RegTile)
                else "A[i] is a row whose elements `index` can name",
            )
        check_stored(value, dst)
    else:
        _check_elements(dst, "dst", index)
        _check_values(value, index, dst)
    check_combining(op, dst.dtype)
    if op is not None and isinstance(dst, SharedTile) and dst.dtype.bits == 16:
        raise Mismatch(
            f"`op` must be left out for {dst.dtype} in shared memory, not {describe(op)}",
            help="make the shared vector f32",
        )


def _moves_rows(dst: Any, index: Any, value: Any) -> bool:
    """Whether rows of a matrix are meant, not elements."""
    is_row = isinstance(dst, TileRef | Global) and len(dst.first.plane) == 1
    if is_row or isinstance(dst, SharedVector):
        return False
    return _is_matrix(dst) or (isinstance(value, RegTile) and not isinstance(index, RegTile))


def _check_values(value: Any, index: Any, dst: Any) -> None:
    """Raise unless there is a value for each element of the index."""
    if isinstance(value, int | float):
        check_number("value", value, dst.dtype)
        return
    if not isinstance(value, Scalar):
        wanted = with_dtype(index.type, dst.dtype)
        if not isinstance(value, Index) or with_dtype(value.type, dst.dtype) != wanted:
            raise Mismatch(
                f"`value` must be {wanted} like `index`, a scalar or a number, not {describe(value)}",
                help=loaded(value, "value"),
            )
    check_stored(value, dst)


@scatter.numpy
def _scatter_numpy(dst: Any, index: Any, value: Any, op: str | None) -> None:
    if np.ndim(value) == 2 and index.shape != np.shape(value):
        dst.scatter(index[:, 0], value, combining(op))
        return
    values = np.broadcast_to(np.asarray(value, dst.dtype), index.shape)
    dst.scatter_elements(index, values, None if op is None else COMBINING[op])
