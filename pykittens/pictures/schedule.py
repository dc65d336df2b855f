"""The instructions of a program and what they wait for, as a graph from top to bottom.

Instructions of one kind that read what the same others write are one box, with the fields in which they agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pykittens.mega.accesses import Box
from pykittens.mega.program import Instruction
from pykittens.mega.schedule import Schedule
from pykittens.mega.waits import Needs
from pykittens.pictures.svg import MARGIN, Drawing, hue

WIDTH, HEIGHT, GAP, ROW = 230, 50, 24, 92  # of a box, pixels; between boxes; from a row to the next


@dataclass
class Group:
    """Instructions of one kind that read what the same groups write. depth: the longest way to it."""

    sources: frozenset[int]
    depth: int
    instructions: list[int] = field(default_factory=list)


def groups_of(schedule: Schedule) -> list[Group]:
    """All groups, each after those that it reads from."""
    found: dict[tuple[str, frozenset[int]], int] = {}
    groups, group_of, needs = list[Group](), dict[int, int](), Needs(schedule)
    reads = defaultdict[int, list[Box]](list)
    for (number, _), boxes in schedule.reads.items():
        reads[number] += boxes
    for number, instruction in enumerate(schedule.program.instructions):
        writers = {w for box in reads[number] for w, _ in needs.of(number, box, False).events}
        sources = frozenset(group_of[w] for w in writers)
        group = found.setdefault((instruction.kind.name, sources), len(groups))
        if group == len(groups):
            depth = 1 + max((groups[s].depth for s in sources), default=-1)
            groups.append(Group(sources, depth))
        groups[group].instructions.append(number)
        group_of[number] = group
    return groups


def draw(schedule: Schedule) -> Drawing:
    """The graph of a schedule."""
    all_, groups = schedule.program.instructions, groups_of(schedule)
    kinds = [kind.name for kind in schedule.program.kinds]
    waits = sum(map(len, schedule.waits.values()))
    drawing = Drawing(
        f"{len(all_)} instructions on {schedule.program.blocks} blocks",
        f"{waits} waits for {schedule.counters} counters; an arrow from what is written to what reads it",
    )
    columns = defaultdict[int, int](int)
    corners = list[tuple[int, int]]()
    for group in groups:
        x = MARGIN + columns[group.depth] * (WIDTH + GAP)
        columns[group.depth] += 1
        corners.append((x, drawing.top + group.depth * ROW))
    for group, (x, y) in zip(groups, corners, strict=True):
        for source in sorted(group.sources):
            from_x, from_y = corners[source]
            drawing.arrow(from_x + WIDTH // 2, from_y + HEIGHT, x + WIDTH // 2, y)
    for group, (x, y) in zip(groups, corners, strict=True):
        some = [all_[number] for number in group.instructions]
        name = some[0].kind.name
        count = f" x {len(some)}" if len(some) > 1 else ""
        lines = f"{name}{count}", ", ".join(_fields(some)), f"on {_blocks(some)}"
        drawing.bar(x, y, WIDTH, HEIGHT, hue(kinds.index(name)), "", "\n".join(lines))
        drawing.text(x + 10, y + 20, lines[0], "head")
        drawing.text(x + 10, y + 38, _short(lines[1]), "small")
    return drawing


def _fields(some: Sequence[Instruction]) -> Iterator[str]:
    """Each field with its value, or its least and its largest."""
    for number, name in enumerate(some[0].kind.fields):
        values = [instruction.fields[number] for instruction in some]
        low, high = min(values), max(values)
        yield f"{name}={low}" if low == high else f"{name}={low} to {high}"


def _blocks(some: Sequence[Instruction]) -> str:
    blocks = {instruction.where for instruction in some}
    return blocks.pop() if len(blocks) == 1 else f"{len(blocks)} blocks"


def _short(text: str) -> str:
    most = WIDTH // 6 - 2
    return text if len(text) <= most else f"{text[: most - 1]}…"
