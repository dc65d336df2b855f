"""Output of the commands: a console, tables in one style, files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pykittens.errors import ArgumentError

USAGE = 2  # the exit code for a wrong command line, as in argparse
_WIDTH = 110  # if the output is not a terminal


def console() -> Console:
    """The terminal, or a page of fixed width if the output is not a terminal."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_WIDTH)


def table(title: str, *columns: str) -> Table:
    """An empty table with these columns."""
    return Table(*columns, title=title, title_justify="left", title_style="bold")


def add_columns(table: Table, *columns: str, numbers: str) -> None:
    """Add columns that fold long cells; the column `numbers` is aligned to the right."""
    for column in columns:
        table.add_column(column, justify="right" if column == numbers else "left", overflow="fold")


def usage_of(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """A command that lists the commands of the parser; the exit code is that of a wrong command line."""

    def run(parsed: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return USAGE

    return run


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add --output to the parser of a command."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file")


def write(text: str, output: str | None) -> None:
    """Write a text to a file, or print it if no file is given."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ArgumentError(f"{output} cannot be written: {error.strerror}") from None
