"""Gather and scatter: rows of a matrix by index, for embeddings, routed tokens and paged caches.

`src` and `dst` are tensors of rank 2 or more, `A.at(...)`, or `A[..., j]`, which names the j-th tile of columns.
The index is a per-row vector of int32 or int64, as `pk.load(x, cols=n, spread=pk.per_row)` gives it.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, RegTile, RegVector, TileRef, describe
from pykittens.ops.atomic import check_combining, combining
from pykittens.ops.core import op
from pykittens.ops.creation import check_tile_sides
from pykittens.ops.memory import check_fill, check_width, from_tensor
from pykittens.types.dtypes import int32, int64
from pykittens.types.tiles import RT, Spread


@op(effects=Effects(reads=("src",), index="index"))
def gather(src: TileRef | Global, index: RegVector, *, cols: int, fill: float = 0) -> RegTile:
    """The tile whose row i is row index[i] of the matrix; a row or column outside it reads as `fill`."""


@gather.type
def _gather_type(src: Any, index: Any, cols: Any, fill: Any) -> RT:
    _check_rows(src, "src", index)
    check_width(cols)
    check_fill(fill, src.dtype)
    check_tile_sides(index.length, cols)
    return RT(src.dtype, index.length, cols)


def _check_rows(matrix: Any, name: str, index: Any) -> None:
    """Raise unless an operand names the rows of a matrix, and the index which of them."""
    from_tensor(matrix, name)
    if matrix.type.rank < 2:
        raise Mismatch(f"`{name}` must be of rank 2 or more, not {matrix.type.rank}")
    row = matrix.first.index[-2]
    if not isinstance(row, int) or row:
        raise Mismatch(
            f"`{name}` must have 0 for its row, as `index` says which, not {describe(row)}",
            help="A[..., j] names a tile of columns",
        )
    if not isinstance(index, RegVector) or index.type.spread is not Spread.PER_ROW:
        raise Mismatch(
            f"`index` must be a per-row vector, not {describe(index)}",
            help="pk.load(x, cols=n, spread=pk.per_row) loads one, pk.spread(index, pk.per_row) makes one of a plain",
        )
    if index.dtype not in (int32, int64):
        raise Mismatch(
            f"`index` must be of int32 or int64, not {index.dtype}",
            help="`index.to(pk.int32)` is one",
        )


@gather.numpy
def _gather_numpy(src: Any, index: Any, cols: int, fill: float) -> Any:
    return src.gather(index[:, 0], cols, fill)


@op(effects=Effects(writes=("dst",), index="index"))
def scatter(
    dst: TileRef | Global, index: RegVector, value: RegTile, *, op: str | None = None
) -> None:
    """Write row i of a tile to row index[i] of the matrix; a row or column outside it is not written.

    With `op`, "add", "max" or "min", it is combined with what is there, and so are rows of one index. Without `op`
    one of those wins, an element at a time.
    """


@scatter.type
def _scatter_type(dst: Any, index: Any, value: Any, op: Any) -> None:
    _check_rows(dst, "dst", index)
    if not isinstance(value, RegTile) or value.rows != index.length:
        raise Mismatch(
            f"`value` must be a register tile of {index.length} rows, not {describe(value)}"
        )
    if value.dtype != dst.dtype:
        raise Mismatch(
            f"`value` must be {dst.dtype} as `dst` is, not {value.dtype}",
            help=f"scatter `value.to({dst.dtype.word})` instead",
        )
    check_combining(op, dst.dtype)


@scatter.numpy
def _scatter_numpy(dst: Any, index: Any, value: Any, op: str | None) -> None:
    dst.scatter(index[:, 0], value, combining(op))
