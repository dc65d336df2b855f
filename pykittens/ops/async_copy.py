"""Copies between global and shared memory that the copy engine carries out while the program goes on.

Source: PTX ISA, "cp.async.bulk.tensor". The lanes of the warp copy a tensor that the engine cannot reach (its base or
a stride is not a multiple of 16 bytes): more slowly, with the same result.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Mismatch, called
from pykittens.ir.peers import Peers
from pykittens.ir.values import Global, Semaphore, SharedTile, SharedVector, TileRef, describe
from pykittens.ops.arguments import check_size, check_truth
from pykittens.ops.atomic import Combining, check_combining, combining
from pykittens.ops.core import op
from pykittens.ops.memory import check_matrix, check_stage, check_tensor
from pykittens.ops.views import check_shared


def _same_dtype(tile: SharedTile, tensor: TileRef | Global, tensor_name: str) -> None:
    if tile.dtype != tensor.dtype:
        pair = (tile.dtype, tensor.dtype)
        dst, src = pair if tensor_name == "src" else pair[::-1]
        raise Mismatch(
            f"`dst` and `src` must have the same dtype, as copies do not convert, not {dst} and {src}",
            help="give the shared tile the dtype of the tensor",
        )
    if not isinstance(tile, SharedVector):
        check_matrix(tensor_name, tensor, "pk.sv(dtype, length) is the type of a shared vector")


@called("peers")
def peers(count: int, step: int = 1) -> Peers:
    """The blocks that share a copy: groups of `count` blocks of a cluster, whose numbers are `step` apart.

    In a cluster of eight blocks, `pk.peers(4)` are blocks 0 to 3 and blocks 4 to 7; `pk.peers(2, step=4)` are blocks 0
    and 4, 1 and 5, 2 and 6, 3 and 7. So each block can share one tile with its row of blocks and another with its
    column. `count` times `step` divides the number of blocks of the cluster.
    """
    check_size("count", count)
    check_size("step", step)
    return Peers(count, step)


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_IN, signals=("signal",)))
def load_async(
    dst: SharedTile,
    src: TileRef | Global,
    *,
    signal: Semaphore | None = None,
    multicast: bool | Peers = False,
    evict_first: bool = False,
) -> None:
    """Start to copy a tile of a tensor to shared memory; elements outside the tensor read as zero.

    For a shared vector, `src[i, j]` is row i from column j * length on.

    A copy to a stage of a pipeline has landed when the stage can be drained. With `multicast`, all blocks of the
    cluster copy the same tile: each fetches its share of the rows and sends it to all blocks. `multicast=pk.peers(…)`
    does so among some of them. The bytes of a copy to memory of pk.shared count towards the phase of `signal`;
    `signal.expect` sets the number of bytes to wait for. With `evict_first`, a hint for what is read once, the tile is
    the first to leave the L2 cache.
    """


@load_async.type
def _load_async_type(dst: Any, src: Any, signal: Any, multicast: Any, evict_first: bool) -> None:
    check_shared("dst", dst)
    check_tensor("src", src)
    if not isinstance(multicast, Peers):
        check_truth("multicast", multicast)
    check_truth("evict_first", evict_first)
    _same_dtype(dst, src, "src")
    if dst.stage is None:
        if multicast:
            raise Mismatch(
                f"`multicast` must be False for memory of pk.shared, not {describe(multicast)}",
                help="multicast copies need a stage of a pipeline",
            )
        if not isinstance(signal, Semaphore):
            raise Mismatch(
                f"`signal` must be the semaphore that counts the bytes of `dst`, not {describe(signal)}",
                help="make one with full = pk.semaphore(1), or select one of several, full[i]; call full.expect(dst) "
                "before the copy and full.wait(phase) after it; a stage of a pipeline needs none: "
                "`with pipeline.fill() as stage:` takes one",
            )
        return
    check_stage("dst", dst, "fill")
    if signal is not None:
        raise Mismatch(
            f"`signal` must be left out for a stage of a pipeline, which has its own barriers, not {describe(signal)}"
        )
    _check_multicast(multicast, dst.rows, current("load_async").kernel.cluster)


def _check_multicast(multicast: bool | Peers, rows: int, cluster: int) -> None:
    """Raise unless blocks of a cluster can each copy a share of a tile's rows."""
    if not multicast:
        return
    if multicast is True:
        if cluster == 1 or rows % (8 * cluster):
            raise Mismatch(
                f"`multicast` must be in a cluster of n blocks with `dst` a multiple of 8n rows, not {rows} rows in a "
                f"cluster of {cluster}",
                help="@pk.kernel(cluster=2) makes clusters of two blocks",
            )
    elif cluster % (multicast.count * multicast.step):
        raise Mismatch(
            f"`multicast` must be groups that a cluster of {cluster} blocks divides into, not "
            f"{describe(multicast)}",
            help="`count` times `step` divides the number of blocks of the cluster",
        )
    elif rows % (8 * multicast.count):
        raise Mismatch(
            f"`multicast` must be among n blocks with `dst` a multiple of 8n rows, not {rows} rows among "
            f"{multicast.count}"
        )


@load_async.numpy
def _load_async_numpy(dst: Any, src: Any, signal: Any, multicast: bool, evict_first: bool) -> None:
    dst.write(src.read(dst.rows, dst.cols, 0))


@op(effects=Effects(reads=("src",), writes=("dst",), engine=Engine.COPY_OUT))
def store_async(dst: TileRef | Global, src: SharedTile, *, op: Combining | None = None) -> None:
    """Start to copy a shared tile or vector to a tensor; elements outside the tensor are not written.

    A stage is given back when the copy has read it; memory of pk.shared may be written again after
    `pk.store_wait(read=True)`. The tensor is complete when the kernel ends. With `op`, "add", "max" or "min", each
    element is combined atomically with that of the tensor.
    """


@store_async.type
def _store_async_type(dst: Any, src: Any, op: Any) -> None:
    check_shared("src", src, "pk.store writes registers to a tensor")
    check_tensor("dst", dst)
    _same_dtype(src, dst, "dst")
    check_stage("src", src, "drain")
    check_combining(op, dst.dtype)


@store_async.numpy
def _store_async_numpy(dst: Any, src: Any, op: str | None) -> None:
    dst.write(src.read(), combining(op))
