"""Vector clocks of everything concurrent: groups, their fences, the engines that work for them, copies in.

A clock holds the known progress of each component. Components of a group: its time, which steps when the group
signals; its last fences of shared memory and of tensors; the number of its products that are complete, of its stores
that have read, and of its stores that have written. Component of a barrier: the number of copies that have landed.

Who waits for a tile that a block sent knows how far the sender has come, and sees the tile, but nothing else that the
sender wrote: "it does not transitively establish ordering with respect to prior instructions from the issuing thread"
(PTX ISA, "Program Order"). So in kernels that send tiles each group has a progress beside its time, and a second
component of a barrier counts the copies that engines see, after a fence of the receiver.

A group has several warps. All of them know what one of them has done or waited for only after a sync, so a group has
two clocks: `known`, which every warp may rely on, and `done`, which others learn when all of its warps arrive.
Sources: Lamport 1978; Flanagan and Freund, "FastTrack", PLDI 2009; PTX ISA, "Memory Consistency Model" and
"Async proxy".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.ir.nodes import Call

Clock = np.ndarray[Any, np.dtype[np.int64]]

TIME, FENCE_SHARED, FENCE_TENSORS, PRODUCTS, STORES_READ, STORES_WRITTEN = range(6)
OF_A_GROUP = 6


def new_clock(size: int) -> Clock:
    """The clock of a group that knows nothing."""
    return np.zeros(size, np.int64)


class GroupClock:
    """The clocks of a group, whose components begin at `first`; `progress` is that of its progress, or its time."""

    def __init__(self, first: int, size: int, progress: int | None = None) -> None:
        self.first = first
        self.progress = first + TIME if progress is None else progress
        self.known, self.done = new_clock(size), new_clock(size)
        self.now = 1
        self.products = self.stores = 0  # started so far

    def signal(self) -> Clock:
        """The clock that others learn from an arrival of the group."""
        self.done[self.first + TIME] = self.done[self.progress] = self.now
        self.now += 1
        return self.done.copy()

    def send(self, order: slice) -> Clock:
        """The clock that others learn from bytes that the group sends: these components, with its progress."""
        clock = np.zeros_like(self.done)
        self.done[self.progress] = self.now
        self.now += 1
        clock[order] = self.done[order]
        return clock

    def learn(self, clock: Clock) -> None:
        """Each warp has waited for the same signal."""
        np.maximum(self.known, clock, out=self.known)
        np.maximum(self.done, clock, out=self.done)

    def meet(self) -> None:
        """The warps have waited for one another."""
        self.known = self.signal()

    def fence(self, *components: int) -> None:
        """The engines can see what each thread wrote before to the memory that these components stand for."""
        for component in components:
            self.done[self.first + component] = self.now
        self.now += 1

    def show(self, landed: slice, seen: slice) -> None:
        """The engines can see what each thread knows to have landed, by the components of barriers."""
        for clock in (self.known, self.done):
            np.maximum(clock[seen], clock[landed], out=clock[seen])

    def finish(self, component: int, count: int) -> None:
        """An engine has finished the first `count` operations that the group started."""
        self.done[self.first + component] = max(self.done[self.first + component], count)


@dataclass(eq=False)
class BarrierClock:
    """The clock of a barrier: the clocks of its arrivals, phase by phase.

    component: counts the copies that complete the barrier; `under_way` has the numbers of those that have not landed.
    steps: the calls that expect bytes and that start copies, with their groups. passed: for each group, the phase that
    it last saw complete, its time then, and its wait. last: the group and node of the last arrival. order: the
    components by which a group knows that a phase is over.
    """

    component: int
    pending: Clock
    order: slice = field(default_factory=lambda: slice(None))
    phases: list[Clock] = field(default_factory=list)
    copies: int = 0
    under_way: set[int] = field(default_factory=set)
    brought: int = 0
    steps: dict[Any, str] = field(default_factory=dict)
    passed: dict[Any, tuple[int, int, Call]] = field(default_factory=dict)
    last: tuple[Any, Any] | None = None

    def join(self, clock: Clock) -> None:
        """Something has arrived, or a copy has landed."""
        np.maximum(self.pending, clock, out=self.pending)

    def is_over(self, phase: int, known: Clock) -> bool:
        """Whether a group with this clock knows that a phase is complete."""
        return bool((known[self.order] >= self.phases[phase][self.order]).all())

    @property
    def landed(self) -> int:
        """The number up to which all copies have landed."""
        return min(self.under_way) - 1 if self.under_way else self.copies

    def complete(self) -> Clock:
        """End a phase; returns the clock that its waiters learn."""
        self.pending[self.component] = self.landed
        snapshot = self.pending.copy()
        self.phases.append(snapshot)
        self.brought = 0
        return snapshot


@dataclass(eq=False)
class FlagClock:
    """The clock of a flag: each value that was signalled, and the clock that its waiters learn.

    initial: the value before the first signal, None for a turn.
    """

    initial: int | None = None
    values: list[tuple[int, Clock]] = field(default_factory=list)

    def signal(self, value: int, clock: Clock, adds: bool) -> None:
        if adds and self.values:
            clock = np.maximum(clock, self.values[-1][1])
        self.values.append((value, clock))

    @property
    def value(self) -> int | None:
        """The value after the last signal."""
        return self.values[-1][0] if self.values else self.initial

    def seen(self, least: int) -> Clock | None:
        """The clock of the first value that is at least `least`; None if the flag held that much from the start."""
        if self.initial is not None and self.initial >= least:
            return None
        return next((clock for value, clock in self.values if value >= least), None)
