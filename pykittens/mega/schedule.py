"""Which instruction waits for which, by counters; and the words that tell the running kernel.

A role of an instruction that reads what others write waits for counters, unless an earlier wait of this role shows that
these have written. The instructions that write what the same roles need share a counter; each group that writes adds
one, and readers wait for the total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from pykittens.errors import LanguageError
from pykittens.ir.values import Value
from pykittens.mega.boxes import Numbers, RoleBody, Touched
from pykittens.mega.flows import Flows, flows
from pykittens.mega.interpreter import OF_A_ROLE, Interpreter, word_of_role
from pykittens.runtime.arguments import Arguments, check, known_values

if TYPE_CHECKING:
    from pykittens.mega.program import Program

Event = tuple[int, int]  # an instruction, by its number in the program, and a role, by its number
# A tensor, the first element along each axis, and that after the last.
Box = tuple[str, tuple[int, ...], tuple[int, ...]]


@dataclass
class Schedule:
    """The instructions of a program on their blocks, with the boxes that they touch, and what they wait for and signal.

    roles, groups: the name and the number of groups of each role. flows: by kind, the roles that a role knows. shapes:
    of the tensors. tagged: those whose elements have tags. reads, writes: the boxes of tensors that instructions write.
    waits: counters and the values to wait for. signals: the counter to which each group of a role adds one.
    """

    program: Program
    roles: list[str]
    groups: list[int]
    flows: dict[str, dict[int, list[int]]]
    shapes: dict[str, tuple[int, ...]]
    tagged: frozenset[str] = frozenset()
    reads: dict[Event, list[Box]] = field(default_factory=dict)
    writes: dict[Event, list[Box]] = field(default_factory=dict)
    waits: dict[Event, list[tuple[int, int]]] = field(default_factory=dict)
    signals: dict[Event, int] = field(default_factory=dict)
    _writing: dict[Box, Numbers] = field(default_factory=dict, init=False, repr=False)
    _is_written: dict[Box, bool] = field(default_factory=dict, init=False, repr=False)

    def writing(self, box: Box) -> Numbers:
        """The events that write elements of a box, in their order: (events, 2)."""
        if box not in self._writing:
            of_tensor = self.writers.get(box[0])
            none = np.empty((0, 2), np.int64)
            self._writing[box] = none if of_tensor is None else of_tensor.writing(box)
        return self._writing[box]

    def is_written(self, box: Box) -> bool:
        """Whether instructions write all elements of a box."""
        if box not in self._is_written:
            of_tensor = self.writers.get(box[0])
            self._is_written[box] = of_tensor is not None and of_tensor.cover(box)
        return self._is_written[box]

    @cached_property
    def writers(self) -> dict[str, Writers]:
        """The boxes of each tensor that instructions write, once all are found."""
        return Writers.of(self)

    @cached_property
    def queues(self) -> list[list[int]]:
        """The numbers of the instructions of each block, in their order; all in one queue if the program is dynamic."""
        count = 1 if self.program.dynamic else self.program.blocks
        queues: list[list[int]] = [[] for _ in range(count)]
        for number, step in enumerate(self.program.instructions):
            queues[step.block or 0].append(number)
        return queues

    def stream(self, event: Event) -> Event:
        """A name of the events that run one after another with an event: its block and role.

        In a dynamic program no other is known to run in the block, and the event has a stream of its own.
        """
        block = self.program.instructions[event[0]].block
        return event if block is None else (block, event[1])

    @property
    def counters(self) -> int:
        return len(set(self.signals.values()))

    def text(self, event: Event) -> str:
        """The instruction of an event."""
        return f"{self.program.instructions[event[0]]}"

    def encoded(self) -> tuple[np.ndarray, np.ndarray]:
        """The words of all instructions, and their waits: int32 (queues, longest queue, words) and (waits, 2)."""
        kinds = self.program.kinds
        words = word_of_role(kinds, len(self.groups))
        code = np.zeros((len(self.queues), max(map(len, self.queues)), words), np.int32)
        waits = list[tuple[int, int]]()
        for block, queue in enumerate(self.queues):
            for turn, number in enumerate(queue):
                step, row = self.program.instructions[number], code[block, turn]
                row[0] = 1 + kinds.index(step.kind)
                row[1 : 1 + len(step.fields)] = step.fields
                for role in range(len(self.groups)):
                    at, mine = word_of_role(kinds, role), self.waits.get((number, role), [])
                    row[at : at + OF_A_ROLE] = (
                        len(waits),
                        len(mine),
                        self.signals.get((number, role), -1),
                    )
                    waits += mine
        return code, np.array(waits or [(0, 0)], np.int32)


def derive(program: Program, tensors: Mapping[str, Any]) -> Schedule:
    """The schedule of a program for tensors of these shapes.

    A LanguageError if an instruction writes what another has written, or reads what is not written before.
    """
    made, arguments = recording(program, tensors)
    host = known_values(made.kernel, check(program.kernel().parameters, arguments, {}))
    places = list(made.merging.roles)
    bodies = {key: role.body for key, role in made.merging.found.items()}
    known = {kind.name: flows(kind.name, bodies, made.written) for kind in program.kinds}
    schedule = Schedule(
        program,
        [f"{kind} {number}" if number else kind for kind, number in places],
        [role.context.groups for role in made.merging.roles.values()],
        {kind: _numbered(of, places) for kind, of in known.items()},
        {name: tuple(x.shape) for name, x in tensors.items() if hasattr(x, "shape")},
        frozenset(made.tagged),
    )
    _find_boxes(schedule, made, host)
    _check_written_once(schedule)
    _count(schedule, _needed(schedule))
    return schedule


def _numbered(of: Flows, places: list[Any]) -> dict[int, list[int]]:
    return {places.index(p): [places.index(q) for q in known] for p, known in of.items()}


def recording(program: Program, tensors: Mapping[str, Any]) -> tuple[Interpreter, tuple[Any, ...]]:
    """The recording of a program for these tensors, and arguments of its kernel, without instructions."""
    code, waits = np.zeros((program.blocks, 1, 1), np.int32), np.zeros((1, 2), np.int32)
    arguments = program.words(code, waits, 1, 1, tensors)
    return recorded(program, arguments)[0], arguments


def recorded(program: Program, arguments: tuple[Any, ...]) -> tuple[Interpreter, Arguments]:
    """The recording of a program for arguments of its kernel, and the arguments after their checks."""
    kernel = program.kernel()
    checked = check(kernel.parameters, arguments, {})
    found = kernel.record(checked)
    return next(made for made in program.recorded if made.kernel is found), checked


# -- boxes -----------------------------------------------------------------------------------------


def _find_boxes(schedule: Schedule, made: Interpreter, host: Mapping[Value, Any]) -> None:
    """Set the boxes of tensors that instructions write."""
    places, steps = list(made.merging.roles), schedule.program.instructions
    of_kind: dict[str, list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        of_kind[step.kind.name].append(number)
    for (kind, place), role in made.merging.found.items():
        if kind not in of_kind:
            continue
        numbers = np.array(of_kind[kind])
        groups = role.groups if role.index is not None else 1
        values = [(steps[n].block or 0, *steps[n].fields) for n in numbers]
        columns = np.repeat(np.array(values, np.int64), groups, axis=0)
        known = made.fields[kind]
        given = dict(zip((made.block, *known.values()), columns.T, strict=False))
        for name, below in steps[numbers[0]].kind.numbers.items():
            given[known[name]] = np.array([[0], [below - 1]]).repeat(len(columns), axis=1)
        if role.index is not None:
            given[role.index] = np.tile(np.arange(groups), len(numbers))
        of_interest = made.written | made.tagged
        for touched in RoleBody(kind, role.body, host, of_interest).touched(given):
            _add(schedule, numbers[touched.owner // groups], places.index(place), touched)


def _add(schedule: Schedule, owner: Numbers, role: int, touched: Touched) -> None:
    """Add the boxes of an operation: one for each instruction if its tiles fill it, else each tile once."""
    rank = touched.low.shape[1]
    rows = np.unique(np.column_stack([owner, touched.low, touched.high]), axis=0)
    rows = rows[(rows[:, 1 : 1 + rank] < rows[:, 1 + rank :]).all(axis=1)]
    if not len(rows):
        return
    low, high = rows[:, 1 : 1 + rank], rows[:, 1 + rank :]
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    first, last = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    sizes = np.add.reduceat((high - low).prod(axis=1), starts)
    is_filled = sizes == (last - first).prod(axis=1)
    boxes = schedule.writes if touched.writes else schedule.reads
    ends = [*starts[1:].tolist(), len(rows)]
    for i, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        some = zip(first[i : i + 1].tolist(), last[i : i + 1].tolist(), strict=True)
        if not is_filled[i]:
            some = zip(low[start:end].tolist(), high[start:end].tolist(), strict=True)
        mine = boxes.setdefault((int(rows[start, 0]), role), [])
        mine += [(touched.tensor, tuple(a), tuple(b)) for a, b in some]


@dataclass(frozen=True)
class Writers:
    """The boxes of a tensor that instructions write, in the order of the program; events: (boxes, 2)."""

    events: Numbers
    low: Numbers
    high: Numbers

    @staticmethod
    def of(schedule: Schedule) -> dict[str, Writers]:
        """Those of each tensor."""
        found: dict[str, list[tuple[Event, Box]]] = defaultdict(list)
        for event in sorted(schedule.writes):
            for box in schedule.writes[event]:
                found[box[0]].append((event, box))
        return {
            name: Writers(
                np.array([event for event, _ in some]),
                np.array([low for _, (_, low, _) in some]),
                np.array([high for _, (_, _, high) in some]),
            )
            for name, some in found.items()
        }

    def writing(self, box: Box) -> Numbers:
        """The events that write elements of a box, in their order."""
        return np.unique(self.events[self._meeting(box)], axis=0)

    def cover(self, box: Box) -> bool:
        """Whether all elements of a box are written."""
        written = np.zeros(np.subtract(box[2], box[1]), np.bool_)
        found = self._meeting(box)
        for low, high in zip(self.low[found], self.high[found], strict=True):
            sides = zip(np.maximum(low - box[1], 0), high - box[1], strict=True)
            written[tuple(slice(a, b) for a, b in sides)] = True
        return bool(written.all())

    def _meeting(self, box: Box) -> Any:
        """The numbers of the boxes that have elements of a box."""
        return (self.low < box[2]).all(axis=1) & (self.high > box[1]).all(axis=1)


def box_text(box: Box) -> str:
    """A box as it is written in Python."""
    sides = (f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(*box[1:], strict=True))
    return f"{box[0].partition('.')[2]}[{', '.join(sides)}]"


def _check_written_once(schedule: Schedule) -> None:
    """Raise if two instructions write an element."""
    for tensor, writers in schedule.writers.items():
        found = _overlap(writers, np.arange(len(writers.low)), 0)
        if found is not None:
            one, other = (schedule.text(tuple(writers.events[i])) for i in found)
            low = np.maximum(*(writers.low[i] for i in found)).tolist()
            high = np.minimum(*(writers.high[i] for i in found)).tolist()
            raise LanguageError(
                f"{one} and {other} both write {box_text((tensor, tuple(low), tuple(high)))}",
                help="let every element be written once: give the tensor an axis for the layer or the step",
            )


def _overlap(writers: Writers, some: Numbers, axis: int) -> tuple[int, int] | None:
    """Two of some boxes of different instructions that have elements in common, if they have on the axes before."""
    if axis == writers.low.shape[1]:
        step = writers.events[some, 0]
        others = some[step != step[0]]
        return (int(some[0]), int(others[0])) if len(others) else None
    low, high = writers.low[some, axis], writers.high[some, axis]
    starts, of = np.unique(low, return_inverse=True)
    ends = np.zeros_like(starts)
    np.maximum.at(ends, of, high)
    if (ends[:-1] <= starts[1:]).all():  # by their start, boxes are apart on this axis
        order = np.argsort(of, kind="stable")
        parts = np.split(some[order], np.flatnonzero(np.diff(of[order])) + 1)
        return next((pair for part in parts if (pair := _overlap(writers, part, axis + 1))), None)
    for i, box in enumerate(some.tolist()):
        rest = some[i + 1 :]
        both = (writers.low[rest] < writers.high[box]) & (writers.high[rest] > writers.low[box])
        other = both.all(axis=1) & (writers.events[rest, 0] != writers.events[box, 0])
        if other.any():
            return box, int(rest[np.argmax(other)])
    return None


# -- waits -----------------------------------------------------------------------------------------


class Clocks:
    """What roles know to be over: sets of the events that write, as the bits of ints, by the stream of a role.

    seen: by waits of the role itself, after which it may read. known: also by stages of rings that others have filled;
    its signals pass this on.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.events = schedule, sorted(schedule.writes)
        self.bits = {event: 1 << number for number, event in enumerate(self.events)}
        self.seen, self.known = defaultdict[Event, int](int), defaultdict[Event, int](int)
        self._writing = dict[Box, int]()

    def unseen(self, event: Event, box: Box) -> Event | None:
        """The first event that writes elements of a box on whose being over the role of an event may not rely."""
        if box not in self._writing:
            mine = (self.bits[step, role] for step, role in self.schedule.writing(box).tolist())
            self._writing[box] = sum(mine)
        late = self._writing[box] & ~self.seen[self.schedule.stream(event)]
        return self.events[(late & -late).bit_length() - 1] if late else None

    def wait(self, event: Event, over: int) -> None:
        """The role has waited until these events are over."""
        self.seen[self.schedule.stream(event)] |= over

    def end(self, event: Event) -> int:
        """The role has ended an instruction; returns the events that its signal says are over.

        The roles of an instruction end in the order of its flows.
        """
        step, role = event
        mine, kind = self.schedule.stream(event), self.schedule.program.instructions[step].kind
        known = self.known[mine] | self.seen[mine]
        for other in self.schedule.flows[kind.name].get(role, ()):
            # Not what the other does after its fill.
            before = self.known[self.schedule.stream((step, other))]
            known |= before & ~self.bits.get((step, other), 0)
        self.known[mine] = known | self.bits.get(event, 0)
        return self.known[mine]


