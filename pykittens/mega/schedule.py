"""Which instruction waits for which, by counters; and the words that tell the running kernel.

A role of an instruction that reads what others write waits for counters, unless an earlier wait of this role shows that
these have written. If elements are written again, a role that writes waits as well, for those that have read or written
them before. The roles that the same ones wait for share a counter; each of their groups adds one at its end, and those
that wait do so for the total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pykittens.errors import LanguageError
from pykittens.ir.values import Value
from pykittens.mega.accesses import NONE, UNKNOWN, Accesses, Box, Event, box_text
from pykittens.mega.boxes import Numbers, RoleBody, Touched
from pykittens.mega.flows import flows, read_ends
from pykittens.mega.interpreter import OF_A_ROLE, Interpreter, padded, word_of_role
from pykittens.mega.waits import derive_waits
from pykittens.runtime.arguments import Arguments, check, known_values

if TYPE_CHECKING:
    from pykittens.mega.program import Program


# By kind, role and tensor; the owner is the number of the instruction and the group.
TouchedBy = dict[tuple[str, int, str], list[Touched]]


@dataclass
class Schedule:
    """The instructions of a program on their blocks, with the boxes that they touch, and what they wait for and signal.

    roles, groups: the name and the number of groups of each role. read_ends: by kind, role and tensor, the roles at
    whose ends the reads of the role are over; none if they are not known. shapes: of the tensors. tagged: those whose
    elements have tags. reads, writes: the boxes of tensors that instructions write. flows: by kind, the roles that a
    role knows. waits: counters and the values to wait for. signals: the counter to which each group of a role adds one.
    """

    program: Program
    roles: list[str]
    groups: list[int]
    read_ends: dict[tuple[str, int, str], Set[int]]
    shapes: dict[str, tuple[int, ...]]
    tagged: frozenset[str] = frozenset()
    reads: dict[Event, list[Box]] = field(default_factory=dict)
    writes: dict[Event, list[Box]] = field(default_factory=dict)
    waits: dict[Event, list[tuple[int, int]]] = field(default_factory=dict)
    signals: dict[Event, int] = field(default_factory=dict)
    flows: dict[str, dict[int, Set[int]]] = field(default_factory=dict)
    _touching: dict[tuple[Box, bool], Numbers] = field(default_factory=dict, init=False, repr=False)
    _is_written: dict[Box, bool] = field(default_factory=dict, init=False, repr=False)

    def touching(self, box: Box, reads: bool = False) -> Numbers:
        """The events at whose ends writes, or reads, of elements of a box are over, in their order: (events, 2)."""
        if (box, reads) not in self._touching:
            of_tensor = (self.readers if reads else self.writers).get(box[0], NONE)
            self._touching[box, reads] = of_tensor.touching(box)
        return self._touching[box, reads]

    def count_before(self, step: int, box: Box, reads: bool) -> int:
        """How many of these are those of earlier instructions; all, if no element is written again."""
        events = self.touching(box, reads)
        return int(np.searchsorted(events[:, 0], step)) if self.rewrites else len(events)

    def is_written(self, box: Box) -> bool:
        """Whether instructions write all elements of a box."""
        if box not in self._is_written:
            self._is_written[box] = self.writers.get(box[0], NONE).cover(box)
        return self._is_written[box]

    @cached_property
    def writers(self) -> dict[str, Accesses]:
        """The boxes of each tensor that instructions write, once all are found."""
        return Accesses.of(
            (event, box) for event in sorted(self.writes) for box in self.writes[event]
        )

    @cached_property
    def readers(self) -> dict[str, Accesses]:
        """The boxes of each tensor that instructions read, with the events at whose ends they have."""
        kinds = [step.kind.name for step in self.program.instructions]
        return Accesses.of(
            ((step, end), box)
            for step, role in sorted(self.reads)
            for box in self.reads[step, role]
            for end in self.read_ends[kinds[step], role, box[0]] or [UNKNOWN]
        )

    @cached_property
    def rewrites(self) -> bool:
        """Whether elements that an instruction reads or writes are written by it, or by a later one."""
        untagged = self.writers.keys() - self.tagged
        if any(self.writers[tensor].pair() is not None for tensor in untagged):
            return True
        read = ((step, box) for (step, _), boxes in self.reads.items() for box in boxes)
        return any(
            (self.touching(box)[-1:, 0] >= step).any() for step, box in read if box[0] in untagged
        )

    @cached_property
    def ends(self) -> set[Event]:
        """The events at whose ends there are accesses over for which others may wait."""
        readers = self.readers.values() if self.rewrites else ()
        return {
            *self.writes,
            *((step, role) for some in readers for step, role in some.events.tolist()),
        }

    def tagged_reads(self, event: Event) -> list[Box]:
        """The boxes for whose tags an event waits."""
        return [box for box in self.reads.get(event, ()) if box[0] in self.tagged]

    def accesses(self, event: Event) -> list[tuple[Box, bool]]:
        """The boxes that an event accesses, each with whether reads, or else writes, must be over before."""
        reads = [box for box in self.reads.get(event, ()) if box[0] not in self.tagged]
        written = self.writes.get(event, ()) if self.rewrites else ()
        writes = [box for box in written if box[0] not in self.tagged]
        return [*((box, True) for box in writes), *((box, False) for box in reads + writes)]

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

    def events(self, step: int) -> list[Event]:
        """Those of an instruction, in an order in which they can end."""
        kind = self.program.instructions[step].kind.name
        return [(step, role) for role in self.flows[kind]]

    def text(self, event: Event) -> str:
        """The instruction of an event."""
        return f"{self.program.instructions[event[0]]}"

    def encoded(self, some: Set[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The words of all instructions, or of some, and waits: int32 (queues, longest queue, words) and (waits, 2)."""
        kinds, roles = self.program.kinds, range(len(self.groups))
        words = padded(word_of_role(kinds, len(roles)))
        queues = [[n for n in queue if some is None or n in some] for queue in self.queues]
        code = np.zeros((len(queues), max(map(len, queues)), words), np.int32)
        waits = list[tuple[int, int]]()
        for block, queue in enumerate(queues):
            for turn, number in enumerate(queue):
                step, row = self.program.instructions[number], code[block, turn]
                row[: 1 + len(step.fields)] = 1 + kinds.index(step.kind), *step.fields
                for at, event in ((word_of_role(kinds, role), (number, role)) for role in roles):
                    mine, signal = self.waits.get(event, []), self.signals.get(event, -1)
                    row[at : at + OF_A_ROLE] = len(waits), len(mine), signal
                    waits += mine
        return code, np.array(waits or [(0, 0)], np.int32)


