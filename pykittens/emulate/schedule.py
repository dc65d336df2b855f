"""Schedules: a seed decides which group runs next and when engines do their work.

Seed 0: as late as barriers and waits allow, so that what is used too early is found unwritten. Seed 1: as early as
they can. Others draw both, the order of the blocks and who is favoured: some groups run until they must wait while
others starve, which shows orders that fair choices rarely make (the idea of probabilistic concurrency testing,
Burckhardt et al., ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
Landing = Literal["late", "early", "any"]


class Schedule:
    """The choices of one run, the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.landing: Landing = "late" if seed == 0 else "early" if seed == 1 else self._drawn()
        self.is_fair = seed < 2 or self.random.random() < 0.3
        self.favours: dict[object, float] = {}

    def _drawn(self) -> Landing:
        return self.random.choice(("late", "early", "any"))

    def block_order(self, count: int) -> list[int]:
        """The order in which blocks that do not wait for one another run."""
        order = list(range(count))
        if self.seed > 1:
            self.random.shuffle(order)
        return order

    def block_count(self, tasks: int, usual: int) -> int:
        """How many blocks share the tasks of a persistent kernel.

        Tasks of one block are in order, so two that conflict show only where they are in different blocks.
        """
        if self.seed > 1:
            usual = self.random.choice((1, usual, usual + 1, 2 * usual + 1, 4 * usual))
        return min(tasks, usual)

    def at_once(self) -> bool:
        """Whether an engine does at once what it is asked for."""
        return self.landing == "early" or (
            self.landing == "any" and bool(self.random.getrandbits(1))
        )

    def lands_next(self, groups: int) -> bool:
        """Whether a copy under way lands before one of the groups that can goes on."""
        return self.landing == "any" and self.random.random() < 1 / (1 + groups)

    def pauses(self) -> bool:
        """Whether others may go on before a group signals by hand."""
        return self.seed > 1 and bool(self.random.getrandbits(1))

    def pick(self, things: Sequence[T]) -> T:
        """One of several copies or blocks."""
        return things[0] if len(things) == 1 else things[self.random.randrange(len(things))]

    def pick_group(self, groups: Sequence[T]) -> T:
        """The group that goes on."""
        if self.is_fair or len(groups) == 1:
            return self.pick(groups)
        if self.random.random() < 0.02:
            self.favours.clear()
        return max(groups, key=self._favour)

    def _favour(self, group: object) -> float:
        if group not in self.favours:
            self.favours[group] = self.random.random()
        return self.favours[group]

    def begin(self) -> None:
        """Other groups start, and none of them is favoured yet."""
        self.favours.clear()
