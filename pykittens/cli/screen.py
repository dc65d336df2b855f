"""What the commands print on: a console and tables of one look."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_WIDTH = 110  # where the output is no terminal


def console() -> Console:
    """The terminal, or a page of fixed width where the output goes elsewhere."""
    made = Console()
    return made if made.is_terminal else Console(width=_WIDTH)


def table(title: str, *columns: str) -> Table:
    """An empty table under its title, with these columns."""
    return Table(*columns, title=title, title_justify="left", title_style="bold")
