"""Shared memory outside pipelines: tiles, vectors and semaphores whose accesses the user orders."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from pykittens.errors import Loc
from pykittens.ir.nodes import Shared
from pykittens.ir.op import Mismatch, called
from pykittens.ir.operators import OPERATORS, Arithmetic
from pykittens.ir.values import Int, Semaphore, SharedTile, SharedVector, describe, handle
from pykittens.lang.bindings import Named
from pykittens.lang.merging import declared
from pykittens.lang.roles import at_top
from pykittens.ops.arguments import check_size
from pykittens.types.tiles import MOST_ARRIVALS, SEMAPHORE, ST, SV

M = TypeVar("M", bound=SharedTile | Semaphore)


class SharedArray(Named, Arithmetic, Generic[M]):
    """Shared tiles, vectors or semaphores made with `count=`: `array[i]` is one of them, also for a run-time i."""

    def __init__(self, first: M, count: int) -> None:
        self._first, self._count = first, count

    @property
    def name(self) -> str:
        return self._first.name

    @name.setter
    def name(self, name: str) -> None:
        self._first.name = name

    @property
    def description(self) -> str:
        return f"{self._count} x {self._first.type}"

    @property
    def way_in(self) -> str:
        return f"select one of several by its index, as in `{self.name or 'several'}[i]`"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Int) -> M:
        item: M = OPERATORS["item"](self._first, index, count=self._count)
        return item


@overload
def shared(type: SV) -> SharedVector: ...
@overload
def shared(type: ST) -> SharedTile: ...
@overload
def shared(type: SV, *, count: int) -> SharedArray[SharedVector]: ...
@overload
def shared(type: ST, *, count: int) -> SharedArray[SharedTile]: ...
@called("pk.shared")
def shared(type: ST | SV, *, count: int | None = None) -> Any:
    """A shared tile or vector that all roles see; with `count`, an array of them, indexed by `[i]`.

    The kernel orders the accesses: with semaphores between roles, with pk.sync inside a group.
    """
    if not isinstance(type, ST | SV):
        raise Mismatch(
            "`type` must be the type of a shared tile or vector such as pk.st(pk.bf16, 64, 64), "
            f"not {describe(type)}"
        )
    return _allocated("pk.shared", type, count)


@overload
def semaphore(arrivals: int) -> Semaphore: ...
@overload
def semaphore(arrivals: int, *, count: int) -> SharedArray[Semaphore]: ...
@called("pk.semaphore")
def semaphore(arrivals: int, *, count: int | None = None) -> Any:
    """A semaphore whose phase is complete after `arrivals` arrivals and after all expected bytes have come.

    A group arrives once, whatever its number of warps. With `count`, an array of semaphores, indexed by `[i]`. The
    first phase has parity 0, and the phase before it counts as complete. Source: PTX ISA, "mbarrier".
    """
    check_size("arrivals", arrivals)
    if arrivals > MOST_ARRIVALS:
        raise Mismatch(f"`arrivals` must be at most {MOST_ARRIVALS}, not {arrivals}")
    return _allocated("pk.semaphore", SEMAPHORE(arrivals), count)


def _allocated(word: str, type: ST | SV | SEMAPHORE, count: int | None) -> Any:
    def made() -> Any:
        builder = at_top(word)
        if count is not None:
            check_size("count", count)
        first = handle(type, loc=Loc.here())
        assert isinstance(first, SharedTile | Semaphore)
        builder.kernel.shared.append(Shared(first, count, first.loc))
        return first if count is None else SharedArray(first, count)

    return declared(word, made)