def derive(program: Program, tensors: Mapping[str, Any]) -> Schedule:
    """The schedule of a program for tensors of these shapes.

    A LanguageError if an instruction reads what it writes itself, or an element with a tag is written twice.
    """
    made, checked = recorded(program, blank(program, tensors))
    places = {place: number for number, place in enumerate(made.merging.roles)}
    bodies = {(kind, places[place]): body for (kind, place), body in made.merging.bodies.items()}
    schedule = Schedule(
        program,
        [f"{kind} {number}" if number else kind for kind, number in places],
        [role.context.groups for role in made.merging.roles.values()],
        read_ends(bodies, made.written | made.tagged),
        {name: tuple(x.shape) for name, x in tensors.items() if hasattr(x, "shape")},
        frozenset(made.tagged),
    )
    touched = _find_boxes(schedule, made, known_values(made.kernel, checked))
    _check_tags(schedule)
    if schedule.rewrites:
        _check_own(schedule, touched)
    for kind in program.kinds:
        schedule.flows[kind.name] = flows(kind.name, bodies, made.written, schedule.rewrites)
    derive_waits(schedule)
    return schedule


def blank(program: Program, tensors: Mapping[str, Any], rewrites: bool = False) -> tuple[Any, ...]:
    """Arguments of the kernel of a program for these tensors, without instructions."""
    code, waits = np.zeros((program.blocks, 1, padded(1)), np.int32), np.zeros((1, 2), np.int32)
    return program.words(code, waits, (1, 1), tensors, rewrites)


def recorded(program: Program, arguments: tuple[Any, ...]) -> tuple[Interpreter, Arguments]:
    """The recording of a program for arguments of its kernel, and the arguments after their checks."""
    kernel = program.kernel()
    checked = check(kernel.parameters, arguments, {})
    found = kernel.record(checked)
    return next(made for made in program.recorded if made.kernel is found), checked


# -- boxes -----------------------------------------------------------------------------------------


