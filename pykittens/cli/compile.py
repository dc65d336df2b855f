"""`pykittens compile`: a kernel to files for one architecture, with no GPU; a program in C can launch it from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pykittens.cli import arguments
from pykittens.errors import ArgumentError
from pykittens.runtime.compiled import Compiled, Resources
from pykittens.runtime.kernel import DEFAULT_ARCH
from pykittens.targets.target import TARGETS

HOLDS = {
    ".h": "what a C or C++ program includes",
    ".c": "the launch in C, and the machine code",
    ".cu": "CUDA C++, to read",
    ".ptx": "PTX, to read",
    ".cubin": "the machine code",
}
_WIDTH = 110  # where the output is no terminal


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compile",
        help="compile a kernel ahead of time; the result runs without Python",
        description="Compile a kernel for dtypes, ranks, alignments and static extents like those of the arguments "
        "given, and write machine code, PTX, CUDA C++, and a launcher in C with its header. FILE:KERNEL names the "
        "kernel, too.",
    )
    arguments.add(parser)
    parser.add_argument(
        "--arch", default=DEFAULT_ARCH, help=f"one of {', '.join(TARGETS)}; {DEFAULT_ARCH}"
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to write to")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Compile, write, and print what was written and what the kernel takes."""
    parsed.file, parsed.kernel = file_and_kernel(parsed.file, parsed.kernel)
    request = arguments.request(parsed)
    compiled = request.kernel.compile(*request.args, arch=parsed.arch, **request.constants)
    files = compiled.write(parsed.out)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    console.print(_written(compiled, files))
    console.print(_taken(compiled.resources))
    return 0


def file_and_kernel(file: str, kernel: str | None) -> tuple[str, str | None]:
    """FILE or FILE:KERNEL, and the kernel named apart, as a file and a kernel."""
    path, colon, name = file.rpartition(":")
    if not colon or not name.isidentifier():
        return file, kernel
    if kernel not in (None, name):
        raise ArgumentError(f"{file} names the kernel `{name}`, and --kernel names `{kernel}`")
    return path, name


def _written(compiled: Compiled, files: list[Path]) -> Table:
    table = _table(f"{compiled.source.name} for {compiled.arch}")
    for column in ("file", "bytes", "holds"):
        table.add_column(column, justify="right" if column == "bytes" else "left", overflow="fold")
    for file in files:
        table.add_row(str(file), f"{file.stat().st_size:,}", HOLDS[file.suffix])
    return table


def _taken(resources: Resources) -> Table:
    table = _table("What it takes")
    for column in ("threads", "registers", "shared memory", "local memory", "registers a role"):
        table.add_column(column)
    roles = (
        f"{r.role} {r.used}" + (f" of {r.budget}" if r.budget else "") for r in resources.roles
    )
    table.add_row(
        str(resources.threads),
        str(resources.registers),
        f"{resources.shared_bytes:,} B",
        "\n".join(resources.spills) or f"{resources.frame} B",
        ", ".join(roles) or "no disassembler here",
    )
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold")
