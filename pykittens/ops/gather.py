"""Gather and scatter: rows of a matrix by index, for embeddings, routed tokens and paged caches.

`src` and `dst` are tensors of rank 2 or more, `A.at(...)`, or `A[..., j]`, the j-th tile of columns.
The index is a per-row vector of int32 or int64, for example `pk.load(x, cols=n, spread=pk.per_row)`.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, RegTile, RegVector, TileRef, describe
from pykittens.ops.arguments import check_number
from pykittens.ops.atomic import check_combining, combining
from pykittens.ops.core import op
from pykittens.ops.creation import tile_type
from pykittens.ops.memory import check_matrix, check_stored, check_tensor, check_width
from pykittens.types.dtypes import int32, int64
from pykittens.types.tiles import RT, Spread


@op(effects=Effects(reads=("src",), index="index"))
def gather(src: TileRef | Global, index: RegVector, *, cols: int, fill: float = 0) -> RegTile:
    """The tile whose row i is row index[i] of the matrix; rows and columns outside the matrix read as `fill`."""


@gather.type
def _gather_type(src: Any, index: Any, cols: Any, fill: Any) -> RT:
    _check_rows(src, "src", index)
    check_width(cols)
    check_number("fill", fill, src.dtype)
    return tile_type(src.dtype, index.length, cols)


def _check_rows(matrix: Any, name: str, index: Any) -> None:
    """Raise unless an operand is a matrix, without a row, and the index a vector of row numbers."""
    check_tensor(name, matrix)
    check_matrix(name, matrix)
    row = matrix.first.index[-2]
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
    if index.dtype not in (int32, int64):
        raise Mismatch(
            f"`index` must be int32 or int64, not {index.dtype}",
            help="convert it: `index.to(pk.int32)`",
        )


@gather.numpy
def _gather_numpy(src: Any, index: Any, cols: int, fill: float) -> Any:
    return src.gather(index[:, 0], cols, fill)


@op(effects=Effects(writes=("dst",), index="index"))
def scatter(
    dst: TileRef | Global, index: RegVector, value: RegTile, *, op: str | None = None
) -> None:
    """Write row i of a tile to row index[i] of the matrix; rows and columns outside the matrix are not written.

    With `op`, "add", "max" or "min", elements are combined atomically with those of the matrix, also if several rows
    have the same index. Without `op`, each element is that of one of these rows, and which one is undefined.
    """


@scatter.type
def _scatter_type(dst: Any, index: Any, value: Any, op: Any) -> None:
    _check_rows(dst, "dst", index)
    if not isinstance(value, RegTile) or value.rows != index.length:
        raise Mismatch(
            f"`value` must be a register tile of {index.length} rows, not {describe(value)}"
        )
    check_stored(value, dst)
    check_combining(op, dst.dtype)


@scatter.numpy
def _scatter_numpy(dst: Any, index: Any, value: Any, op: str | None) -> None:
    dst.scatter(index[:, 0], value, combining(op))
