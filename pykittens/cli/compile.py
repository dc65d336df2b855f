"""`pykittens compile`: compiles a kernel ahead of time, without a GPU, to files that a C program can launch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from pykittens.cli import arguments, screen
from pykittens.runtime.compiled import Compiled, Resources
from pykittens.runtime.kernel import DEFAULT_ARCH
from pykittens.targets.architectures import TARGETS

HOLDS = {
    ".h": "what a C or C++ program includes",
    ".c": "the launch in C, and the machine code",
    ".cu": "CUDA C++, to read",
    ".ptx": "PTX, to read",
    ".cubin": "the machine code",
}
TAKEN = ("threads", "registers", "shared memory", "local memory", "registers a role")


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
    request = arguments.request(parsed)
    compiled = request.kernel.compile(*request.args, arch=parsed.arch, **request.constants)
    files = compiled.write(parsed.out)
    console = screen.console()
    console.print(_written(compiled, files))
    console.print(_taken(compiled.resources))
    return 0


def _written(compiled: Compiled, files: list[Path]) -> Table:
    table = screen.table(f"{compiled.source.name} for {compiled.arch}")
    for column in ("file", "bytes", "holds"):
        table.add_column(column, justify="right" if column == "bytes" else "left", overflow="fold")
    for file in files:
        table.add_row(str(file), f"{file.stat().st_size:,}", HOLDS[file.suffix])
    return table


def _taken(resources: Resources) -> Table:
    table = screen.table("What it takes", *TAKEN)
    table.add_row(*taken(resources))
    return table


def taken(resources: Resources) -> tuple[str, ...]:
    """A cell for each column of TAKEN."""
    roles = (
        f"{r.role} {r.used}" + (f" of {r.budget}" if r.budget else "") for r in resources.roles
    )
    return (
        str(resources.threads),
        str(resources.registers),
        f"{resources.shared_bytes:,} B",
        "\n".join(resources.spills) or f"{resources.frame} B",
        "\n".join(roles) or "no disassembler here",
    )
