"""Whether a schedule is right: every run of its queues ends, and accesses to an element are in the program's order.

The proof takes the boxes, the queues, the waits and the signals as they are, wherever they come from.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from pykittens.errors import KernelError
from pykittens.mega.accesses import Event, box_text
from pykittens.mega.schedule import Schedule, check_tagged
from pykittens.mega.waits import Clocks

_COUNTER, _WRITER = "counter", "writer"  # what a block waits for


class ScheduleError(KernelError):
    """A schedule whose run may not end, or in which an access may come before an earlier one of the program."""


def prove(schedule: Schedule) -> None:
    """Raise a ScheduleError unless the schedule is right for every order in which its blocks may run.

    Each instruction is taken to end by itself once its waits are over: its roles fill and drain rings equally often.

    In a dynamic program each instruction waits only for earlier ones. Then every run ends, whichever blocks take them.
    Tickets are given in the order of the program, so the first instruction that has not ended is taken as soon as a
    block is free, and all before it have ended: its waits are over. The roles of its block go through tickets in one
    order. What can hold a role up, a stage or the slot of the next ticket, is given back by roles at this instruction
    or at earlier ones of the block. A role that is further on holds only stages after those that this instruction
    takes. Accesses are judged without an order of the instructions in a block.
    """
    _check_totals(schedule)
    _check_accesses(schedule, order(schedule))


def _check_totals(schedule: Schedule) -> None:
    """Raise for a wait for other than all signals, and for waits and signals that no role carries out."""
    totals = _totals(schedule)
    for event in schedule.signals:
        if event not in schedule.ends:
            raise ScheduleError(f"{who(schedule, event)} signals a counter, and writes nothing")
    waiting = {*schedule.reads, *(schedule.writes if schedule.rewrites else ())}
    for event, waits in schedule.waits.items():
        if waits and event not in waiting:
            raise ScheduleError(f"{who(schedule, event)} waits, and reads nothing that is written")
        for counter, value in waits:
            if not totals.get(counter):
                raise ScheduleError(
                    f"{who(schedule, event)} waits for counter {counter}, which nothing signals"
                )
            if value != totals[counter]:
                raise ScheduleError(
                    f"{who(schedule, event)} waits until counter {counter} is {value}, which {totals[counter]} groups "
                    "signal",
                    help="which of them have signalled is known only when all have",
                )


def _totals(schedule: Schedule) -> dict[int, int]:
    totals: dict[int, int] = defaultdict(int)
    for (_, role), counter in schedule.signals.items():
        totals[counter] += schedule.groups[role]
    return totals


def order(schedule: Schedule) -> list[int]:
    """An order in which all instructions can run, one of a queue after the other.

    If there is one, blocks that have several under way end, too: a role is held up by stages that earlier instructions
    of its block use, which end first.
    """
    instructions, found = schedule.program.instructions, list[int]()
    missing = {(_COUNTER, counter): total for counter, total in _totals(schedule).items()}
    missing |= {(_WRITER, step): 1 for step in range(len(instructions))}
    queues = [deque(queue) for queue in schedule.queues]
    # The blocks that wait for a counter, or for an instruction that writes elements with tags.
    stopped: dict[tuple[str, int], set[int]] = defaultdict(set)
    ready = deque(range(len(queues)))
    while ready:
        block = ready.popleft()
        while queues[block]:
            step = queues[block][0]
            lack = next((key for key in _awaited(schedule, step) if missing.get(key)), None)
            if lack is not None:
                stopped[lack].add(block)
                break
            found.append(queues[block].popleft())
            over = {(_WRITER, step): 1}
            for event in schedule.events(step):
                if (counter := schedule.signals.get(event)) is not None:
                    key = _COUNTER, counter
                    over[key] = over.get(key, 0) + schedule.groups[event[1]]
            for key, count in over.items():
                missing[key] -= count
                if not missing[key]:
                    ready.extend(stopped.pop(key, ()))
    for (what, number), blocks in stopped.items():
        block, done = min(blocks), {*found}
        waiting, late = instructions[queues[block][0]], number
        if what == _COUNTER:
            of = (step for (step, _), counter in schedule.signals.items() if counter == number)
            late = next(step for step in of if step not in done)
        if schedule.program.dynamic:
            raise ScheduleError(
                f"deadlock: {waiting} waits for {instructions[late]}, which does not come before it",
                help="add an instruction to the program before those that wait for it",
            )
        raise ScheduleError(
            f"deadlock: {waiting} waits in block {block} for {instructions[late]}, which block "
            f"{instructions[late].block} never reaches",
            help="let blocks run instructions in an order in which those that are waited for come first",
        )
    return found


def _awaited(schedule: Schedule, step: int) -> Iterator[tuple[str, int]]:
    """The counters for which an instruction waits, and the writers of the elements for whose tags it does."""
    events = schedule.events(step)
    yield from ((_COUNTER, c) for event in events for c, _ in schedule.waits.get(event, ()))
    for box in (box for event in events for box in schedule.tagged_reads(event)):
        yield from ((_WRITER, n) for n in schedule.touching(box)[:, 0].tolist())


def _check_accesses(schedule: Schedule, steps: list[int]) -> None:
    """Raise unless each role has waited, before it accesses elements, for all accesses that the program has before."""
    clocks, made = Clocks(schedule), dict[int, int]()
    for step in steps:
        for event in schedule.events(step):
            for counter, _ in schedule.waits.get(event, ()):
                clocks.wait(event, made[counter])
            for box in schedule.tagged_reads(event):
                check_tagged(schedule, event, box)
            for box, of_reads in schedule.accesses(event):
                other = clocks.unseen(event, clocks.before(step, box, of_reads))
                if other is not None:
                    does = "reads" if box in schedule.reads.get(event, ()) else "writes"
                    did = "reads" if of_reads else "writes"
                    raise ScheduleError(
                        f"{who(schedule, event)} {does} {box_text(box)}, and {who(schedule, other)} {did} it: "
                        "nothing orders them",
                        help="the first role must wait for a counter that the second signals, or that one signals "
                        "which has waited for the second",
                    )
            ended = clocks.end(event)
            if event in schedule.signals:
                counter = schedule.signals[event]
                made[counter] = made.get(counter, 0) | ended


def who(schedule: Schedule, event: Event) -> str:
    """An instruction and the role that is meant."""
    where = schedule.program.instructions[event[0]].where
    return f"{schedule.roles[event[1]]} of {schedule.text(event)} in {where}"