def _find_boxes(schedule: Schedule, made: Interpreter, host: Mapping[Value, Any]) -> TouchedBy:
    """Set the boxes of tensors that instructions write; returns what these are made of."""
    found: TouchedBy = defaultdict(list)
    steps = schedule.program.instructions
    places = {place: number for number, place in enumerate(made.merging.roles)}
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
        if role.index is not None:
            given[role.index] = np.tile(np.arange(groups), len(numbers))
        of_interest = made.written | made.tagged
        most = {
            made.operands[name].name: of.below - 1
            for name, of in steps[numbers[0]].kind.numbers.items()
        }
        alike: dict[tuple[str, bool, int], list[Numbers]] = defaultdict(list)
        body = RoleBody(kind, role.body, host, of_interest, most)
        for number, touched in enumerate(body.touched(given)):
            owner = numbers[touched.owner // groups]
            rows = np.column_stack([owner, touched.low, touched.high])
            # An operation has a box of its own if another wait may imply that for it.
            of = 0 if touched.tensor in schedule.tagged else number
            alike[touched.tensor, touched.writes, of].append(rows)
            by_group = touched._replace(owner=np.stack([owner, touched.owner % groups], axis=1))
            found[kind, places[place], touched.tensor].append(by_group)
        for (tensor, writes, _), some in alike.items():
            boxes = schedule.writes if writes else schedule.reads
            _add(boxes, places[place], tensor, np.concatenate(some))
    return found


def _add(boxes: dict[Event, list[Box]], role: int, tensor: str, rows: Numbers) -> None:
    """Add the boxes of a tensor, of which those of an instruction that lie side by side become one.

    rows: the instruction of each, its first elements, and those after its last.
    """
    rank = rows.shape[1] // 2
    rows = rows[(rows[:, 1 : 1 + rank] < rows[:, 1 + rank :]).all(axis=1)]
    for axis in range(rank):
        rows = _joined(rows, 1 + axis, 1 + axis + rank)
    for step, *ends in rows.tolist():
        box = tensor, tuple(ends[:rank]), tuple(ends[rank:])
        boxes.setdefault((step, role), []).append(box)


def _joined(rows: Numbers, low: int, high: int) -> Numbers:
    """Rows of which those that differ in the ends of an interval alone, columns low and high, have one for each gap."""
    if not len(rows):
        return rows
    others = [k for k in range(rows.shape[1]) if k not in (low, high)]
    rows = rows[np.lexsort((rows[:, low], *rows[:, others[::-1]].T))]
    starts = np.any(np.diff(rows[:, others], axis=0, prepend=-1), axis=1)
    # The end of all intervals so far; a number of the others in front keeps it to rows that are alike.
    of = np.cumsum(starts) * (rows[:, high].max() + 1)
    reached = np.maximum.accumulate(rows[:, high] + of) - of
    starts[1:] |= rows[1:, low] > reached[:-1]
    begins = np.flatnonzero(starts)
    found = rows[begins]
    found[:, high] = np.maximum.reduceat(rows[:, high], begins)
    return found


# -- checks ----------------------------------------------------------------------------------------


def _check_tagged_read(schedule: Schedule, event: Event, box: Box) -> None:
    """Raise if a role reads elements with tags that no instruction writes, or this one or a later one."""
    check_tagged(schedule, event, box)
    last = int(schedule.touching(box)[-1, 0])
    if last == event[0]:
        raise _own(schedule, event, box)
    if last > event[0]:
        raise LanguageError(
            f"{schedule.text(event)} reads {box_text(box)}, which {schedule.text((last, 0))} writes after it",
            help="add an instruction to the program before those that read what it writes",
        )


def _check_own(schedule: Schedule, touched: TouchedBy) -> None:
    """Raise if an instruction reads what it writes itself, unless lanes of one group do both."""
    for (step, role), boxes in schedule.reads.items():
        kind = schedule.program.instructions[step].kind.name
        for box in (box for box in boxes if box[0] not in schedule.tagged):
            writers = schedule.touching(box)
            roles = {*writers[writers[:, 0] == step, 1].tolist()}
            if roles - {role} or (roles and not _in_one_group(touched[kind, role, box[0]], step)):
                raise _own(schedule, (step, role), box)


def _in_one_group(touched: list[Touched], step: int) -> bool:
    """Whether lanes of the same group write what a group of an instruction reads."""
    sides: list[list[Any]] = [[], []]
    for some in touched:
        mine = some.owner[:, 0] == step
        sides[some.writes].append((some.owner[mine, 1], some.low[mine], some.high[mine]))
    (of, low, high), (writer, first, end) = (
        [np.concatenate(x) for x in zip(*side, strict=True)] for side in sides
    )
    meet = (low[:, None] < end).all(axis=2) & (high[:, None] > first).all(axis=2)
    return all(some.by_lanes for some in touched) and not (meet & (of[:, None] != writer)).any()


def _own(schedule: Schedule, event: Event, box: Box) -> LanguageError:
    return LanguageError(
        f"{schedule.text(event)} reads {box_text(box)}, which it writes itself",
        help="let lanes of one group load and store it, or let it write elsewhere: to another tensor, or along an axis "
        "for the step",
    )


def check_tagged(schedule: Schedule, event: Event, box: Box) -> None:
    """Raise if a role waits for the tags of elements that no instruction writes."""
    if not schedule.is_written(box):
        raise LanguageError(
            f"{schedule.text(event)} waits for the tags of {box_text(box)}, some of which no instruction writes",
            help="let an instruction write them with the tag of the launch, also if they are given",
        )


def _check_tags(schedule: Schedule) -> None:
    """Raise if two instructions write an element with a tag, or one reads it and no earlier one writes it."""
    for tensor in schedule.tagged & schedule.writers.keys():
        writers = schedule.writers[tensor]
        found = writers.pair()
        if found is not None:
            one, other = (schedule.text(tuple(writers.events[i])) for i in found)
            low = np.maximum(*(writers.low[i] for i in found)).tolist()
            high = np.minimum(*(writers.high[i] for i in found)).tolist()
            raise LanguageError(
                f"{one} and {other} both write {box_text((tensor, tuple(low), tuple(high)))}, whose elements have tags",
                help="let every element with a tag be written once: give the tensor an axis for the layer or the step",
            )
    for event in schedule.reads:
        for box in schedule.tagged_reads(event):
            _check_tagged_read(schedule, event, box)
