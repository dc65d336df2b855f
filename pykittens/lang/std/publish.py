"""A store to shared memory that products and asynchronous stores of the same group may read."""

from __future__ import annotations

from pykittens.ir.op import Mismatch
from pykittens.ir.values import Global, RegTile, RegVector, SharedTile, TileRef, describe
from pykittens.ops.core import composed
from pykittens.ops.memory import store
from pykittens.ops.sync import fence_async, sync


@composed
def publish(dst: SharedTile, value: RegTile | RegVector, *, transposed: bool = False) -> None:
    """Write a register tile or vector to shared memory, for all warps of the group and for the engines they start.

    It is `pk.store(dst, value)`, `pk.fence_async()` and `pk.sync()`: products and asynchronous stores that the group
    starts afterwards read what was stored, and so do loads of its warps. With `transposed`, the transpose of an r x c
    tile is written to a shared tile of c x r.
    """
    if not isinstance(dst, SharedTile):
        is_tensor = isinstance(dst, TileRef | Global)
        help = "pk.store(dst, value) stores to a tensor" if is_tensor else None
        raise Mismatch(f"`dst` must be a shared tile or vector, not {describe(dst)}", help=help)
    store(dst, value, transposed=transposed)
    fence_async()
    sync()
