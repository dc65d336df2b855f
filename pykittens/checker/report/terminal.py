"""A report on a terminal: its text in colours, its tables drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from pykittens.checker.report.text import TextLine, laid_out, lines, pieces

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, Table


def show(report: CheckReport, console: Console) -> None:
    """Print a report; lines of source are not wrapped, so that carets stay below what they point to."""
    for piece in pieces(report):
        if not isinstance(piece, TextLine) and piece.rows:
            console.print(_drawn(piece))
        else:
            for line in lines(piece):
                console.print(Text(line.text, style=line.style), soft_wrap=True)


def _drawn(table: Table) -> Drawn:
    columns, rows, right = laid_out(table)
    drawn = Drawn(title=Text(table.title), title_justify="left", title_style="bold")
    for column, is_right in zip(columns, right, strict=True):
        drawn.add_column(Text(column), justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    if table.note:
        drawn.caption, drawn.caption_justify = Text(table.note), "left"
    return drawn
