"""A report as text, line by line, each line with its style on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykittens.emulate.finding import Finding, Level, Scope

if TYPE_CHECKING:
    from pykittens.checker.report.report import Report, Row, Table

LEVEL_STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?\s?%?")


class Line(NamedTuple):
    """One line of a report; `style` is empty or one of rich's."""

    text: str
    style: str = ""


def text(report: Report) -> str:
    """The whole report, without colours; the same on every machine."""
    lines = [*head(report), *findings(report)]
    for table in report.tables:
        lines += [Line(""), *aligned(table)]
    return "\n".join(line.text for line in (*lines, *foot(report)))


def head(report: Report) -> Iterator[Line]:
    """The kernel, its arguments, and how many findings there are."""
    worst = report.findings[0].level if report.findings else None
    style = LEVEL_STYLES[worst] if worst else "bold green"
    yield Line(f"{report.kernel}, {report.source.place}: {report.verdict}", style)
    yield from _named({**report.arguments, **report.constants})


def findings(report: Report) -> Iterator[Line]:
    """All findings, each behind an empty line."""
    for finding in report.findings:
        yield Line("")
        yield from told(report, finding)


def told(report: Report, finding: Finding) -> Iterator[Line]:
    """One finding: what is wrong, where, what is missing, what to change, for what it holds and how to see it."""
    kind = f"{finding.level.value}[{finding.kind.value}]"
    yield Line(f"{kind}: {finding.message}", LEVEL_STYLES[finding.level])
    yield from _named(finding.operands)
    for step in finding.steps:
        if caption := str(step).strip():
            yield Line(f"{caption}:" if step.loc is not None else caption)
        if step.loc is not None:
            where, *excerpt = step.loc.excerpt().splitlines()
            yield Line(where, "dim")
            yield from (Line(line) for line in excerpt)
    if finding.missing:
        yield Line(f"missing: {finding.missing}")
    yield Line(f"help: {finding.help}", "cyan")
    yield Line(f"holds: {scope(report, finding)}", "dim")
    if again := report.replay(finding):
        yield Line(f"replay: {again}", "dim")


def scope(report: Report, finding: Finding) -> str:
    """For what a finding holds and, where that is known, how many schedules showed it."""
    if finding.scope is Scope.TRIED and finding.schedules:
        return f"{finding.scope.value}; {finding.schedules} of {len(report.seeds)} showed it"
    return str(finding.scope.value)


def aligned(table: Table) -> Iterator[Line]:
    """A table as plain text, its columns below each other, those of numbers at their right ends."""
    columns, rows = with_places(table)
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    right = numeric_columns(rows, len(columns))
    yield Line(table.title, "bold")
    for number, row in enumerate(cells if rows else ()):
        padded = (
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        )
        yield Line(f"  {'  '.join(padded)}".rstrip())
        if number == 0:
            yield Line("  " + "  ".join("-" * w for w in widths))
    if table.note:
        yield Line(f"  {table.note}")


def with_places(table: Table) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and cells, led by one of the places if rows have some that no cell of theirs shows."""
    for row in table.rows:
        assert len(row.cells) == len(table.columns), (
            f"{table.title}: {row.cells} for {table.columns}"
        )
    if all(row.loc is None or str(row.loc) in row.cells for row in table.rows):
        return table.columns, [row.cells for row in table.rows]
    return ("line", *table.columns), [(_place(row), *row.cells) for row in table.rows]


def numeric_columns(rows: list[tuple[str, ...]], count: int) -> list[bool]:
    """Which columns hold nothing but numbers."""
    return [bool(rows) and all(_NUMBER.fullmatch(row[i]) for row in rows) for i in range(count)]


def foot(report: Report) -> Iterator[Line]:
    """What is proved, for what the rest holds, and what was left out."""
    yield Line("")
    if report.proved:
        yield Line("proved for all arguments:")
        yield from (Line(f"  - {sentence}") for sentence in report.proved)
    if report.ignored:
        left_out = ", ".join(f"{count} of {kind}" for kind, count in report.ignored.items())
        yield Line(f"ignored: {left_out}")
    yield Line(f"holds: {report.holds}")


def _place(row: Row) -> str:
    return "" if row.loc is None else str(row.loc)


def _named(values: Mapping[str, object]) -> Iterator[Line]:
    width = max((len(name) for name in values), default=0)
    yield from (Line(f"    {name:<{width}} : {value}") for name, value in values.items())
