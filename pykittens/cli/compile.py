"""`pykittens compile`: compiles a kernel ahead of time, without a GPU, to files that a C program can launch."""

from __future__ import annotations

import argparse
from typing import Any

from pykittens.cli import arguments, screen
from pykittens.runtime.compiled import Resources

CONTENTS = {
    ".h": "the header for C and C++ programs",
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
    arguments.add_arch(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to write to")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Compile, write, and print the files and the resources of the kernel."""
    request = arguments.request(parsed)
    compiled = request.kernel.compile(*request.args, arch=parsed.arch, **request.constants)
    files = screen.table(f"{compiled.source.name} for {compiled.arch}")
    screen.add_columns(files, "file", "bytes", "holds", numbers="bytes")
    for file in compiled.write(parsed.out):
        files.add_row(str(file), f"{file.stat().st_size:,}", CONTENTS[file.suffix])
    resources = screen.table("What it takes", *TAKEN)
    resources.add_row(*taken(compiled.resources))
    console = screen.console()
    console.print(files)
    console.print(resources)
    return 0


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
