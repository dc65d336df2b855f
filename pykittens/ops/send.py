"""Stores of register tiles to the shared memory of other blocks of the cluster.

Source: PTX ISA, "st.async". The lanes start the stores and go on; the bytes complete a phase of a semaphore there.
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Engine, Mismatch
from pykittens.ir.values import (
    Int,
    RegTile,
    Semaphore,
    SharedTile,
    SharedVector,
    describe,
)
from pykittens.ops.arguments import check_block
from pykittens.ops.core import op
from pykittens.ops.memory import check_stored
from pykittens.ops.views import check_shared


@op(effects=Effects(writes=("dst",), engine=Engine.SEND, signals=("signal",), block="block"))
def send(dst: SharedTile, value: RegTile, *, block: Int, signal: Semaphore) -> None:
    """Start to store a register tile to the place of `dst` in the shared memory of a block of the cluster.

    `dst` is memory of pk.shared; `block` is the number of the receiving block in its cluster, which may be this one.
    The bytes count towards the phase of `signal` in that block, which calls `signal.expect(dst)`, waits for the phase
    and then reads its `dst`. The registers may be changed at once. Before the next tile is sent to a place, its reader
    says that it is free, with `semaphore.arrive(block=sender)`.
    """


@send.type
def _send_type(dst: Any, value: Any, block: Any, signal: Any) -> None:
    check_shared("dst", dst, "one of pk.shared(pk.st(dtype, rows, cols))")
    if isinstance(dst, SharedVector):
        raise Mismatch(
            f"`dst` must be a shared tile, not {describe(dst)}",
            help="pk.send stores register tiles; a vector can be a row of a tile",
        )
    if dst.stage is not None:
        raise Mismatch(
            "`dst` must be memory of pk.shared, not a stage of a pipeline",
            help="the barriers of a stage count the copies of its own block; make the place with pk.shared(type)",
        )
    if dst.dtype.bits not in (16, 32):
        raise Mismatch(
            f"`dst` must have elements of 16 or 32 bits, not {dst.dtype}",
            help="send the values in a dtype of 16 or 32 bits, and convert them with .to(dtype) after the load",
        )
    if not isinstance(value, RegTile) or value.shape != dst.shape:
        wanted = f"register tile of {dst.rows}x{dst.cols}"
        raise Mismatch(f"`value` must be a {wanted}, not {describe(value)}")
    check_stored(value, dst)
    check_block("send", block)
    if not isinstance(signal, Semaphore):
        raise Mismatch(
            f"`signal` must be the semaphore that counts the bytes of `dst`, not {describe(signal)}",
            help="make one with full = pk.semaphore(1), or select one of several, full[i]; the receiving block calls "
            "full.expect(dst) and full.wait(phase)",
        )


@send.numpy
def _send_numpy(dst: Any, value: Any, block: int, signal: Any) -> None:
    dst.write(value)
