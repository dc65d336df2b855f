"""Semaphores: arrivals and bytes complete a phase, for which other groups wait.

A semaphore is an mbarrier. Its phases alternate between parity 0 and 1, and a wait names the parity of the phase
that must be complete: use i of a ring of n semaphores waits for `i // n`. Source: PTX ISA, "mbarrier".
"""

from __future__ import annotations

from typing import Any

from pykittens.ir.numbers import is_int
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Int, Scalar, Semaphore, SharedTile, describe
from pykittens.ops.arguments import check_block, check_index
from pykittens.ops.core import op
from pykittens.types.dtypes import bool_, int32
from pykittens.types.tiles import SEMAPHORE, ST, SV


@op(operator="item", shown="[...]")
def item(memory: SharedTile | Semaphore, index: Any, *, count: int) -> Any:
    """`array[i]`: one of the shared tiles, vectors or semaphores made with `count=`."""


@item.type
def _item_type(memory: Any, index: Any, count: int) -> ST | SV | SEMAPHORE:
    check_index("index", index, count, "an index")
    type_: ST | SV | SEMAPHORE = memory.type
    return type_


@item.numpy
def _item_numpy(memory: Any, index: int, count: int) -> Any:
    return memory[index]


def _check_semaphore(semaphore: Any) -> None:
    if not isinstance(semaphore, Semaphore):
        raise Mismatch(
            f"`semaphore` must be one of pk.semaphore(...), not {describe(semaphore)}",
            help="select one of several by its index, as in `full[i]`",
        )


@op(effects=Effects(signals=("semaphore",), meets=True, block="block"), operator="arrive")
def arrive(semaphore: Semaphore, *, block: Int | None = None) -> None:
    """`semaphore.arrive()`: one arrival of the group, after all its warps have reached it.

    `semaphore.arrive(block=r)` arrives at the same semaphore of block r of the cluster.
    """


@arrive.type
def _arrive_type(semaphore: Any, block: Any) -> None:
    _check_semaphore(semaphore)
    if block is not None:
        check_block("arrive", block)


@arrive.numpy
def _arrive_numpy(semaphore: Any, block: int | None) -> None:
    semaphore.arrive()


@op(effects=Effects(signals=("semaphore",), meets=True), operator="expect")
def expect(semaphore: Semaphore, bytes: Any) -> None:
    """`semaphore.expect(bytes)`: one arrival of the group, and the phase also waits for this number of bytes."""


@expect.type
def _expect_type(semaphore: Any, bytes: Any) -> None:
    _check_semaphore(semaphore)
    fixed = is_int(bytes) and 0 <= bytes < 2**20
    if not fixed and not (isinstance(bytes, Scalar) and bytes.dtype == int32):
        raise Mismatch(
            f"`bytes` must be an int below 2**20 or a run-time int32, not {describe(bytes)}",
            help="semaphore.expect(a, b) adds up the bytes of the shared tiles a and b",
        )


@expect.numpy
def _expect_numpy(semaphore: Any, bytes: int) -> None:
    semaphore.expect(bytes)


@op(effects=Effects(waits=("semaphore",)), operator="wait_phase", shown="wait")
def wait_phase(semaphore: Semaphore, phase: Any) -> None:
    """`semaphore.wait(phase)`: wait until the phase whose parity is the lowest bit of `phase` is complete."""


@wait_phase.type
def _wait_phase_type(semaphore: Any, phase: Any) -> None:
    _check_semaphore(semaphore)
    is_number = isinstance(phase, int) and int32.represents(phase)
    if not is_number and not (isinstance(phase, Scalar) and phase.dtype in (int32, bool_)):
        raise Mismatch(f"`phase` must be an int32 or a bool, not {describe(phase)}")


@wait_phase.until
def _wait_phase_until(semaphore: Any, phase: int) -> str | None:
    missing: str | None = semaphore.missing(int(phase) & 1)
    return missing


@wait_phase.numpy
def _wait_phase_numpy(semaphore: Any, phase: int) -> None:
    """There is nothing to do after the wait."""


@op(effects=Effects(waits=("turns",)))
def take_turn(turns: Any, group: Any) -> None:
    """Wait until it is this group's turn."""


@take_turn.type
def _take_turn_type(turns: Any, group: Any) -> None:
    """Recorded by `pk.in_turn` only, with valid operands."""


@take_turn.until
def _take_turn_until(turns: Any, group: int) -> str | None:
    missing: str | None = turns.missing(group)
    return missing


@take_turn.numpy
def _take_turn_numpy(turns: Any, group: int) -> None:
    """There is nothing to do after the wait."""


@op(effects=Effects(signals=("turns",)))
def pass_turn(turns: Any, group: Any) -> None:
    """Pass the turn on to the next group."""


@pass_turn.type
def _pass_turn_type(turns: Any, group: Any) -> None:
    """Recorded by `pk.in_turn` only, with valid operands."""


@pass_turn.numpy
def _pass_turn_numpy(turns: Any, group: int) -> None:
    turns.hand_on()
