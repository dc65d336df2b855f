"""A report on a terminal: its text in colours, its tables drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from pykittens.checker.report.text import (
    Line,
    aligned,
    findings,
    foot,
    head,
    numeric_columns,
    with_places,
)

if TYPE_CHECKING:
    from pykittens.checker.report.report import Report, Table


def show(report: Report, console: Console) -> None:
    """Print a report; lines of source are not wrapped, so that carets stay below what they point to."""
    for line in (*head(report), *findings(report)):
        _print(console, line)
    for table in report.tables:
        console.print()
        if table.rows:
            console.print(_drawn(table))
        else:
            for line in aligned(table):
                _print(console, line)
    for line in foot(report):
        _print(console, line)


def _print(console: Console, line: Line) -> None:
    console.print(Text(line.text, style=line.style), soft_wrap=True)


def _drawn(table: Table) -> Drawn:
    columns, rows = with_places(table)
    drawn = Drawn(title=Text(table.title), title_justify="left", title_style="bold")
    for column, right in zip(columns, numeric_columns(rows, len(columns)), strict=True):
        drawn.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    if table.note:
        drawn.caption, drawn.caption_justify = Text(table.note), "left"
    return drawn
