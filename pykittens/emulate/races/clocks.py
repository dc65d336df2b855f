"""Vector clocks of everything concurrent: groups, their fences, the engines that work for them, copies in.

A clock holds, for each component, up to where it is known to have come. Components of a group: its time, which
steps when it signals; its last fence; the products and the stores that it started, counted, of stores those that have
read and those that have written. Components of a barrier: the copies that complete it, counted.

A group is several warps. What each of them has done or waited for is known to all of them only after they met, so a
group has two clocks: `known`, what any warp may rely on, and `done`, what it tells others when all of its warps
arrive. Sources: Lamport 1978; Flanagan and Freund, "FastTrack", PLDI 2009; PTX ISA, "Memory Consistency Model" and
"Async proxy".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.ir.nodes import Call

Clock = np.ndarray[Any, np.dtype[np.int64]]

TIME, FENCE, PRODUCTS, STORES_READ, STORES_WRITTEN = range(5)
OF_A_GROUP = 5


def new_clock(size: int) -> Clock:
    """The clock of who knows nothing."""
    return np.zeros(size, np.int64)


class GroupClock:
    """The clocks of a group, whose components begin at `first`."""

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.known, self.done = new_clock(size), new_clock(size)
        self.now = 1
        self.products = self.stores = 0  # started so far

    def tell(self) -> Clock:
        """What an arrival of the group tells."""
        self.done[self.first + TIME] = self.now
        self.now += 1
        return self.done.copy()

    def learn(self, told: Clock) -> None:
        """Each warp has waited for something."""
        np.maximum(self.known, told, out=self.known)
        np.maximum(self.done, told, out=self.done)

    def meet(self) -> None:
        """The warps have met."""
        self.known = self.tell()

    def fence(self) -> None:
        """What each thread wrote before can be seen by the engines."""
        self.done[self.first + FENCE] = self.now
        self.now += 1

    def finish(self, component: int, count: int) -> None:
        """An engine has finished so many of what the group started."""
        self.done[self.first + component] = max(self.done[self.first + component], count)


@dataclass(eq=False)
class BarrierClock:
    """The clock of a barrier: what its arrivals told, phase by phase.

    component: that of the copies which complete it; `under_way` are the numbers of those that have not landed.
    steps: who asks for bytes and who brings some.
    passed: which phase each group saw complete last, its time then, and where it waited. last: who arrived last, where.
    """

    component: int
    pending: Clock
    phases: list[Clock] = field(default_factory=list)
    copies: int = 0
    under_way: set[int] = field(default_factory=set)
    brought: int = 0
    steps: dict[Any, str] = field(default_factory=dict)
    passed: dict[Any, tuple[int, int, Call]] = field(default_factory=dict)
    last: tuple[Any, Any] | None = None

    def told(self, clock: Clock) -> None:
        """An arrival, or a copy that has landed."""
        np.maximum(self.pending, clock, out=self.pending)

    @property
    def landed(self) -> int:
        """Up to which number all copies have landed."""
        return min(self.under_way) - 1 if self.under_way else self.copies

    def complete(self) -> Clock:
        """The end of a phase: what who waits for it learns."""
        self.pending[self.component] = self.landed
        snapshot = self.pending.copy()
        self.phases.append(snapshot)
        self.brought = 0
        return snapshot


@dataclass(eq=False)
class FlagClock:
    """The clock of a flag: each value it was given, and what who finds that value learns.

    initial: what it held before any of them, None where it is a turn.
    """

    initial: int | None = None
    values: list[tuple[int, Clock]] = field(default_factory=list)

    def signal(self, value: int, told: Clock, adds: bool) -> None:
        if adds and self.values:
            told = np.maximum(told, self.values[-1][1])
        self.values.append((value, told))

    def seen(self, least: int) -> Clock | None:
        """What the first value of at least so much tells; None where the flag held it from the start."""
        if self.initial is not None and self.initial >= least:
            return None
        return next((told for value, told in self.values if value >= least), None)
