"""The record of earlier accesses to memory, with which later accesses are compared.

Source: Flanagan and Freund, "FastTrack", PLDI 2009: the last of several ordered accesses is enough. Here an access
is a rectangle of a tile, so its record is kept until a later write covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pykittens.emulate.memory import Area, Box
from pykittens.emulate.races.clocks import Clock
from pykittens.emulate.regions import SharedMemory
from pykittens.emulate.watch import Access
from pykittens.ir.nodes import Call
from pykittens.ir.op import Engine
from pykittens.types.tiles import ST

if TYPE_CHECKING:
    from pykittens.emulate.group import Group

Columns = np.ndarray[Any, np.dtype[np.int64]]

LEAST_CELL = (16, 64)  # the fewest rows and columns whose accesses are kept in one list


class LaneMapping(NamedTuple):
    """How elements are assigned to the lanes of a group: if two mappings are equal, the same lane moves each element.

    holds: how the lanes hold the tile or vector. row, col: its first element, as far as the assignment depends on it.
    """

    holds: object
    row: int = 0
    col: int = 0


@dataclass(eq=False, slots=True)
class AccessRecord:
    """An access: its group, call and region, and the component and value of a clock at which the access is over.

    together: the blocks that ran at once, whose clocks can be compared. fence: for a write by lanes, the component of
    the writer's fences, for a tile that was sent, that of fences of its receiver. lanes: which lane moves which
    element; None for an engine, and for a product of single warps, whose lanes read elements of each other. by_row:
    whether the rows of a tile are moved one by one, to rows that an index names. of_a_flag: whether it signals a flag
    or waits for one, or its elements have tags. elements: the columns that it touches, in ascending order; None for all
    of the region.
    """

    group: Group
    call: Call
    access: Access
    engine: Engine | None
    region: Area
    together: object
    component: int
    value: int
    fence: int = -1
    lanes: LaneMapping | None = None
    by_row: bool = False
    barrier: object = None
    of_a_flag: bool = False
    elements: Columns | None = None

    def overlaps(self, other: AccessRecord) -> bool:
        """Whether both access an element."""
        if not self.region.overlaps(other.region):
            return False
        if self.elements is None or other.elements is None:
            return _has_any(self, other.region) and _has_any(other, self.region)
        return bool(np.isin(self.elements, other.elements, assume_unique=True).any())

    def drop(self, other: AccessRecord) -> bool:
        """Forget the elements that the other accesses, too; whether none is left."""
        if other.elements is None and other.region.covers(self.region):
            return True
        if self.elements is None or other.elements is None or self.region.top != other.region.top:
            return False
        self.elements = np.setdiff1d(self.elements, other.elements, assume_unique=True)
        return not len(self.elements)

    def join(self, other: AccessRecord) -> None:
        """Access the elements of another record, too, both of which name elements."""
        assert self.elements is not None
        assert other.elements is not None
        self.elements = np.union1d(self.elements, other.elements)
        a, b = self.region, other.region
        self.region = Area(
            min(a.top, b.top), max(a.bottom, b.bottom), min(a.left, b.left), max(a.right, b.right)
        )

    def ended(self, other: AccessRecord, known: Clock) -> bool:
        """Whether this access is over before the other starts, whose group knows this clock."""
        return self.together is other.together and known[self.component] >= self.value

    @property
    def is_atomic(self) -> bool:
        """Whether it is one step, so that unordered accesses of this kind are no race."""
        return self.of_a_flag or self.access is Access.COMBINE

    @property
    def of_ended_blocks(self) -> tuple[object, ...]:
        """Equal for accesses of ended blocks that conflict with the same later accesses, as the same lines."""
        region = self.region if self.elements is None else self.region.top
        return self.call, region, self.access, self.engine, self.of_a_flag

    @property
    def needs_fences(self) -> bool:
        """Whether it sees the writes of lanes only after a fence, as an access by the async proxy."""
        return self.engine is not None and self.engine is not Engine.SEND

    def fenced(self, known: Clock) -> bool:
        """Whether an engine sees this access: always, unless lanes wrote without a fence."""
        return bool(self.fence < 0 or self.access.reads or known[self.fence] >= self.value)

    def by_the_same_lanes(self, other: AccessRecord) -> bool:
        """Whether each lane touches the same elements in both accesses, so that program order is enough."""
        same_group = self.group is other.group
        return same_group and self.lanes is not None and self.lanes == other.lanes


def _has_any(record: AccessRecord, region: Area) -> bool:
    """Whether one of the columns of a record lies in a region."""
    if record.elements is None:
        return True
    first, end = np.searchsorted(record.elements, (region.left, region.right))
    return bool(first < end)


Meet = Callable[[AccessRecord, AccessRecord, bool], None]


def compare(
    records: list[AccessRecord], new: AccessRecord, known: Clock, meet: Meet
) -> list[AccessRecord]:
    """Compare a new access with older ones of the same tile; returns the accesses to keep.

    `meet` is called for each conflict, and with whether the two are ordered, so that only a fence is missing.
    """
    kept, joined = [], []
    for old in records:
        if not old.overlaps(new):
            if _is_at_the_same_time(old, new) and old.elements is not None:
                joined.append(old)
            else:
                kept.append(old)
            continue
        ended = old.ended(new, known)
        judge(old, new, known, ended, meet)
        if _is_at_the_same_time(old, new):
            new.lanes = old.lanes if old.lanes == new.lanes else None
            joined.append(old)
        elif not _is_replaced(old, new, ended) or not old.drop(new):
            kept.append(old)
    kept.append(new)
    for old in joined:
        if old.elements is not None:
            new.join(old)
    return kept


def _distinct(records: list[AccessRecord], new: AccessRecord) -> list[AccessRecord]:
    """The records without those of ended blocks that conflict with what an earlier one conflicts with."""
    kept: list[AccessRecord] = []
    past: dict[object, AccessRecord] = {}
    for old in records:
        first = old if old.together is new.together else past.setdefault(old.of_ended_blocks, old)
        if first is old:
            kept.append(old)
        elif first.elements is not None:
            first.join(old)
    return kept


def judge(
    old: AccessRecord,
    new: AccessRecord,
    known: Clock,
    ended: bool,
    meet: Meet,
    lies_alike: bool = True,
) -> None:
    """Call `meet` if two accesses to the same memory conflict.

    lies_alike: whether equal regions are the same bytes, as in one tile or in two tiles of one type at one address.
    """
    if old.access.reads and new.access.reads:
        return
    if not ended:
        if not (lies_alike and old.by_the_same_lanes(new)):
            meet(old, new, False)
    elif new.needs_fences and not old.fenced(known):
        meet(old, new, True)


def _is_replaced(old: AccessRecord, new: AccessRecord, ended: bool) -> bool:
    """Whether any later access that is ordered after the new access is ordered after the old one, too.

    Then the old one need not be kept for the elements that the new one accesses.
    """
    if new.access is Access.WRITE:
        return ended
    if (old.access, old.engine, old.of_a_flag) != (new.access, new.engine, new.of_a_flag):
        return False
    if ended:
        return old.access.reads or old.fence == new.fence
    same = old.component == new.component and old.together is new.together
    return same and old.lanes == new.lanes


def _is_at_the_same_time(old: AccessRecord, new: AccessRecord) -> bool:
    """Whether two accesses of lanes to the same region are over at the same time, so that one record is enough.

    An operation that names rows or elements by an index accesses one of them many times, each time by other lanes.
    """
    named = old.elements is not None and new.elements is not None
    of_a_row = named and old.region.top == new.region.top
    return (
        (of_a_row or (old.by_row and new.by_row and old.region == new.region))
        and (old.call, old.access) == (new.call, new.access)
        and (old.component, old.value) == (new.component, new.value)
        and old.together is new.together
    )


def in_matrices(box: Box, record: AccessRecord) -> Iterator[tuple[tuple[int, ...], AccessRecord]]:
    """An access as accesses to matrices of the last two axes of its tensor, with the coordinates of each matrix.

    Two accesses touch the same element only if they do in one of these matrices, whatever the axes of their tiles.
    """
    ranges = list(box.ranges)
    across = max(axis for axis, i in enumerate(box.place) if isinstance(i, slice))
    if record.elements is None or across == len(ranges) - 1:
        yield from _in_matrices(ranges, record)
        return
    for element in record.elements.tolist():
        ranges[across] = range(element, element + 1)
        yield from _in_matrices(ranges, replace(record, elements=None))


def _in_matrices(
    ranges: Sequence[range], record: AccessRecord
) -> Iterator[tuple[tuple[int, ...], AccessRecord]]:
    *leading, rows, cols = ranges if len(ranges) > 1 else (range(1), *ranges)
    area = Area(rows.start, rows.stop, cols.start, cols.stop)
    part = record if area == record.region else replace(record, region=area)
    for at in product(*leading):
        yield at, part


class TensorShadow:
    """The accesses to one tensor, in cells about as large as the moved tiles."""

    def __init__(self) -> None:
        self.cells: dict[tuple[object, int, int], list[AccessRecord]] = {}
        self.cell: tuple[int, int] | None = None

    def add(self, leading: tuple[int, ...], new: AccessRecord, known: Clock, meet: Meet) -> None:
        """Compare an access to a matrix of the tensor with earlier ones, and keep it."""
        for cell in self._cells(leading, new):
            # Records of elements are joined, each cell's with its own.
            own = new if new.elements is None else replace(new)
            records = _distinct(self.cells.get(cell, []), own)
            self.cells[cell] = compare(records, own, known, meet)

    def _cells(
        self, leading: tuple[int, ...], new: AccessRecord
    ) -> Iterator[tuple[object, int, int]]:
        region = new.region
        if self.cell is None:
            rows, cols = region.bottom - region.top, region.right - region.left
            self.cell = max(rows, LEAST_CELL[0]), max(cols, LEAST_CELL[1])
        height, width = self.cell
        if new.elements is not None:
            for j in np.unique(new.elements // width).tolist():
                yield leading, region.top // height, j
            return
        for i in range(region.top // height, (region.bottom - 1) // height + 1):
            for j in range(region.left // width, (region.right - 1) // width + 1):
                yield leading, i, j


class SharedShadow:
    """The accesses to the shared tiles of blocks that run at once."""

    def __init__(self) -> None:
        self.records: dict[SharedMemory, list[AccessRecord]] = {}

    def add(self, memory: SharedMemory, new: AccessRecord, known: Clock, meet: Meet) -> None:
        """Compare an access to a tile with earlier ones, also with those of overlapping tiles, and keep it."""
        self.records[memory] = compare(self.records.get(memory, []), new, known, meet)
        for other in memory.overlapping:
            lies_alike = (other.type, other.start) == (memory.type, memory.start)
            for old in self.records.get(other, ()):
                if _share_bytes(memory, new.region, other, old.region):
                    judge(old, new, known, old.ended(new, known), meet, lies_alike)


def _share_bytes(a: SharedMemory, region: Area, b: SharedMemory, other: Area) -> bool:
    """Whether regions of two tiles of one arena have a byte in common."""
    unit = CHUNK if _is_of_chunks(a.type, region) and _is_of_chunks(b.type, other) else 1
    first, second = _units(a.type, region, unit), _units(b.type, other, unit)
    distance = (b.start - a.start) // unit
    return not first.isdisjoint(c + distance for c in second)


CHUNK = 16  # bytes that every swizzle keeps together


def _is_of_chunks(type_: ST, region: Area) -> bool:
    """Whether the rows of a region are whole chunks."""
    size = type_.dtype.bytes
    return region.left * size % CHUNK == 0 and region.right * size % CHUNK == 0


@lru_cache(maxsize=4096)
def _units(type_: ST, region: Area, unit: int) -> frozenset[int]:
    """The chunks, or bytes, of a tile that a region covers."""
    rows = np.arange(region.top, region.bottom)[:, np.newaxis]
    cols = np.arange(region.left, region.right)[np.newaxis]
    offsets = type_.layout.offset(rows, cols)
    if unit == 1:
        offsets = offsets[..., np.newaxis] + np.arange(type_.dtype.bytes)
    return frozenset(np.unique(offsets // unit).tolist())
