"""A report as text, line by line, each line with its style on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykittens.emulate.finding import Finding, Level, Scope

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, Table

LEVEL_STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_LABEL_STYLES = {"help": "cyan", "follows": "cyan", "holds": "dim", "replay": "dim"}
_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?\s?%?")


class TextLine(NamedTuple):
    """One line of a report; `style` is empty or one of rich's."""

    text: str
    style: str = ""


def text(report: CheckReport) -> str:
    """The whole report, without colours; the same on every machine."""
    return "\n".join(line.text for piece in pieces(report) for line in lines(piece))


def pieces(report: CheckReport) -> Iterator[TextLine | Table]:
    """The lines and tables of a report, in order."""
    worst = report.findings[0].level if report.findings else None
    style = LEVEL_STYLES[worst] if worst else "bold green"
    yield TextLine(f"{report.kernel}, {report.source.location}: {report.verdict}", style)
    yield from _named({**report.arguments, **report.constants})
    for finding in report.findings:
        yield TextLine("")
        yield from _finding(report, finding)
    for table in report.tables:
        yield TextLine("")
        yield table
    yield TextLine("")
    if report.proved:
        yield TextLine("proved for all arguments:")
        yield from (TextLine(f"  - {sentence}") for sentence in report.proved)
    yield from (TextLine(f"{label}: {said}") for label, said in closing(report))


def lines(piece: TextLine | Table) -> Iterable[TextLine]:
    """The lines of a piece of a report."""
    return (piece,) if isinstance(piece, TextLine) else aligned(piece)


def _finding(report: CheckReport, finding: Finding) -> Iterator[TextLine]:
    kind = f"{finding.level.value}[{finding.kind.value}]"
    yield TextLine(f"{kind}: {finding.message}", LEVEL_STYLES[finding.level])
    yield from _named(finding.operands)
    for step in (*finding.steps, *finding.history):
        if caption := str(step).strip():
            yield TextLine(f"{caption}:" if step.loc is not None else caption)
        if step.loc is not None:
            for line in step.loc.excerpt().splitlines():
                yield TextLine(line, "" if line.startswith("    ") else "dim")
    for label, said in remarks(report, finding):
        yield TextLine(f"{label}: {said}", _LABEL_STYLES.get(label, ""))


def remarks(report: CheckReport, finding: Finding) -> list[tuple[str, str]]:
    """What is said below the steps of a finding, each sentence with its label."""
    labelled = {
        "follows": _follows(report, finding),
        "missing": finding.missing,
        "help": finding.help,
        "holds": scope(report, finding),
        "replay": report.replay(finding),
    }
    return [(label, said) for label, said in labelled.items() if said]


def _follows(report: CheckReport, finding: Finding) -> str:
    """The finding from which this one probably follows, in words; empty if it stands for itself."""
    number = next(i for i, f in enumerate(report.findings) if f is finding)
    if (index := report.causes[number]) is None:
        return ""
    cause = report.findings[index]
    line = next((f" at {s.loc}" for s in reversed(cause.steps) if s.loc is not None), "")
    return f"probably from finding {index + 1}, {cause.kind.value}{line}"


def closing(report: CheckReport) -> Iterator[tuple[str, str]]:
    """The last sentences of a report, each with its label."""
    if report.ignored:
        yield "ignored", ", ".join(f"{count} of {kind}" for kind, count in report.ignored.items())
    yield "holds", report.holds


def scope(report: CheckReport, finding: Finding) -> str:
    """How far a finding holds and, if this was counted, how many schedules showed it."""
    if finding.scope is Scope.TRIED and finding.schedules:
        return f"{finding.scope.value}; {finding.schedules} of {len(report.seeds)} showed it"
    return str(finding.scope.value)


def aligned(table: Table) -> Iterator[TextLine]:
    """A table as plain text with aligned columns; columns of numbers are aligned to the right."""
    columns, rows, right = laid_out(table)
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    yield TextLine(table.title, "bold")
    for number, row in enumerate(cells if rows else ()):
        padded = (
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        )
        yield TextLine(f"  {'  '.join(padded)}".rstrip())
        if number == 0:
            yield TextLine("  " + "  ".join("-" * w for w in widths))
    if table.note:
        yield TextLine(f"  {table.note}")


def laid_out(table: Table) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[bool]]:
    """Columns, rows, and which columns hold only numbers; a first column has the lines if no cell shows them."""
    columns, rows = table.columns, [row.cells for row in table.rows]
    assert all(len(row) == len(columns) for row in rows), f"{table.title}: {rows} for {columns}"
    if any(row.loc is not None and str(row.loc) not in row.cells for row in table.rows):
        columns = ("line", *columns)
        rows = [("" if r.loc is None else str(r.loc), *r.cells) for r in table.rows]
    return (
        columns,
        rows,
        [
            bool(rows) and all(_NUMBER.fullmatch(row[i]) for row in rows)
            for i in range(len(columns))
        ],
    )


def _named(values: Mapping[str, object]) -> Iterator[TextLine]:
    width = max((len(name) for name in values), default=0)
    yield from (TextLine(f"    {name:<{width}} : {value}") for name, value in values.items())
