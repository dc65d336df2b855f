"""The schedule of a launch: the block that does each unit, and the time at which each box is asked for.

The blocks that run at one time go on at one rate of bytes, so times are counted in the bytes that a block has moved.
Blocks that stay take units i, i + blocks, ...; those of a grid are dealt in their order to whoever is free first. Of
boxes asked for at one time that of the unit dealt first comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pykittens.analysis.traffic.boxes import BYTES, UNIT
from pykittens.analysis.traffic.trace import AFTER, BEFORE, Trace
from pykittens.analysis.traffic.vector import IntArray

# Boxes that are followed at once; it bounds the memory that takes.
AT_ONCE = 2**20
TIME = 0  # the row of a table that held the lane


@dataclass
class Schedule:
    """Hands the units of a launch to blocks; times are bytes that a block has moved."""

    blocks: int
    persistent: bool
    ends: list[int]  # of what each block has got; of a grid, a heap
    dealt: int = 0

    def start(self, sizes: IntArray) -> IntArray:
        """When each of the next units starts, for their bytes."""
        starts = np.zeros(len(sizes), np.int64)
        for i, size in enumerate(sizes.tolist()):
            if self.persistent:
                block = self.dealt % self.blocks
                starts[i] = self.ends[block]
                self.ends[block] += size
            else:
                starts[i] = self.ends[0]
                heapq.heapreplace(self.ends, self.ends[0] + size)
            self.dealt += 1
        return starts

    @property
    def horizon(self) -> int:
        """No unit that is still to come starts before."""
        return min(self.ends)


def in_time(trace: Trace, blocks: int) -> Iterator[IntArray]:
    """The boxes of a launch in the order of time, some at a time; in place of the lane stands when."""
    units, first, size = trace.launch.units, 0, 1
    schedule = Schedule(blocks, trace.launch.persistent, [0] * blocks)
    waiting = np.zeros((5, 0), np.int64)
    after = waiting
    while first < units:
        last = min(first + size, units)
        table = trace.table(first, last)
        inside = table[:, (table[UNIT] != BEFORE) & (table[UNIT] != AFTER)]
        if first == 0:
            before = table[:, table[UNIT] == BEFORE]
            after = table[:, table[UNIT] == AFTER]
            waiting = _repeated(before, [0] * blocks)
            schedule.ends = [int(before[BYTES].sum())] * blocks
        waiting = np.concatenate([waiting, _timed(inside, first, last, schedule)], axis=1)
        size = max(1, min(AT_ONCE * (last - first) // max(table.shape[1], 1), 64 * size))
        first = last
        if first == units:
            ends = _repeated(after, schedule.ends)
            waiting = np.concatenate([waiting, ends], axis=1)
        waiting = waiting[:, np.argsort(waiting[TIME], kind="stable")]
        ready = waiting.shape[1]
        if first < units:
            ready = int(np.searchsorted(waiting[TIME], schedule.horizon))
        yield waiting[:, :ready]
        waiting = waiting[:, ready:]


def _timed(table: IntArray, first: int, last: int, schedule: Schedule) -> IntArray:
    """A table of units with the time of each box."""
    sizes = np.bincount(table[UNIT] - first, table[BYTES], last - first).astype(np.int64)
    starts = schedule.start(sizes)
    place = table[UNIT] - first
    table[TIME] = starts[place] + _before(table[BYTES]) - (np.cumsum(sizes) - sizes)[place]
    return table


def _repeated(table: IntArray, starts: list[int]) -> IntArray:
    """A table done by several blocks, each from its own start."""
    whole = np.repeat(table[:, None, :], len(starts), axis=1)
    whole[TIME] = np.array(starts)[:, None] + _before(table[BYTES])
    return whole.reshape(5, -1)


def _before(sizes: IntArray) -> IntArray:
    """For each number the sum of those before it."""
    before: IntArray = np.cumsum(sizes) - sizes
    return before
