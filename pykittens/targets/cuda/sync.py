"""Synchronisation of the warps of a group, and of the engines that work for it."""

from __future__ import annotations

from pykittens.ir.nodes import Call, Node, WaitProducts, WaitStores
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.simt.exchange import sync
from pykittens.targets.target import Lowerings

SYNC = Lowerings()


def meet(e: CudaEmitter) -> None:
    """The lanes and warps of the group wait for one another."""
    if e.team_lanes > 1:
        e.line(sync(e))


@SYNC.lower("sync", "store_wait")
def lower_sync(e: CudaEmitter, call: Call) -> None:
    """Some lanes of the group may still read or copy what others wait for."""
    meet(e)


@SYNC.lower("fence_async", "mma_wait", WaitProducts, WaitStores)
def lower_nothing(e: CudaEmitter, node: Node) -> None:
    """What lanes do is done when they go on, and nobody but the lanes reads shared memory."""
