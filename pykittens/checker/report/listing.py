"""The annotated source of a kernel: findings below a line, costs in the margin."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykittens.emulate.finding import Level
from pykittens.errors import Loc

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, KernelText, Row, Table

# Lines shown above and below a marked line outside the kernel.
AROUND = 3


class LineMark(NamedTuple):
    """A step of the `number`-th finding of a report."""

    level: Level
    number: int
    text: str


class LineCost(NamedTuple):
    """A row of a table about a line: `text` is short, for the margin; `title` is the whole row."""

    text: str
    title: str


@dataclass
class SourceLine:
    """A line of source, the marks below it and the costs beside it."""

    number: int
    text: str
    marks: list[LineMark] = field(default_factory=list)
    costs: list[LineCost] = field(default_factory=list)


class Listing(NamedTuple):
    """Lines of one file, with gaps between some of them."""

    title: str
    lines: tuple[SourceLine, ...]


def listings(report: CheckReport) -> list[Listing]:
    """The kernel, then the marked lines outside it, file by file."""
    marked: dict[str, dict[int, SourceLine]] = {}

    def line(loc: Loc) -> SourceLine:
        return marked.setdefault(loc.file, {}).setdefault(loc.line, SourceLine(loc.line, loc.text))

    for number, finding in enumerate(report.findings, 1):
        located = [(str(step).strip(), step.loc) for step in finding.steps if step.loc is not None]
        # The last step says what is wrong.
        for caption, loc in located[:-1]:
            line(loc).marks.append(LineMark(finding.level, number, caption))
        for caption, loc in located[-1:]:
            text = f"{caption}: {finding.message}" if caption else finding.message
            line(loc).marks.append(LineMark(finding.level, number, text))
        for caption, loc in located:
            for caller in loc.callers:
                line(caller).marks.append(LineMark(finding.level, number, f"{caption}, at {loc}"))
    for table in report.tables:
        for row in table.rows:
            if row.loc is not None:
                line(row.loc).costs.append(_cost(table, row))
    source = report.source
    own = marked.get(source.file, {})
    found = []
    if source.lines:
        numbered = enumerate(source.lines, source.first)
        inside = tuple(own.pop(number, SourceLine(number, text)) for number, text in numbered)
        found.append(Listing(f"Source of {report.kernel}, {source.location}", inside))
    return found + [_excerpts(file, lines, source) for file, lines in marked.items() if lines]


def _cost(table: Table, row: Row) -> LineCost:
    # The location is not repeated beside its line.
    named = zip(table.columns, row.cells, strict=True)
    cells = [(column, cell) for column, cell in named if cell and cell != str(row.loc)]
    title = "; ".join(f"{column}: {cell}" for column, cell in cells)
    return LineCost(" · ".join(cell for _, cell in cells), f"{table.title}: {title}")


def _excerpts(file: str, marked: dict[int, SourceLine], source: KernelText) -> Listing:
    """The marked lines of a file with the lines around them, without those of the kernel."""
    inside = range(source.first, source.first + len(source.lines)) if file == source.file else ()
    last = len(linecache.getlines(file))
    numbers = {
        near
        for number in marked
        for near in range(max(number - AROUND, 1), min(number + AROUND, last) + 1)
        if near not in inside
    } | marked.keys()
    lines = (
        marked.get(n) or SourceLine(n, linecache.getline(file, n).rstrip()) for n in sorted(numbers)
    )
    name = str(Loc(file, 0, "")).rpartition(":")[0]
    return Listing(f"elsewhere in {name}" if file == source.file else name, tuple(lines))
