"""The annotated source of a kernel: findings below a line, costs in the margin."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pykittens.emulate.finding import Level
from pykittens.errors import Loc

if TYPE_CHECKING:
    from pykittens.checker.report.report import Report, Row, Source, Table

# Lines shown above and below one that is marked and stands outside the kernel.
AROUND = 3


@dataclass(frozen=True)
class Mark:
    """A step of the `number`-th finding of a report."""

    level: Level
    number: int
    text: str


@dataclass(frozen=True)
class Cost:
    """A row of a table that speaks of a line: short for the margin, in full as a title."""

    text: str
    title: str


@dataclass
class Line:
    """A line of source, the marks below it and the costs beside it."""

    number: int
    text: str
    marks: list[Mark] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)


@dataclass(frozen=True)
class Listing:
    """Lines of one file, with gaps between some of them."""

    title: str
    lines: tuple[Line, ...]


def listings(report: Report) -> list[Listing]:
    """The kernel, then what lies outside it and is marked, file by file."""
    marked: dict[str, dict[int, Line]] = {}
    for loc, mark in _marks(report):
        _line(marked, loc).marks.append(mark)
    for loc, cost in _costs(report):
        _line(marked, loc).costs.append(cost)
    source = report.source
    own = marked.get(source.file, {})
    found = []
    if source.lines:
        inside = tuple(
            own.pop(number, Line(number, text))
            for number, text in enumerate(source.lines, source.first)
        )
        found.append(Listing(f"{report.kernel}, {source.place}", inside))
    for file, lines in marked.items():
        if lines:
            found.append(_excerpts(file, lines, source))
    return found


def _line(marked: dict[str, dict[int, Line]], loc: Loc) -> Line:
    return marked.setdefault(loc.file, {}).setdefault(loc.line, Line(loc.line, loc.text))


def _marks(report: Report) -> Iterator[tuple[Loc, Mark]]:
    for number, finding in enumerate(report.findings, 1):
        places = [step for step in finding.steps if step.loc is not None]
        for step in places:
            assert step.loc is not None
            caption = str(step).strip()
            last = step is places[-1]
            text = ": ".join(filter(None, (caption, finding.message if last else "")))
            yield step.loc, Mark(finding.level, number, text)


def _costs(report: Report) -> Iterator[tuple[Loc, Cost]]:
    for table in report.tables:
        for row in table.rows:
            if row.loc is not None:
                yield row.loc, _cost(table, row)


def _cost(table: Table, row: Row) -> Cost:
    # The place itself says nothing new beside its line.
    cells = [
        (column, cell)
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell and cell != str(row.loc)
    ]
    title = "; ".join(f"{column}: {cell}" for column, cell in cells)
    return Cost(" · ".join(cell for _, cell in cells), f"{table.title}: {title}")


def _excerpts(file: str, marked: dict[int, Line], source: Source) -> Listing:
    """The marked lines of a file and some round them; those of the kernel itself are shown elsewhere."""
    inside = range(source.first, source.first + len(source.lines)) if file == source.file else ()
    last = len(linecache.getlines(file))
    numbers = {
        near
        for number in marked
        for near in range(max(number - AROUND, 1), min(number + AROUND, last) + 1)
        if near not in inside
    } | marked.keys()
    lines = (marked.get(n) or Line(n, linecache.getline(file, n).rstrip()) for n in sorted(numbers))
    place = str(Loc(file, 0, "")).rpartition(":")[0]
    return Listing(f"elsewhere in {place}" if file == source.file else place, tuple(lines))
