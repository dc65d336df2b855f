"""What each role of a program must wait for, and the counters for that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import or_
from typing import TYPE_CHECKING

from pykittens.errors import LanguageError
from pykittens.mega.accesses import UNKNOWN, Box, Event, History, box_text

if TYPE_CHECKING:
    from pykittens.mega.schedule import Schedule


class Clocks:
    """What roles know to be over: sets of events, as the bits of ints, by the stream of a role.

    seen: by waits of the role itself, after which it may access. known: also by stages of rings that others have
    filled; its signals pass this on.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.events = schedule, sorted(schedule.ends)
        self.bits = {event: 1 << number for number, event in enumerate(self.events)}
        self.seen, self.known = defaultdict[Event, int](int), defaultdict[Event, int](int)
        self._earlier = defaultdict[tuple[Box, bool], dict[int, int]](lambda: {0: 0})

    def unseen(self, event: Event, over: int) -> Event | None:
        """The first of some events on whose being over the role of an event may not rely."""
        late = over & ~self.seen[self.schedule.stream(event)]
        return self.events[(late & -late).bit_length() - 1] if late else None

    def before(self, step: int, box: Box, reads: bool) -> int:
        """The events before an instruction at whose ends reads, or writes, of elements of a box are over."""
        known, count = self._earlier[box, reads], self.schedule.count_before(step, box, reads)
        if count not in known:
            start = max(number for number in known if number < count)
            events = self.schedule.touching(box, reads)[start:count].tolist()
            new = (self.bits[step, role] for step, role in events)
            known[count] = known[start] | sum(new)
        return known[count]

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


@dataclass(frozen=True, eq=False)
class Need:
    """Events that must be over before some accesses to a box."""

    box: Box
    events: list[Event]


class Needs:
    """The needs of all accesses."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._histories = dict[Box, History]()
        self._found = dict[tuple[Box, bool, int, int], Need]()

    def of(self, step: int, box: Box, reads: bool) -> Need:
        """What an access of an instruction needs: the last writes of each element before it, or the reads since then.

        Those before these are over as well: the last writes have waited for them.
        """
        sides = (False, True)[: 1 + reads]
        counts = [self.schedule.count_before(step, box, of_reads) for of_reads in sides]
        key = box, reads, counts[0], counts[-1]
        if key not in self._found:
            if self.schedule.rewrites:
                events = self._history(box).last(step, reads) if any(counts) else []
            else:
                events = [(step, role) for step, role in self.schedule.touching(box).tolist()]
            self._found[key] = Need(box, events)
        return self._found[key]

    def of_event(self, event: Event) -> list[Need]:
        """Those of all accesses of an event. The largest are first, which may imply others."""
        accesses = sorted(self.schedule.accesses(event), key=_reads_and_largest_first)
        found = [self.of(event[0], box, reads) for box, reads in accesses]
        if self.schedule.rewrites:
            found.sort(key=lambda need: -len(need.events))
        return found

    def _history(self, box: Box) -> History:
        if box not in self._histories:
            writes, reads = self.schedule.writers[box[0]], self.schedule.readers.get(box[0])
            self._histories[box] = History(box, writes, reads)
        return self._histories[box]


def derive_waits(schedule: Schedule) -> None:
    """Set the counters, waits and signals of a schedule, whose boxes are known."""
    _count(schedule, _needed(schedule))


def _needed(schedule: Schedule) -> dict[Event, list[Need]]:
    """For each event what it must wait for."""
    clocks, needs = Clocks(schedule), Needs(schedule)
    wanted, over = dict[Need, int](), dict[Need, int]()
    after, found = dict[Event, int](), dict[Event, list[Need]]()
    for step in range(len(schedule.program.instructions)):
        for event in schedule.events(step):
            for need in needs.of_event(event):
                if need not in wanted:
                    _check_known(schedule, event, need)
                    wanted[need] = sum(clocks.bits[e] for e in need.events)
                if clocks.unseen(event, wanted[need]) is not None:
                    found.setdefault(event, []).append(need)
                    if need not in over:
                        over[need] = reduce(or_, (after[e] for e in need.events))
                    clocks.wait(event, over[need])
            ended = clocks.end(event)
            if event in clocks.bits:
                after[event] = ended
    return found


def _check_known(schedule: Schedule, event: Event, need: Need) -> None:
    """Raise if the end of a read is not known for which an event must wait."""
    for step, role in need.events:
        if role == UNKNOWN:
            other = schedule.text((step, role))
            raise LanguageError(
                f"{schedule.text(event)} writes {box_text(need.box)}, which {other} copies before: when the copy has "
                "read it is not known",
                help="let it copy to a stage of a ring that a role of the same instruction drains",
            )


def _reads_and_largest_first(access: tuple[Box, bool]) -> tuple[bool, int]:
    (_, low, high), reads = access
    return not reads, -prod(b - a for a, b in zip(low, high, strict=True))


def _count(schedule: Schedule, needed: Mapping[Event, list[Need]]) -> None:
    """Set counters, waits and signals: a counter for all that the same roles need."""
    waiting: dict[Need, list[Event]] = defaultdict(list)
    for event, some in sorted(needed.items()):
        for need in some:
            waiting[need].append(event)
    # Needs of the same roles have one number.
    numbers: dict[tuple[Event, ...], int] = {}
    number_of = {need: numbers.setdefault(tuple(of), len(numbers)) for need, of in waiting.items()}
    needed_by: dict[Event, set[int]] = defaultdict(set)
    for need, number in number_of.items():
        for event in need.events:
            needed_by[event].add(number)
    counter_of: dict[frozenset[int], int] = {}
    totals, counters = defaultdict[int, int](int), defaultdict[int, list[int]](list)
    for event, of in sorted(needed_by.items()):
        counter = counter_of.setdefault(frozenset(of), len(counter_of))
        schedule.signals[event] = counter
        totals[counter] += schedule.groups[event[1]]
    for numbered, counter in counter_of.items():
        for number in numbered:
            counters[number].append(counter)
    seen: dict[Event, set[int]] = defaultdict(set)  # by stream
    for event, some in sorted(needed.items()):
        known = seen[schedule.stream(event)]
        new = {c for need in some for c in counters[number_of[need]]} - known
        known |= new
        schedule.waits[event] = [(c, totals[c]) for c in sorted(new)]
