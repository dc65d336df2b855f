"""The command line: `pykittens demo` and what will stand beside it, a file a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pykittens
from pykittens.cli import demo
from pykittens.errors import KernelError

# Each has `add(commands)`, which makes its parser and sets `run`, a function of the parsed arguments.
COMMANDS = (demo,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, 1 where the command found a fault."""
    parser = argparse.ArgumentParser(prog="pykittens", description=pykittens.__doc__)
    parser.add_argument("--version", action="version", version=f"pykittens {pykittens.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except KernelError as fault:
        print(fault, file=sys.stderr)
        return 1
    return code
