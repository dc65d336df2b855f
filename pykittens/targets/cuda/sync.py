"""What keeps the warps of a group, and the engines that work for it, in step."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.simt.exchange import sync
from pykittens.targets.target import Lowerings

SYNC = Lowerings()


def meet(e: CudaEmitter) -> None:
    """The lanes and warps of the group wait for one another."""
    if e.team_lanes > 1:
        e.line(sync(e))


@SYNC.lower("sync")
def lower_sync(e: CudaEmitter, call: Call) -> None:
    meet(e)


@SYNC.lower("fence_async")
def lower_no_fence(e: CudaEmitter, call: Call) -> None:
    """Nobody but the lanes reads shared memory."""


@SYNC.lower("mma_wait")
def lower_no_mma_wait(e: CudaEmitter, call: Call) -> None:
    """What lanes do is done when they go on."""


@SYNC.lower("store_wait")
def lower_store_wait_of_lanes(e: CudaEmitter, call: Call) -> None:
    """Some lanes of the group may still copy what others wait for."""
    meet(e)
