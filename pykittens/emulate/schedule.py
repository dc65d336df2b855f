"""Schedules: a seed decides which group runs next and when engines do their work.

Seed 0 delays engines as long as barriers and waits allow, so that memory that is used too early is found unwritten.
Seed 1 lets engines work at once. Other seeds draw this, the order of the blocks and the favoured groups at random: some
groups run until they must wait while others starve, which shows orders that fair choices rarely make (the idea of
probabilistic concurrency testing, Burckhardt et al., ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
# Blocks of a launch that are put in a random order: a list of more takes much memory, and a run of them many hours.
MOST_SHUFFLED = 2**20
Landing = Literal["late", "early", "any"]


class SeededSchedule:
    """The choices of one run: equal seeds make equal choices."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.landing: Landing = "late" if seed == 0 else "early" if seed == 1 else self._drawn()
        self.is_fair = seed < 2 or self.random.random() < 0.3
        self.favours: dict[object, float] = {}

    def _drawn(self) -> Landing:
        return self.random.choice(("late", "early", "any"))

    def block_order(self, count: int) -> Sequence[int]:
        """The order in which blocks that do not wait for one another run; ascending if there are too many to list."""
        order = range(count)
        if self.seed < 2 or count > MOST_SHUFFLED:
            return order
        shuffled = list(order)
        self.random.shuffle(shuffled)
        return shuffled

    def block_count(self, most: int, usual: int) -> int:
        """The number of blocks that share the tasks of a persistent kernel, at most `most`.

        Tasks of one block are ordered, so two tasks that conflict show it only in different blocks.
        """
        if self.seed > 1:
            usual = self.random.choice((1, usual, usual + 1, 2 * usual + 1, 4 * usual))
        return min(most, usual)

    def residents(self, clusters: int, usual: int) -> int:
        """The number of clusters that run at once if the GPU does not guarantee a number."""
        if self.seed < 2:
            return 1 if self.seed else usual
        return self.random.choice((1, 2, usual, max(clusters, 1)))

    def at_once(self) -> bool:
        """Whether an engine carries an operation out at once."""
        return self.landing == "early" or (
            self.landing == "any" and bool(self.random.getrandbits(1))
        )

    def lands_next(self, groups: int) -> bool:
        """Whether a copy in flight lands before one of the ready groups continues."""
        return self.landing == "any" and self.random.random() < 1 / (1 + groups)

    def pauses(self) -> bool:
        """Whether other groups may continue before a group signals explicitly."""
        return self.seed > 1 and bool(self.random.getrandbits(1))

    def pick(self, items: Sequence[T]) -> T:
        """One of several copies or blocks, or of the blocks that may take a task."""
        return items[0] if len(items) == 1 else items[self.random.randrange(len(items))]

    def pick_group(self, groups: Sequence[T]) -> T:
        """The group that continues."""
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
        """Other groups start, none of which is favoured yet."""
        self.favours.clear()
