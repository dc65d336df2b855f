"""`pykittens cache`: the folder of compiled kernels: its size and limit, its entries, and how to empty it."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from rich.text import Text

from pykittens import settings
from pykittens.cli import screen
from pykittens.runtime import cache, cache_folder
from pykittens.runtime.cache_folder import Entry


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "cache",
        help="list or remove the compiled kernels on disk",
        description="Print the folder of compiled kernels, its size and its limit. With --list, print its entries; "
        "with --clear, remove them. Tuning results stay.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the entries, and stop")
    what.add_argument("--clear", action="store_true", help="remove the entries, and stop")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print or remove the entries."""
    if parsed.clear:
        removed = cache_folder.clear()
        print(f"removed {_size(removed)} from {settings.cache_dir()}")
        return 0
    known = cache_folder.entries()
    if parsed.list and known:
        table = screen.table(f"compiled kernels in {settings.cache_dir()}")
        screen.add_columns(table, "kernel", "KiB", "last use", "file", numbers="KiB")
        for entry in reversed(known):
            used = datetime.datetime.fromtimestamp(entry.used).isoformat(" ", "minutes")
            row = (_about(entry), f"{entry.bytes / 1024:.0f}", used, entry.path.name[:16])
            table.add_row(*map(Text, row))
        screen.console().print(table)
    limit = settings.cache_limit()
    most = "no limit" if limit is None else f"at most {limit / 2**20:g} MiB"
    print(f"{settings.cache_dir()}: {_size(known)}, {most} ({settings.CACHE_LIMIT.variable})")
    if (reason := cache_folder.distrust(settings.cache_dir())) is not None:
        print(f"it is not used: it {reason}")
    return 0


def _about(entry: Entry) -> str:
    """The kernel of an entry, its architecture and its compiler."""
    parts = cache.read(entry.path) or {}
    return parts.get("about", b"damaged").decode(errors="replace")


def _size(entries: list[Entry]) -> str:
    count = f"{len(entries)} kernel{'s' * (len(entries) != 1)}"
    return f"{count}, {sum(entry.bytes for entry in entries) / 2**20:.1f} MiB"
