"""Flags in global memory, by which the blocks of a launch wait for one another.

A flag is an element of an int32 tensor: `flags[i]` is element i. All blocks of a kernel that waits for flags run at
once: its launches are cooperative, so one starts when the GPU has room for all of its blocks beside its other work. A
launch of more blocks than the GPU holds is refused. `pk.overlap()` has no effect on such a kernel.
"""

from __future__ import annotations

from typing import Any, Literal

from pykittens.ir.op import Effects
from pykittens.ir.values import Global, Int, TileRef
from pykittens.ops.arguments import check_flag, check_int32, check_word
from pykittens.ops.core import op


@op(effects=Effects(writes=("flag",), signals=("flag",), meets=True, fences=("tensors",)))
def signal(flag: TileRef | Global, value: Int, *, op: Literal["store", "add"] = "store") -> None:
    """Set a flag to `value`, or add `value` to it, after all earlier writes of the group are visible on the GPU.

    Of its asynchronous stores, those that pk.store_wait has covered are visible.
    """


@signal.type
def _signal_type(flag: Any, value: Any, op: Any) -> None:
    check_flag("flag", flag)
    check_int32("value", value)
    check_word("op", op, "store", "add")


@signal.numpy
def _signal_numpy(flag: Any, value: int, op: str) -> None:
    element = flag.element()
    element[...] = value if op == "store" else element + value


@op(effects=Effects(reads=("flag",), waits=("flag",), meets=True))
def wait(flag: TileRef | Global, value: Int) -> None:
    """Wait until a flag is at least `value`; all writes before its signal are visible then."""


@wait.type
def _wait_type(flag: Any, value: Any) -> None:
    check_flag("flag", flag)
    check_int32("value", value)


@wait.until
def _wait_until(flag: Any, value: int) -> str | None:
    found = int(flag.element())
    return None if found >= value else f"{flag} to be at least {value}, it is {found}"


@wait.numpy
def _wait_numpy(flag: Any, value: int) -> None:
    """There is nothing to do after the wait."""
