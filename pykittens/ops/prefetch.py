"""Tiles of tensors that are brought to the L2 cache before they are loaded."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, TileRef
from pykittens.ops.arguments import check_size
from pykittens.ops.core import op
from pykittens.ops.memory import check_matrix, check_tensor, check_width
from pykittens.types.dtypes import int32


@op(effects=Effects(prefetches=("src",)))
def prefetch(src: TileRef | Global, *, rows: int | None = None, cols: int) -> None:
    """Start to bring a tile of rows x cols of a tensor to the L2 cache. Without `rows`, bring a vector of `cols`
    elements of one row.

    The tile is that of `load`: the first element of `src[i, j]` is (i * rows, j * cols) for a tile and (i, j * cols)
    for a vector, and elements outside the tensor are left out. The sides may be any number, whatever registers hold.
    A prefetch gives nothing back and is no access to the elements: it needs no order with those that write them, and in
    a kernel with `pk.overlap()` it waits for no earlier launch. A load after it reads what the memory holds then.
    """


@prefetch.type
def _prefetch_type(src: Any, rows: Any, cols: Any) -> None:
    check_tensor("src", src)
    check_width(cols)
    if rows is None:
        return
    check_matrix("src", src)
    check_size("rows", rows)
    if rows * cols > int32.largest:
        raise Mismatch(
            f"`rows` x `cols` must be at most {int32.largest} elements, not {rows} x {cols}",
            help="prefetch parts of it in a loop",
        )


@prefetch.numpy
def _prefetch_numpy(src: Any, rows: int | None, cols: int) -> None:
    src.box(rows or 1, cols)  # raises if the tile has no place in the tensor
