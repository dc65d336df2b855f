"""A second judge of schedules: what can be reached in the graph of their events, without clocks and counts."""

from __future__ import annotations

from collections import defaultdict

from pykittens.mega.schedule import Event, Schedule, Writers


def is_right(schedule: Schedule) -> bool:
    """Whether waits are for all signals, a run ends, and each read comes after all writes of what it reads."""
    graph = _graph(schedule)
    return (
        all(event in schedule.reads for event, some in schedule.waits.items() if some)
        and all(event in schedule.writes for event in schedule.signals)
        and _waits_for_all(schedule)
        and _ends(schedule)
        and all(
            ("over", *writer) in _before(graph, ("seen", *event))
            for event, writer in _read_and_written(schedule)
        )
    )


def _read_and_written(schedule: Schedule) -> list[tuple[Event, Event]]:
    writers = Writers.of(schedule)
    return [
        (event, tuple(writer))
        for event, boxes in schedule.reads.items()
        for box in boxes
        if box[0] in writers and box[0] not in schedule.tagged
        for writer in writers[box[0]].writing(box).tolist()
    ]


def _waits_for_all(schedule: Schedule) -> bool:
    groups = [c for (_, role), c in schedule.signals.items() for _ in range(schedule.groups[role])]
    return all(
        value == groups.count(counter)
        for some in schedule.waits.values()
        for counter, value in some
    )


def _ends(schedule: Schedule) -> bool:
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
    writers = Writers.of(schedule)
    of_tags = {
        writer
        for (s, _), boxes in schedule.reads.items()
        for box in boxes
        if s == step and box[0] in schedule.tagged
        for writer in writers[box[0]].writing(box)[:, 0].tolist()
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
