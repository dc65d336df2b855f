"""Accesses to the elements of a tensor in the order of the program: which meet, and which come last before another."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pykittens.mega.boxes import Numbers

Event = tuple[int, int]  # an instruction, by its number in the program, and a role, by its number
# A tensor, the first element along each axis, and that after the last.
Box = tuple[str, tuple[int, ...], tuple[int, ...]]
UNKNOWN = -1  # the role at whose end a read is over, if it is not known


def box_text(box: Box) -> str:
    """A box as it is written in Python."""
    sides = (f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(*box[1:], strict=True))
    return f"{box[0].partition('.')[2]}[{', '.join(sides)}]"


@dataclass(frozen=True, eq=False)
class Accesses:
    """Boxes of a tensor that instructions write, or read, in the order of the program.

    events: (boxes, 2), the events at whose ends the accesses are over.
    """

    events: Numbers
    low: Numbers
    high: Numbers

    @staticmethod
    def of(found: Iterable[tuple[Event, Box]]) -> dict[str, Accesses]:
        """Those of each tensor."""
        of_tensor: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for event, (name, low, high) in found:
            of_tensor[name].append((event, low, high))
        columns = {name: zip(*rows, strict=True) for name, rows in of_tensor.items()}
        return {name: Accesses(*map(np.array, some)) for name, some in columns.items()}

    def meeting(self, box: Box) -> Accesses:
        """Those of the boxes that have elements of a box."""
        order, starts, reached = self._by_start
        # None that starts behind the box, and none of the first, all of which end in front of it.
        first = np.searchsorted(reached, box[1][0], side="right")
        some = np.sort(order[first : np.searchsorted(starts, box[2][0])])
        low, high = self.low[some], self.high[some]
        some = some[(low < box[2]).all(axis=1) & (high > box[1]).all(axis=1)]
        return Accesses(self.events[some], self.low[some], self.high[some])

    @cached_property
    def _by_start(self) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of the boxes by their starts on the first axis, these, and the ends that boxes so far reach."""
        order = np.argsort(self.low[:, 0], kind="stable")
        return order, self.low[order, 0], np.maximum.accumulate(self.high[order, 0])

    def touching(self, box: Box) -> Numbers:
        """The events at whose ends the accesses to elements of a box are over, in their order."""
        return np.unique(self.meeting(box).events, axis=0)

    def cover(self, box: Box) -> bool:
        """Whether all elements of a box are accessed."""
        touched = np.zeros(np.subtract(box[2], box[1]), np.bool_)
        found = self.meeting(box)
        for low, high in zip(found.low, found.high, strict=True):
            sides = zip(np.maximum(low - box[1], 0), high - box[1], strict=True)
            touched[tuple(slice(a, b) for a, b in sides)] = True
        return bool(touched.all())

    def pair(self) -> tuple[int, int] | None:
        """Two boxes of different instructions that have elements in common, if there are any."""
        return self._pair(np.arange(len(self.low)), 0)

    def _pair(self, some: Numbers, axis: int) -> tuple[int, int] | None:
        """Such a pair of some boxes, which have elements in common on the axes before."""
        if axis == self.low.shape[1]:
            step = self.events[some, 0]
            others = some[step != step[0]]
            return (int(some[0]), int(others[0])) if len(others) else None
        low, high = self.low[some, axis], self.high[some, axis]
        starts, of = np.unique(low, return_inverse=True)
        ends = np.zeros_like(starts)
        np.maximum.at(ends, of, high)
        if (ends[:-1] <= starts[1:]).all():  # by their start, boxes are apart on this axis
            order = np.argsort(of, kind="stable")
            parts = np.split(some[order], np.flatnonzero(np.diff(of[order])) + 1)
            return next((pair for part in parts if (pair := self._pair(part, axis + 1))), None)
        for i, box in enumerate(some.tolist()):
            rest = some[i + 1 :]
            both = (self.low[rest] < self.high[box]) & (self.high[rest] > self.low[box])
            other = both.all(axis=1) & (self.events[rest, 0] != self.events[box, 0])
            if other.any():
                return box, int(rest[np.argmax(other)])
        return None


NONE = Accesses(np.empty((0, 2), np.int64), *np.empty((2, 0, 1), np.int64))


class History:
    """The accesses to the elements of a box, in the order of the program.

    The ends of their boxes divide the box into cells. The cells that an access touches are the bits of an int.
    """

    def __init__(self, box: Box, writes: Accesses, reads: Accesses | None) -> None:
        found = [table.meeting(box) for table in (writes, reads) if table is not None]
        events, low, high = (
            np.concatenate([getattr(some, side) for some in found])
            for side in ("events", "low", "high")
        )
        sides = np.stack([np.maximum(low, box[1]), np.minimum(high, box[2])], axis=1)
        different, of = np.unique(sides, axis=0, return_inverse=True)
        ends = [
            np.unique(np.append(x, (a, b))) for x, a, b in zip(different.T, *box[1:], strict=True)
        ]

        def cells(low: Numbers, high: Numbers) -> int:
            touched = np.zeros([len(x) - 1 for x in ends], np.bool_)
            at = zip(*(map(np.searchsorted, ends, side) for side in (low, high)), strict=True)
            touched[tuple(slice(a, b) for a, b in at)] = True
            return int.from_bytes(np.packbits(touched).tobytes())

        self.box = cells(np.array(box[1]), np.array(box[2]))
        of_side = [cells(low, high) for low, high in different]
        order = np.argsort(events[:, 0], kind="stable")
        is_write = np.arange(len(events)) < len(found[0].events)
        self.steps: list[int] = events[order, 0].tolist()
        self.events = [(step, role) for step, role in events[order].tolist()]
        self.cells = [of_side[i] for i in of.reshape(-1)[order].tolist()]
        self.is_write: list[bool] = is_write[order].tolist()

    def last(self, step: int, reads: bool) -> list[Event]:
        """The last writes of its elements before an instruction, or the reads after these."""
        left, found = self.box, set[Event]()
        at = bisect_left(self.steps, step)
        while at and left:
            first, written = bisect_left(self.steps, self.steps[at - 1]), 0
            for i in range(first, at):  # the accesses of one instruction
                if self.is_write[i]:
                    written |= self.cells[i]
            for i in range(first, at):
                wanted = left & ~written if reads else left
                if self.is_write[i] != reads and self.cells[i] & wanted:
                    found.add(self.events[i])
            left, at = left & ~written, first
        return sorted(found)
