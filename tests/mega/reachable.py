"""A second judge of schedules: what can be reached in the graph of their events, without clocks and counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pykittens.mega.accesses import Box, Event
from pykittens.mega.schedule import Schedule


def is_right(schedule: Schedule) -> bool:
    """Whether waits are for all signals, a run ends, and accesses to an element are in the order of the program."""
    graph, accesses = _graph(schedule), _accesses(schedule)
    pairs = list(_in_order(schedule, accesses))
    # Without writes after other accesses, roles that only write do not wait, and those that only read do not signal.
    again = any(of_later for _, _, of_later in pairs) or _on_themselves(accesses)
    waiting = {event for event, _, writes in accesses if again or not writes}
    signalling = {
        end
        for event, box, writes in accesses
        if again or writes
        for end in _ends(schedule, event, box, writes)
    }
    return (
        all(event in waiting for event, some in schedule.waits.items() if some)
        and all(event in signalling for event in schedule.signals)
        and _waits_for_all(schedule)
        and _run_ends(schedule)
        and all(("over", *end) in _before(graph, ("seen", *later)) for end, later, _ in pairs)
    )


def _accesses(schedule: Schedule) -> list[tuple[Event, Box, bool]]:
    """The boxes of all events, without those whose elements have tags, and whether they are written."""
    return [
        (event, box, writes)
        for some, writes in ((schedule.reads, False), (schedule.writes, True))
        for event, boxes in some.items()
        for box in boxes
        if box[0] not in schedule.tagged
    ]


def _ends(schedule: Schedule, event: Event, box: Box, writes: bool) -> list[Event]:
    """The events at whose ends an access is over."""
    step, role = event
    if writes:
        return [event]
    kind = schedule.program.instructions[step].kind.name
    return [(step, end) for end in schedule.read_ends[kind, role, box[0]]]


def _in_order(
    schedule: Schedule, accesses: list[tuple[Event, Box, bool]]
) -> Iterator[tuple[Event, Event, bool]]:
    """The pairs of an event that must be over before another, and whether the other writes the elements."""
    for one, its, first_writes in accesses:
        for other, box, then_writes in accesses:
            if one[0] < other[0] and (first_writes or then_writes) and _meet(its, box):
                for end in _ends(schedule, one, its, first_writes):
                    yield end, other, then_writes


def _on_themselves(accesses: list[tuple[Event, Box, bool]]) -> bool:
    """Whether an instruction reads what it writes."""
    return any(
        one[0] == other[0] and writes and not writes_too and _meet(its, box)
        for one, its, writes in accesses
        for other, box, writes_too in accesses
    )


def _meet(one: Box, other: Box) -> bool:
    sides = zip(*one[1:], *other[1:], strict=True)
    return one[0] == other[0] and all(a < d and c < b for a, b, c, d in sides)


def _waits_for_all(schedule: Schedule) -> bool:
    groups = [c for (_, role), c in schedule.signals.items() for _ in range(schedule.groups[role])]
    return all(
        value == groups.count(counter)
        for some in schedule.waits.values()
        for counter, value in some
    )


def _run_ends(schedule: Schedule) -> bool:
    """Whether blocks that run one instruction after another all end.

    If any block may take any instruction, those that one waits for are taken before it.
    """
    if schedule.program.dynamic:
        (queue,) = schedule.queues
        return all(_may_run(schedule, step, {*queue[:at]}) for at, step in enumerate(queue))
    left = [list(queue) for queue in schedule.queues]
    done: set[int] = set()
    while any(left):
        before = len(done)
        for queue in left:
            if queue and _may_run(schedule, queue[0], done):
                done.add(queue.pop(0))
        if len(done) == before:
            return False
    return True


def _may_run(schedule: Schedule, step: int, done: set[int]) -> bool:
    waited = {c for (s, _), some in schedule.waits.items() if s == step for c, _ in some}
    of_tags = {
        writer
        for (s, _), boxes in schedule.reads.items()
        for box in boxes
        if s == step and box[0] in schedule.tagged
        for (writer, _), written in schedule.writes.items()
        if any(_meet(box, its) for its in written)
    }
    signalled = {s for (s, _), c in schedule.signals.items() if c in waited}
    return of_tags | signalled <= done


def _graph(schedule: Schedule) -> dict[tuple, set[tuple]]:
    """The nodes before each node: what a role has seen by its waits, what it knows, and the end of its part."""
    before: dict[tuple, set[tuple]] = defaultdict(set)
    alone = [[step] for step in range(len(schedule.program.instructions))]
    for queue in alone if schedule.program.dynamic else schedule.queues:
        last: dict[int, int] = {}
        for step in queue:
            for role, others in schedule.flows[
                schedule.program.instructions[step].kind.name
            ].items():
                seen, known, over = ((what, step, role) for what in ("seen", "known", "over"))
                before[known] |= {seen, *(("known", step, other) for other in others)}
                before[over].add(known)
                if role in last:
                    before[seen].add(("seen", last[role], role))
                    before[known].add(("over", last[role], role))
                for counter, _ in schedule.waits.get((step, role), ()):
                    before[seen] |= {
                        ("over", *event) for event, c in schedule.signals.items() if c == counter
                    }
                last[role] = step
    return before


def _before(graph: dict[tuple, set[tuple]], node: tuple) -> set[tuple]:
    found, work = set[tuple](), [node]
    while work:
        for other in graph.get(work.pop(), ()):
            if other not in found:
                found.add(other)
                work.append(other)
    return found
