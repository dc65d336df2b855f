"""The schedule of a launch: the block that runs each unit, and the time at which each box is asked for.

Concurrent blocks move bytes at the same rate, so times are counted in the bytes that a block has moved. Persistent
blocks take units as `ir/orders.py` says; the units of a grid go in order to the block that is free first. If two boxes
are asked for at the same time, the box of the earlier unit comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pykittens.analysis.traffic.boxes import BYTES, UNIT
from pykittens.analysis.traffic.trace import AFTER, BEFORE, Trace
from pykittens.analysis.traffic.vector import IntArray
from pykittens.ir.nodes import Order
from pykittens.ir.orders import taker

# The boxes that are traced at once, which bounds the memory used.
AT_ONCE = 2**20
TIME = 0  # replaces the row of the lane


@dataclass
class UnitSchedule:
    """Assigns the units of a launch to blocks; times are bytes that a block has moved.

    order: that of the tasks that persistent blocks share; None for a grid. ends: when each block is free; for a grid, a
    heap.
    """

    blocks: int
    order: Order | None
    ends: list[int]
    cluster: int = 1
    assigned: int = 0

    def start(self, sizes: IntArray) -> IntArray:
        """The times at which the next units start, given their bytes."""
        starts = np.zeros(len(sizes), np.int64)
        for i, size in enumerate(sizes.tolist()):
            if self.order is not None:
                position, rank = divmod(self.assigned, self.cluster)
                clusters = self.blocks // self.cluster
                block = taker(self.order, position, clusters) * self.cluster + rank
                starts[i] = self.ends[block]
                self.ends[block] += size
            else:
                starts[i] = self.ends[0]
                heapq.heapreplace(self.ends, self.ends[0] + size)
            self.assigned += 1
        return starts

    @property
    def horizon(self) -> int:
        """The earliest time at which a later unit can start."""
        return min(self.ends)


def in_time(trace: Trace, blocks: int) -> Iterator[IntArray]:
    """The boxes of a launch in the order of time, in several tables; the row TIME replaces the lane."""
    launch = trace.launch
    units, first, size = launch.units, 0, 1
    schedule = UnitSchedule(blocks, launch.order, [0] * blocks, launch.kernel.cluster)
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


def _timed(table: IntArray, first: int, last: int, schedule: UnitSchedule) -> IntArray:
    """A table of units with the time of each box."""
    sizes = np.bincount(table[UNIT] - first, table[BYTES], last - first).astype(np.int64)
    starts = schedule.start(sizes)
    unit = table[UNIT] - first
    table[TIME] = starts[unit] + _before(table[BYTES]) - _before(sizes)[unit]
    return table


def _repeated(table: IntArray, starts: list[int]) -> IntArray:
    """A table that several blocks move, each from its own start."""
    whole = np.repeat(table[:, None, :], len(starts), axis=1)
    whole[TIME] = np.array(starts)[:, None] + _before(table[BYTES])
    return whole.reshape(5, -1)


def _before(sizes: IntArray) -> IntArray:
    """The sum of the numbers before each number."""
    before: IntArray = np.cumsum(sizes) - sizes
    return before