def _needed(schedule: Schedule) -> dict[Event, list[Box]]:
    """For each event the boxes for whose writers it must wait."""
    clocks, of_box = Clocks(schedule), dict[Box, int]()
    after, found = dict[Event, int](), dict[Event, list[Box]]()
    for step, this in enumerate(schedule.program.instructions):
        for role in schedule.flows[this.kind.name]:
            event = step, role
            for box in sorted(schedule.reads.get(event, ()), key=_size, reverse=True):
                mine = schedule.writing(box)
                _check_before(schedule, event, box, mine)
                if box[0] in schedule.tagged:
                    check_tagged(schedule, event, box)
                elif clocks.unseen(event, box) is not None:
                    found.setdefault(event, []).append(box)
                    if box not in of_box:
                        of_box[box] = reduce(or_, (after[s, r] for s, r in mine.tolist()))
                    clocks.wait(event, of_box[box])
            ended = clocks.end(event)
            if event in schedule.writes:
                after[event] = ended
    return found


def _check_before(schedule: Schedule, event: Event, box: Box, writers: Numbers) -> None:
    """Raise if a writer of a box that is read comes later, or is the instruction itself; they are in order."""
    if len(writers) and writers[-1, 0] >= event[0]:
        last = schedule.text((int(writers[-1, 0]), 0))
        if writers[-1, 0] == event[0]:
            raise LanguageError(
                f"{schedule.text(event)} reads {box_text(box)}, which it writes itself",
                help="let it write elsewhere: to another tensor, or along an axis for the step",
            )
        raise LanguageError(
            f"{schedule.text(event)} reads {box_text(box)}, which {last} writes after it",
            help="add an instruction to the program before those that read what it writes",
        )


