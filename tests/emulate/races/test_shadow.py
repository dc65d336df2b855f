"""What memory remembers: forgetting accesses loses no race, and tiles over one another are told by their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykittens.emulate.memory import Area
from pykittens.emulate.races.clocks import (
    FENCE_TENSORS,
    OF_A_GROUP,
    PRODUCTS,
    TIME,
    GroupClock,
    new_clock,
)
from pykittens.emulate.races.shadow import AccessRecord, LaneMapping, SharedShadow, TensorShadow
from pykittens.emulate.regions import SharedMemory
from pykittens.emulate.watch import Access
from pykittens.ir.op import Engine
from pykittens.lang.pipeline import st as shared_tile
from pykittens.lang.pipeline import sv as shared_vector
from pykittens.types.dtypes import bf16, f32, int8

GROUPS = 3
SIZE = GROUPS * OF_A_GROUP

# -- a detector that forgets nothing -----------------------------------------------------------------


@dataclass
class Seen:
    """An access as the detector that forgets nothing keeps it; lanes None is a product."""

    number: int
    group: int
    access: Access
    region: Area
    lanes: int | None


@dataclass
class Memory:
    """Every access to every element; of each group, which accesses its warps and its next arrival know to be over."""

    seen: list[Seen] = field(default_factory=list)
    known: list[set[int]] = field(default_factory=lambda: [set() for _ in range(GROUPS)])
    done: list[set[int]] = field(default_factory=lambda: [set() for _ in range(GROUPS)])

    def races(self, new: Seen) -> set[tuple[int, int]]:
        """The earlier accesses with which a new one conflicts in some element, and nothing orders them."""
        found = set()
        for old in self.seen:
            both_read = old.access is new.access is Access.READ
            own = old.group == new.group and old.lanes is not None and old.lanes == new.lanes
            if both_read or own or old.number in self.known[new.group]:
                continue
            if cells(old.region) & cells(new.region):
                found.add((old.number, new.number))
        self.seen.append(new)
        return found

    def tell(self, group: int) -> set[int]:
        self.done[group] |= {
            s.number for s in self.seen if s.group == group and s.lanes is not None
        }
        return set(self.done[group])


def cells(region: Area) -> set[tuple[int, int]]:
    """The elements of a region, which begins and ends at multiples of 8 and 32."""
    rows, cols = range(region.top, region.bottom, 8), range(region.left, region.right, 32)
    return {(i, j) for i in rows for j in cols}


# -- programs of accesses and of what orders them ------------------------------------------------------

Event = tuple[Any, ...]
GROUP = st.integers(0, GROUPS - 1)
SPAN = st.tuples(st.integers(0, 5), st.integers(1, 4))
ACCESS = st.tuples(
    st.just("access"), GROUP, st.sampled_from(Access), SPAN, SPAN, st.sampled_from([0, 1])
)
PRODUCT = st.tuples(st.just("product"), GROUP, SPAN, SPAN)
ORDER = st.one_of(
    st.tuples(st.just("tells"), GROUP, GROUP),
    st.tuples(st.just("meets"), GROUP),
    st.tuples(st.just("finishes"), GROUP, st.integers(0, 1)),
)
PROGRAM = st.lists(st.one_of(ACCESS, PRODUCT, ORDER, ORDER), max_size=40)


def region(rows: tuple[int, int], cols: tuple[int, int]) -> Area:
    return Area(8 * rows[0], 8 * sum(rows), 32 * cols[0], 32 * sum(cols))


class Program:
    """Runs events under both detectors."""

    def __init__(self) -> None:
        self.clocks = [GroupClock(OF_A_GROUP * i, SIZE) for i in range(GROUPS)]
        self.groups = [object() for _ in range(GROUPS)]
        self.shadow, self.memory = TensorShadow(), Memory()
        self.products: list[list[int]] = [[] for _ in range(GROUPS)]
        self.found: set[tuple[int, int]] = set()
        self.exact: set[tuple[int, int]] = set()
        self.epoch = object()

    def run(self, events: list[Event]) -> None:
        for event in events:
            getattr(self, event[0])(*event[1:])

    def access(self, group: int, access: Access, rows: Any, cols: Any, lanes: int) -> None:
        clock = self.clocks[group]
        self.add(group, access, region(rows, cols), lanes, clock.first + TIME, clock.now)

    def product(self, group: int, rows: Any, cols: Any) -> None:
        clock = self.clocks[group]
        clock.products += 1
        self.products[group].append(len(self.memory.seen))
        first = clock.first
        self.add(group, Access.READ, region(rows, cols), None, first + PRODUCTS, clock.products)

    def add(self, group: int, access: Access, where: Area, lanes: int | None, *over: int) -> None:
        number = len(self.memory.seen)
        record = AccessRecord(
            self.groups[group],  # type: ignore[arg-type]
            number,  # type: ignore[arg-type]
            access,
            None if lanes is not None else Engine.PRODUCT,
            where,
            self.epoch,
            *over,
            lanes=LaneMapping(lanes) if lanes is not None else None,
        )
        self.shadow.add((), record, self.clocks[group].known, self.meet)
        self.exact |= self.memory.races(Seen(number, group, access, where, lanes))

    def meet(self, old: AccessRecord, new: AccessRecord, ordered: bool) -> None:
        if not ordered:
            self.found.add((old.call, new.call))  # type: ignore[arg-type]

    def tells(self, group: int, other: int) -> None:
        told = self.memory.tell(group)
        self.memory.known[other] |= told
        self.memory.done[other] |= told
        self.clocks[other].learn(self.clocks[group].signal())

    def meets(self, group: int) -> None:
        self.memory.known[group] = self.memory.tell(group)
        self.clocks[group].meet()

    def finishes(self, group: int, left: int) -> None:
        finished = max(len(self.products[group]) - left, 0)
        self.memory.done[group] |= set(self.products[group][:finished])
        self.clocks[group].finish(PRODUCTS, finished)


WIDE, NARROW = ((0, 4), (0, 4)), ((1, 1), (1, 1))


@given(PROGRAM)
@example(
    [
        ("access", 0, Access.WRITE, *NARROW, 0),
        ("tells", 0, 1),
        ("access", 1, Access.WRITE, *WIDE, 0),
        ("access", 2, Access.READ, *NARROW, 0),
    ]
)
@settings(max_examples=400)
def test_forgetting_accesses_loses_no_race_and_invents_none(events):
    program = Program()
    program.run(events)
    assert program.found <= program.exact
    assert bool(program.found) == bool(program.exact)


def test_an_access_that_a_later_write_covers_is_forgotten():
    program = Program()
    for _ in range(50):
        program.access(0, Access.WRITE, *WIDE, 0)
        program.access(0, Access.READ, *NARROW, 0)
        program.access(0, Access.READ, *NARROW, 0)
        program.meets(0)
    assert max(map(len, program.shadow.cells.values())) <= 3


def test_blocks_that_ran_before_are_in_no_order_with_those_that_run_now():
    program = Program()
    program.access(0, Access.WRITE, *WIDE, 0)
    program.tells(0, 1)
    program.epoch = object()
    program.access(1, Access.READ, *WIDE, 0)
    assert program.found == {(0, 1)}


def test_matrices_of_one_tensor_are_apart():
    program = Program()
    program.access(0, Access.WRITE, *WIDE, 0)
    clock = program.clocks[1]
    other = AccessRecord(
        program.groups[1],  # type: ignore[arg-type]
        1,  # type: ignore[arg-type]
        Access.WRITE,
        None,
        region(*WIDE),
        program.epoch,
        clock.first,
        clock.now,
    )
    program.shadow.add((1,), other, clock.known, program.meet)
    assert not program.found


# -- fences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "missing"),
    [
        (("fence", "meet"), False),
        (("meet",), True),
        (("meet", "fence"), True),  # nobody has been told of the fence
        (("meet", "fence", "meet"), False),
    ],
)
def test_a_fence_counts_when_it_comes_before_the_sync(order, missing):
    clock, met = GroupClock(0, SIZE), []
    group, epoch, shadow = object(), object(), TensorShadow()
    where = Area(0, 8, 0, 8)
    write = AccessRecord(
        group,
        None,
        Access.WRITE,
        None,
        where,
        epoch,
        TIME,
        clock.now,
        FENCE_TENSORS,
        LaneMapping("tile"),
    )  # type: ignore[arg-type]
    shadow.add((), write, clock.known, lambda *told: met.append(told))
    for step in order:
        getattr(clock, step)(*[FENCE_TENSORS] * (step == "fence"))
    read = AccessRecord(group, None, Access.READ, Engine.PRODUCT, where, epoch, PRODUCTS, 1)  # type: ignore[arg-type]
    shadow.add((), read, clock.known, lambda *told: met.append(told))
    assert met == ([(write, read, True)] if missing else [])


# -- tiles of one arena --------------------------------------------------------------------------------


@st.composite
def tiles(draw: Any) -> tuple[SharedMemory, Area]:
    """A tile somewhere in an arena and a part of it, as views are."""
    dtype = draw(st.sampled_from([bf16, f32, int8]))
    type_ = shared_tile(
        dtype, draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 32, 64, 128]))
    )
    memory = SharedMemory("t", type_, arena=0, start=1024 * draw(st.integers(0, 12)))
    height = draw(st.sampled_from([h for h in (8, 16, 32, 64) if type_.rows % h == 0]))
    width = draw(st.sampled_from([w for w in (16, 32, 64, 128) if type_.cols % w == 0]))
    top = height * draw(st.integers(0, type_.rows // height - 1))
    left = width * draw(st.integers(0, type_.cols // width - 1))
    return memory, Area(top, top + height, left, left + width)


@st.composite
def vectors(draw: Any) -> tuple[SharedMemory, Area]:
    """A vector somewhere in an arena and a part of it, down to one element."""
    type_ = shared_vector(draw(st.sampled_from([bf16, f32, int8])), 48)
    memory = SharedMemory("v", type_, arena=0, start=1024 * draw(st.integers(0, 2)))
    length = draw(st.sampled_from([n for n in range(1, 49) if 48 % n == 0]))
    left = length * draw(st.integers(0, 48 // length - 1))
    return memory, Area(0, 1, left, left + length)


def bytes_of(memory: SharedMemory, part: Area) -> set[int]:
    """The bytes of the arena in which a part of a tile lies, element by element."""
    rows, cols = np.mgrid[part.top : part.bottom, part.left : part.right]
    first = memory.start + memory.type.layout.offset(rows, cols).ravel()
    return {int(b) + i for b in first for i in range(memory.type.dtype.bytes)}


def meetings(
    one: tuple[SharedMemory, Area],
    other: tuple[SharedMemory, Area],
    lanes: LaneMapping,
    same: bool,
) -> int:
    """How many conflicts there are when one group writes to the one part and then a group to the other."""
    shadow, met, epoch = SharedShadow(), [], object()
    one[0].overlapping, other[0].overlapping = [other[0]], [one[0]]
    group, known = object(), new_clock(SIZE)
    for (memory, part), writer in ((one, group), (other, group if same else object())):
        record = AccessRecord(writer, None, Access.WRITE, None, part, epoch, 0, 1, -1, lanes)  # type: ignore[arg-type]
        shadow.add(memory, record, known, lambda *told: met.append(told))
    return len(met)


@given(tiles() | vectors(), tiles() | vectors())
@settings(max_examples=400)
def test_parts_of_tiles_over_one_another_conflict_where_they_share_a_byte(one, other):
    expected = bool(bytes_of(*one) & bytes_of(*other))
    assert meetings(one, other, LaneMapping("tile"), same=False) == expected


def test_equal_parts_of_unequal_tiles_are_those_of_other_lanes():
    whole = Area(0, 64, 0, 64)
    narrow = SharedMemory("a", shared_tile(bf16, 64, 64), arena=0)
    alike = SharedMemory("b", shared_tile(bf16, 64, 64), arena=0)
    wide = SharedMemory("c", shared_tile(f32, 64, 64), arena=0)
    later = SharedMemory("d", shared_tile(bf16, 64, 64), arena=0, start=1024)
    assert meetings((narrow, whole), (alike, whole), LaneMapping("tile"), same=True) == 0
    assert meetings((narrow, whole), (wide, whole), LaneMapping("tile"), same=True) == 1
    assert meetings((narrow, whole), (later, whole), LaneMapping("tile"), same=True) == 1
