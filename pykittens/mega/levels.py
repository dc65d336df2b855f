"""The instructions of a program by levels: those of a level need nothing of one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykittens.mega.accesses import Box, Event
    from pykittens.mega.schedule import Schedule


def levels(schedule: Schedule) -> list[set[int]]:
    """The numbers of the instructions of each level; each needs something of the level before its own.

    An instruction comes after those that write what it reads, and after those that have read or written before what it
    writes.
    """
    of: list[int] = []
    found: list[set[int]] = []
    # The level of the last of the events of a box up to a count of them.
    known: dict[tuple[Box, bool], tuple[int, int]] = {}

    def after(step: int, box: Box, reads: bool) -> int:
        """The level after all events of a box before an instruction."""
        events = schedule.touching(box, reads)[:, 0].tolist()
        at, level = known.get((box, reads), (0, 0))
        while at < len(events) and events[at] < step:
            at, level = at + 1, max(level, of[events[at]] + 1)
        known[box, reads] = at, level
        return level

    for step in range(len(schedule.program.instructions)):
        level = 0
        for event in schedule.events(step):
            level = max(level, *(after(step, *access) for access in accesses(schedule, event)), 0)
        of.append(level)
        if level == len(found):
            found.append(set())
        found[level].add(step)
    return found


def accesses(schedule: Schedule, event: Event) -> list[tuple[Box, bool]]:
    """The boxes that an event accesses, each with whether reads, or else writes, must be over before."""
    tagged = [(box, False) for box in schedule.tagged_reads(event)]
    return [*tagged, *schedule.accesses(event)]
