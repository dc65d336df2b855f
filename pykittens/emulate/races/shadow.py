"""The record of earlier accesses to memory, with which later accesses are compared.

Source: Flanagan and Freund, "FastTrack", PLDI 2009: of accesses in a known order the last is enough. Here an access
is a rectangle of a tile, so a record is kept until a later write covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pykittens.emulate.memory import Region
from pykittens.emulate.races.clocks import Clock
from pykittens.emulate.regions import SharedMemory
from pykittens.emulate.watch import Access
from pykittens.ir.nodes import Call
from pykittens.ir.op import Engine
from pykittens.types.tiles import ST

if TYPE_CHECKING:
    from pykittens.emulate.group import Group

LEAST_CELL = (16, 64)  # rows and columns of a tensor whose accesses are kept in one list, at least


class Lanes(NamedTuple):
    """How the lanes of a group share out what they move: where equal, each element is moved by the same lane.

    holds: how they hold the tile or vector. row, col: where its first element lies, as far as it matters for them.
    """

    holds: object
    row: int = 0
    col: int = 0


@dataclass(eq=False, slots=True)
class Record:
    """An access: who made it, what of, and the component and value of a clock at which it is over.

    together: the blocks that ran at once, whose clocks can be compared. fence: the component of the writer's fences,
    for what lanes wrote. lanes: who of the group does what of it, None where an engine does the work; by_row: whether
    the rows of a tile are moved one by one, to rows that an index names. of_a_flag: it signals, or waits for, a flag.
    """

    group: Group
    call: Call
    access: Access
    engine: Engine | None
    region: Region
    together: object
    component: int
    value: int
    fence: int = -1
    lanes: Lanes | None = None
    by_row: bool = False
    barrier: object = None
    of_a_flag: bool = False

    def ended(self, other: Record, known: Clock) -> bool:
        """Whether this access is over before the other starts, whose starter knows so much."""
        return self.together is other.together and known[self.component] >= self.value

    @property
    def is_atomic(self) -> bool:
        """Whether it is done in one step, so that it may meet others that are."""
        return self.of_a_flag or self.access is Access.COMBINE

    def fenced(self, known: Clock) -> bool:
        """Whether an engine sees what was written, where lanes wrote it."""
        return bool(self.fence < 0 or self.access.reads or known[self.fence] >= self.value)

    def by_the_same_lanes(self, other: Record) -> bool:
        """Whether each lane touches in both accesses what is its own, so that its own order is enough."""
        same_group = self.group is other.group
        return same_group and self.lanes is not None and self.lanes == other.lanes


Meet = Callable[[Record, Record, bool], None]


def compare(records: list[Record], new: Record, known: Clock, meet: Meet) -> list[Record]:
    """Hold a new access against older ones of the same tile; returns those that are still to be remembered.

    `meet` is told of each that conflicts, and whether they are in order so that only a fence is missing.
    """
    kept = []
    for old in records:
        if not old.region.overlaps(new.region):
            kept.append(old)
            continue
        ended = old.ended(new, known)
        judge(old, new, known, ended, meet)
        if not _is_replaced(old, new, ended):
            kept.append(old)
    kept.append(new)
    return kept


def judge(
    old: Record, new: Record, known: Clock, ended: bool, meet: Meet, lies_alike: bool = True
) -> None:
    """Tell of two accesses to the same memory that conflict.

    lies_alike: whether equal regions are the same bytes, as in one tile or in two of one type at one place.
    """
    if old.access.reads and new.access.reads:
        return
    if not ended:
        if not (lies_alike and old.by_the_same_lanes(new)):
            meet(old, new, False)
    elif new.engine is not None and not old.fenced(known):
        meet(old, new, True)


def _is_replaced(old: Record, new: Record, ended: bool) -> bool:
    """Whether who comes later is in order with the old access if it is with the new."""
    if not new.region.covers(old.region):
        return False
    if new.access is Access.WRITE:
        return ended
    same = old.component == new.component and old.together is new.together
    same = same and old.access is new.access and old.engine is new.engine
    return same and old.lanes == new.lanes


class TensorShadow:
    """The accesses to one tensor, in cells of about the size of the tiles that are moved."""

    def __init__(self) -> None:
        self.cells: dict[tuple[object, int, int], list[Record]] = {}
        self.cell: tuple[int, int] | None = None

    def add(self, leading: tuple[int, ...], new: Record, known: Clock, meet: Meet) -> None:
        """Hold an access to a matrix of the tensor against earlier ones, and remember it."""
        for cell in self._cells(leading, new.region):
            self.cells[cell] = compare(self.cells.get(cell, []), new, known, meet)

    def _cells(self, leading: tuple[int, ...], region: Region) -> Iterator[tuple[object, int, int]]:
        if self.cell is None:
            rows, cols = region.bottom - region.top, region.right - region.left
            self.cell = max(rows, LEAST_CELL[0]), max(cols, LEAST_CELL[1])
        height, width = self.cell
        for i in range(region.top // height, (region.bottom - 1) // height + 1):
            for j in range(region.left // width, (region.right - 1) // width + 1):
                yield leading, i, j


class SharedShadow:
    """The accesses to the shared tiles of blocks that run at once."""

    def __init__(self) -> None:
        self.records: dict[SharedMemory, list[Record]] = {}

    def add(self, memory: SharedMemory, new: Record, known: Clock, meet: Meet) -> None:
        """Hold an access to a tile against earlier ones, also of tiles that have bytes of its own; remember it."""
        self.records[memory] = compare(self.records.get(memory, []), new, known, meet)
        for other in memory.overlapping:
            lies_alike = (other.type, other.start) == (memory.type, memory.start)
            for old in self.records.get(other, ()):
                if _share_bytes(memory, new.region, other, old.region):
                    judge(old, new, known, old.ended(new, known), meet, lies_alike)


def _share_bytes(a: SharedMemory, part: Region, b: SharedMemory, other: Region) -> bool:
    """Whether parts of two tiles of one arena have a byte in common."""
    unit = CHUNK if _is_of_chunks(a.type, part) and _is_of_chunks(b.type, other) else 1
    first, second = _units(a.type, part, unit), _units(b.type, other, unit)
    distance = (b.start - a.start) // unit
    return not first.isdisjoint(c + distance for c in second)


CHUNK = 16  # bytes that no swizzle parts


def _is_of_chunks(type_: ST, part: Region) -> bool:
    """Whether the rows of a part are whole chunks."""
    size = type_.dtype.bytes
    return part.left * size % CHUNK == 0 and part.right * size % CHUNK == 0


@lru_cache(maxsize=4096)
def _units(type_: ST, part: Region, unit: int) -> frozenset[int]:
    """The chunks of a tile in which a part of it lies, or its bytes."""
    rows = np.arange(part.top, part.bottom)[:, np.newaxis]
    cols: Iterable[int] = range(part.left, part.right)
    offsets = type_.layout.offset(rows, np.fromiter(cols, np.int64)[np.newaxis])
    if unit == 1:
        offsets = offsets[..., np.newaxis] + np.arange(type_.dtype.bytes)
    return frozenset(np.unique(offsets // unit).tolist())
