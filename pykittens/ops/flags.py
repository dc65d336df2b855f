"""Flags in global memory, by which the blocks of a launch wait for one another.

A flag is an element of an int32 tensor: `flags[i]` names element i. Who waits for flags needs all blocks of the
launch to run at once; a launch of more than the GPU holds is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, TileRef, describe
from pykittens.ops.arguments import check_int32, check_word
from pykittens.ops.core import op
from pykittens.types.dtypes import int32


def _check_flag(flag: Any, value: Any) -> None:
    if not isinstance(flag, TileRef | Global) or flag.dtype != int32:
        raise Mismatch(
            f"`flag` must be an element of an int32 tensor such as flags[i], not {describe(flag)}"
        )
    check_int32("value", value)


@op(effects=Effects(writes=("flag",), signals=("flag",), meets=True, fences=True))
def signal(flag: TileRef | Global, value: Any, *, op: Literal["store", "add"] = "store") -> None:
    """Set a flag to `value`, or add it, when all that the group wrote before can be seen by who waits for it.

    Of asynchronous stores that is what pk.store_wait has waited for.
    """


@signal.type
def _signal_type(flag: Any, value: Any, op: Any) -> None:
    _check_flag(flag, value)
    check_word("op", op, "store", "add")


@signal.numpy
def _signal_numpy(flag: Any, value: int, op: str) -> None:
    element = flag.element()
    element[...] = value if op == "store" else element + value


@op(effects=Effects(reads=("flag",), waits=("flag",), meets=True))
def wait(flag: TileRef | Global, value: Any) -> None:
    """Wait until a flag is at least `value`; then all is seen that was written before it was signalled."""


@wait.type
def _wait_type(flag: Any, value: Any) -> None:
    _check_flag(flag, value)


@wait.until
def _wait_until(flag: Any, value: int) -> str | None:
    found = int(flag.element())
    return None if found >= value else f"{flag} to be at least {value}, it is {found}"


@wait.numpy
def _wait_numpy(flag: Any, value: int) -> None:
    """What was awaited is there."""
