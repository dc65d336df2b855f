"""Synchronisation by hand: of the warps of a group, and of the engines that work for it."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Engine, Mismatch
from pykittens.ir.values import describe
from pykittens.ops.arguments import check_truth
from pykittens.ops.core import op

MOST_PENDING = 7  # CUTLASS, `warpgroup_wait`; the bulk copies' wait has no such limit


@op(effects=Effects(meets=True))
def sync() -> None:
    """The warps of the group wait for one another; in a kernel without roles those are all.

    What they wrote to shared memory before is seen by all of them after it.
    """


@sync.type
def _sync_type() -> None:
    """It has no operands."""


@sync.numpy
def _sync_numpy() -> None:
    """A group is one thread of the emulator."""


@op(effects=Effects(fences=True))
def fence_async() -> None:
    """What the group wrote to shared memory is seen by the copy engine and by products that start later.

    It belongs between pk.store and pk.sync or an arrival. Source: PTX ISA, "fence.proxy.async".
    """


@fence_async.type
def _fence_async_type() -> None:
    """It has no operands."""


@fence_async.numpy
def _fence_async_numpy() -> None:
    """The engines of the emulator see all memory."""


def _check_pending(pending: Any) -> None:
    if (
        not isinstance(pending, int)
        or isinstance(pending, bool)
        or not 0 <= pending <= MOST_PENDING
    ):
        raise Mismatch(
            f"`pending` must be a compile-time int from 0 to {MOST_PENDING}, not {describe(pending)}"
        )


@op(effects=Effects(finishes=Engine.COPY_OUT, meets=True))
def store_wait(pending: int = 0, *, read: bool = False) -> None:
    """Wait until at most `pending` of the asynchronous stores this group started are unfinished.

    Unfinished is a store that has not written its tensor; with `read` one that still reads its shared tile.
    """


@store_wait.type
def _store_wait_type(pending: Any, read: Any) -> None:
    _check_pending(pending)
    check_truth("read", read)


@store_wait.numpy
def _store_wait_numpy(pending: int, read: bool) -> None:
    """The group that started them finishes them."""


@op(effects=Effects(finishes=Engine.PRODUCT))
def mma_wait(pending: int = 0) -> None:
    """Wait until at most `pending` of the products this group started are unfinished.

    It is for products with `managed=False`, whose results hold nothing until they are waited for.
    """


@mma_wait.type
def _mma_wait_type(pending: Any) -> None:
    _check_pending(pending)


@mma_wait.numpy
def _mma_wait_numpy(pending: int) -> None:
    """The group that started them finishes them."""
