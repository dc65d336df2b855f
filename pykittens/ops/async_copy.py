"""Copies between global and shared memory that the copy engine carries out while the program goes on.

Source: PTX ISA, "cp.async.bulk.tensor". A tensor the engine cannot reach (a base or a stride that is not a
multiple of 16 bytes) is copied by the lanes of the warp instead: slower, and the same.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Mismatch
from pykittens.ir.values import Global, SharedTile, TileRef, describe
from pykittens.ops.core import op
from pykittens.ops.memory import from_tensor


def _same_dtype(tile: SharedTile, tensor: TileRef | Global, tensor_name: str) -> None:
    if tile.dtype != tensor.dtype:
        raise Mismatch(
            f"copies do not convert: the shared tile is {tile.dtype}, `{tensor_name}` {tensor.dtype}",
            help="make the pipeline's tiles of the tensor's dtype",
        )
    if tensor.type.rank < 2:
        raise Mismatch(
            f"a tile needs a tensor of rank 2 or more, `{tensor_name}` has rank {tensor.type.rank}"
        )


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_IN))
def load_async(dst: SharedTile, src: TileRef | Global, *, multicast: bool = False) -> None:
    """Start to copy a tile of a tensor to a stage of a pipeline; outside the tensor it reads as zero.

    It has landed when the stage can be drained. With `multicast` all blocks of the cluster ask for the same
    tile; each fetches its share of the rows and sends it to all.
    """


@load_async.type
def _load_async_type(dst: Any, src: Any, multicast: bool) -> None:
    if not isinstance(dst, SharedTile):
        raise Mismatch(f"`dst` must be a shared tile, not {describe(dst)}")
    from_tensor(src, "src")
    _same_dtype(dst, src, "src")
    if dst.stage is None or dst.stage.acquire.side != "fill":
        raise Mismatch(
            "`dst` must be of a stage taken with `fill`",
            help="`with pipeline.fill() as stage:` takes one",
        )
    cluster = current("load_async").kernel.cluster
    if multicast and (cluster == 1 or dst.rows % (8 * cluster)):
        raise Mismatch(
            f"`multicast` needs a cluster that shares {dst.rows} rows in eights, not one of {cluster}",
            help="@pk.kernel(cluster=2) makes clusters of two blocks",
        )


@load_async.numpy
def _load_async_numpy(dst: Any, src: Any, multicast: bool) -> None:
    dst.write(src.read(dst.rows, dst.cols, 0))


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_OUT))
def store_async(dst: TileRef | Global, src: SharedTile) -> None:
    """Start to copy a shared tile to a tile of a tensor; outside the tensor nothing is written.

    The stage is given back when the copy has read it; the tensor is complete when the kernel ends.
    """


@store_async.type
def _store_async_type(dst: Any, src: Any) -> None:
    if not isinstance(src, SharedTile):
        raise Mismatch(
            f"`src` must be a shared tile, not {describe(src)}",
            help="pk.store writes registers to a tensor",
        )
    from_tensor(dst, "dst")
    _same_dtype(src, dst, "dst")
    if src.stage is None or src.stage.acquire.side != "drain":
        raise Mismatch(
            "`src` must be of a stage taken with `drain`",
            help="`with pipeline.drain() as stage:` takes one",
        )


@store_async.numpy
def _store_async_numpy(dst: Any, src: Any) -> None:
    dst.write(src.read())
