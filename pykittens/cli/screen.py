"""Output of the commands: a console, tables in one style, files."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pykittens.errors import ArgumentError

_WIDTH = 110  # where the output is no terminal


def console() -> Console:
    """The terminal, or a page of fixed width where the output goes elsewhere."""
    made = Console()
    return made if made.is_terminal else Console(width=_WIDTH)


def table(title: str, *columns: str) -> Table:
    """An empty table under its title, with these columns."""
    return Table(*columns, title=title, title_justify="left", title_style="bold")


def write(text: str, output: str | None) -> None:
    """Write a text to a file, or print it if there is none."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ArgumentError(f"{output} cannot be written: {error.strerror}") from None
