"""Shared memory outside pipelines: tiles, vectors and semaphores that the user keeps in order by hand."""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import Shared
from pykittens.ir.op import Mismatch, called
from pykittens.ir.operators import OPERATORS, Arithmetic
from pykittens.ir.values import Semaphore, SharedTile, describe, handle
from pykittens.lang.bindings import Named
from pykittens.ops.arguments import check_size
from pykittens.types.tiles import SEMAPHORE, ST, SV

MOST_ARRIVALS = 2**20 - 1  # PTX ISA, "mbarrier: contents of the object"


class Several(Named, Arithmetic):
    """Shared tiles or semaphores of one kind: `several[i]` is one of them, also for a run-time i."""

    def __init__(self, first: SharedTile | Semaphore, count: int) -> None:
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
        return f"one of several is named by its index, as in `{self.name or 'several'}[i]`"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return OPERATORS["item"](self._first, index, count=self._count)


@called("pk.shared")
def shared(type: ST | SV, *, count: int | None = None) -> Any:
    """A shared tile or vector that all roles see; `count` of them, told apart by `[i]`, where that is given.

    Nobody keeps it in order but the kernel: with semaphores between roles, with pk.sync inside a group.
    """
    builder = _outside_roles("shared")
    if not isinstance(type, ST | SV):
        raise Mismatch(
            "`type` must be that of a shared tile or vector such as pk.st(pk.bf16, 64, 64), "
            f"not {describe(type)}"
        )
    tile = handle(type, loc=Loc.here())
    assert isinstance(tile, SharedTile)
    return _made(builder, tile, count)


@called("pk.semaphore")
def semaphore(arrivals: int, *, count: int | None = None) -> Any:
    """A semaphore whose phases are complete after `arrivals` arrivals each, and when the bytes expected have come.

    A group arrives once, however many warps it has. `count` semaphores, told apart by `[i]`, where that is given.
    The first phase has parity 0; the one before it counts as complete. Source: PTX ISA, "mbarrier".
    """
    builder = _outside_roles("semaphore")
    check_size("arrivals", arrivals)
    if arrivals > MOST_ARRIVALS:
        raise Mismatch(f"`arrivals` must be at most {MOST_ARRIVALS}, not {arrivals}")
    made = handle(SEMAPHORE(arrivals), loc=Loc.here())
    assert isinstance(made, Semaphore)
    return _made(builder, made, count)


def _outside_roles(word: str) -> Builder:
    builder = current(word)
    if builder.role is not None or len(builder.stack) > 1:
        raise LanguageError(
            f"pk.{word}: stands outside roles, loops and branches, since the whole block has it"
        )
    return builder


def _made(builder: Builder, first: SharedTile | Semaphore, count: int | None) -> Any:
    if count is not None:
        check_size("count", count)
    builder.kernel.shared.append(Shared(first, count, first.loc))
    return first if count is None else Several(first, count)
