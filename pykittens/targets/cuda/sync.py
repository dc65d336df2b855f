"""Synchronisation of the warps of a group and of its engines."""

from __future__ import annotations

from pykittens.ir.nodes import Call, Node, WaitProducts, WaitStores
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.simt.exchange import sync
from pykittens.targets.target import Lowerings

SYNC = Lowerings()


def meet(e: CudaEmitter) -> None:
    """Synchronise the lanes and warps of the group."""
    if e.team_lanes > 1:
        e.line(sync(e))


@SYNC.lower("sync", "store_wait")
def lower_sync(e: CudaEmitter, call: Call) -> None:
    """Wait for all lanes of the group, which may still read or copy."""
    meet(e)


@SYNC.lower("fence_async", "mma_wait", WaitProducts, WaitStores)
def lower_nothing(e: CudaEmitter, node: Node) -> None:
    """Write nothing: the work of lanes is complete when they continue, and only lanes read shared memory."""
