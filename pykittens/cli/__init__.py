"""The command line, one file per command: `pykittens doctor`, `demo`, `check` and others."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import pykittens
from pykittens.cli import check, compile, demo, doctor, show, tune
from pykittens.errors import KernelError, Loc

# Each has `add(commands)`, which makes its parser and sets `run`, a function of the parsed arguments.
COMMANDS = (doctor, demo, check, show, compile, tune)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, 1 where the command found a fault."""
    parser = argparse.ArgumentParser(prog="pykittens", description=pykittens.__doc__)
    parser.add_argument("--version", action="version", version=f"pykittens {pykittens.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    parsed = parser.parse_args(arguments)
    outside = Loc.here()
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except KernelError as fault:
        # Whoever called this, such as the installed script, is no line of the user's kernel.
        if fault.loc == outside:
            fault.loc = None
        print(fault, file=sys.stderr)
        # `check` keeps 1 for what it finds in a kernel.
        return int(getattr(parsed, "code_of_faults", 1))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130  # as shells have it
    except BrokenPipeError:  # `pykittens show sass … | head`: the reader has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
