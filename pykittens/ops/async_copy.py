"""Copies between global and shared memory that the copy engine carries out while the program goes on.

Source: PTX ISA, "cp.async.bulk.tensor". A tensor the engine cannot reach (a base or a stride that is not a
multiple of 16 bytes) is copied by the lanes of the warp instead: slower, and the same.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Mismatch
from pykittens.ir.values import Global, Semaphore, SharedTile, SharedVector, TileRef, describe
from pykittens.ops.arguments import check_truth
from pykittens.ops.atomic import check_combining, combining
from pykittens.ops.core import op
from pykittens.ops.memory import from_tensor
from pykittens.ops.views import check_whole


def _same_dtype(tile: SharedTile, tensor: TileRef | Global, tensor_name: str) -> None:
    if tile.dtype != tensor.dtype:
        pair = (tile.dtype, tensor.dtype)
        dst, src = pair if tensor_name == "src" else pair[::-1]
        raise Mismatch(
            f"`dst` and `src` must have one dtype, as copies do not convert, not {dst} and {src}",
            help="make the pipeline's tiles of the tensor's dtype",
        )
    if tensor.type.rank < 2 and not isinstance(tile, SharedVector):
        raise Mismatch(
            f"`{tensor_name}` must be of rank 2 or more for a tile, not {tensor.type.rank}",
            help="pk.sv(dtype, length) makes a shared vector",
        )


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_IN, signals=("signal",)))
def load_async(
    dst: SharedTile,
    src: TileRef | Global,
    *,
    signal: Semaphore | None = None,
    multicast: bool = False,
) -> None:
    """Start to copy a tile of a tensor to shared memory; outside the tensor it reads as zero.

    Into a shared vector goes a part of one row: `src[i, j]` is row i, from column j * length on.

    Into a stage of a pipeline: it has landed when the stage can be drained. With `multicast` all blocks of the
    cluster ask for the same tile; each fetches its share of the rows and sends it to all. Into shared memory of
    pk.shared: its bytes count towards the phase of `signal`, whose `expect` says how many there are.
    """


@load_async.type
def _load_async_type(dst: Any, src: Any, signal: Any, multicast: bool) -> None:
    if not isinstance(dst, SharedTile):
        raise Mismatch(
            f"`dst` must be a shared tile, not {describe(dst)}", help=getattr(dst, "way_in", None)
        )
    check_whole("dst", dst)
    from_tensor(src, "src")
    check_truth("multicast", multicast)
    _same_dtype(dst, src, "src")
    if dst.stage is None:
        if multicast:
            raise Mismatch(
                "`multicast` must be of a stage of a pipeline, not of memory of pk.shared"
            )
        if not isinstance(signal, Semaphore):
            raise Mismatch(
                f"`signal` must be the semaphore that is told when `dst` has come, not {describe(signal)}",
                help="full = pk.semaphore(1) makes one, full[i] names one of several; full.expect(dst) before "
                "the copy, full.wait(phase) after it",
            )
        return
    if dst.stage.acquire.side != "fill":
        raise Mismatch(
            "`dst` must be of a stage taken with `fill`, not with `drain`",
            help="`with pipeline.fill() as stage:` takes one",
        )
    if signal is not None:
        raise Mismatch(
            f"`signal` must be left out for a stage of a pipeline, which signals itself, not {describe(signal)}"
        )
    cluster = current("load_async").kernel.cluster
    if multicast and (cluster == 1 or dst.rows % (8 * cluster)):
        raise Mismatch(
            f"`multicast` must be in a cluster that shares {dst.rows} rows in eights, not in one of {cluster}",
            help="@pk.kernel(cluster=2) makes clusters of two blocks",
        )


@load_async.numpy
def _load_async_numpy(dst: Any, src: Any, signal: Any, multicast: bool) -> None:
    dst.write(src.read(dst.rows, dst.cols, 0))


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_OUT))
def store_async(dst: TileRef | Global, src: SharedTile, *, op: str | None = None) -> None:
    """Start to copy a shared tile or vector to a tensor; outside the tensor nothing is written.

    A stage is given back when the copy has read it; memory of pk.shared may be written again after
    `pk.store_wait(read=True)`. The tensor is complete when the kernel ends. With `op`, "add",
    "max" or "min", an element of the tensor becomes what it was, combined with what is stored, in one step.
    """


@store_async.type
def _store_async_type(dst: Any, src: Any, op: Any) -> None:
    if not isinstance(src, SharedTile):
        raise Mismatch(
            f"`src` must be a shared tile, not {describe(src)}",
            help=getattr(src, "way_in", "pk.store writes registers to a tensor"),
        )
    check_whole("src", src)
    from_tensor(dst, "dst")
    _same_dtype(src, dst, "dst")
    if src.stage is not None and src.stage.acquire.side != "drain":
        raise Mismatch(
            "`src` must be of a stage taken with `drain`, not with `fill`",
            help="`with pipeline.drain() as stage:` takes one",
        )
    check_combining(op, dst.dtype)


@store_async.numpy
def _store_async_numpy(dst: Any, src: Any, op: str | None) -> None:
    dst.write(src.read(), combining(op))
