"""Synchronisation by hand: of the warps of a group, and of the engines that work for it."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Engine
from pykittens.ops.arguments import check_between, check_truth
from pykittens.ops.core import op

MOST_PENDING = 7  # CUTLASS, `warpgroup_wait`; the wait for bulk copies has no such limit


@op(effects=Effects(meets=True))
def sync() -> None:
    """Make the warps of the group wait for one another; in a kernel without roles they are all warps of the block.

    Their earlier writes to shared memory are visible to all of them afterwards.
    """


@sync.type
def _sync_type() -> None:
    """There are no operands."""


@sync.numpy
def _sync_numpy() -> None:
    """A group is one thread of the emulator."""


@op(effects=Effects(fences=("shared", "tensors")))
def fence_async() -> None:
    """Make the group's writes to shared memory and tensors visible to the copy engine and products that start later.

    It belongs between pk.store and a pk.sync or an arrival. Source: PTX ISA, "membar/fence", `fence.proxy.async`.
    """


@fence_async.type
def _fence_async_type() -> None:
    """There are no operands."""


@fence_async.numpy
def _fence_async_numpy() -> None:
    """The engines of the emulator see all memory."""


@op(effects=Effects(finishes=Engine.COPY_OUT, meets=True))
def store_wait(pending: int = 0, *, read: bool = False) -> None:
    """Wait until at most `pending` of the group's asynchronous stores are unfinished.

    A store is unfinished until it has written its tensor or, with `read`, until it has read its shared tile.
    """


@store_wait.type
def _store_wait_type(pending: Any, read: Any) -> None:
    check_between("pending", pending, 0, MOST_PENDING)
    check_truth("read", read)


@store_wait.numpy
def _store_wait_numpy(pending: int, read: bool) -> None:
    """The group that started them finishes them."""


@op(effects=Effects(finishes=Engine.PRODUCT))
def mma_wait(pending: int = 0) -> None:
    """Wait until at most `pending` of the group's products are unfinished.

    It is for products with `managed=False`, whose results are undefined before the wait.
    """


@mma_wait.type
def _mma_wait_type(pending: Any) -> None:
    check_between("pending", pending, 0, MOST_PENDING)


@mma_wait.numpy
def _mma_wait_numpy(pending: int) -> None:
    """The group that started them finishes them."""