def check_tagged(schedule: Schedule, event: Event, box: Box) -> None:
    """Raise if a role waits for the tags of elements that no instruction writes."""
    if not schedule.is_written(box):
        raise LanguageError(
            f"{schedule.text(event)} waits for the tags of {box_text(box)}, some of which no instruction writes",
            help="let an instruction write them with the tag of the launch, also if they are given",
        )


def _size(box: Box) -> int:
    return int(np.prod(np.subtract(box[2], box[1])))


def _count(schedule: Schedule, needed: Mapping[Event, list[Box]]) -> None:
    """Set counters, waits and signals: a counter for all that write what the same readers need."""
    readers: dict[Box, list[Event]] = defaultdict(list)
    for event, some in sorted(needed.items()):
        for box in some:
            readers[box].append(event)
    # Boxes with the same readers have one number.
    numbers: dict[tuple[Event, ...], int] = {}
    number_of = {box: numbers.setdefault(tuple(of), len(numbers)) for box, of in readers.items()}
    needed_by: dict[Event, set[int]] = defaultdict(set)
    for box, number in number_of.items():
        for step, role in schedule.writing(box).tolist():
            needed_by[step, role].add(number)
    counter_of: dict[frozenset[int], int] = {}
    totals, counters = defaultdict[int, int](int), defaultdict[int, list[int]](list)
    for event, of in sorted(needed_by.items()):
        key = frozenset(of)
        if key not in counter_of:
            counter_of[key] = len(counter_of)
            for number in of:
                counters[number].append(counter_of[key])
        schedule.signals[event] = counter_of[key]
        totals[counter_of[key]] += schedule.groups[event[1]]
    seen: dict[Event, set[int]] = defaultdict(set)  # by stream
    for event, some in sorted(needed.items()):
        known = seen[schedule.stream(event)]
        new = {c for box in some for c in counters[number_of[box]]} - known
        known |= new
        schedule.waits[event] = [(c, totals[c]) for c in sorted(new)]
