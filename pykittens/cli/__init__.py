"""The command line, one file per command: `pykittens doctor`, `demo`, `check` and others."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import pykittens
from pykittens.cli import (
    cache,
    check,
    compile,
    demo,
    doctor,
    generate,
    profile,
    screen,
    show,
    tune,
)
from pykittens.errors import KernelError, Loc

# Each has `add(commands)`, which adds its parser and sets `run`, a function of the parsed arguments.
COMMANDS = (doctor, demo, check, profile, show, compile, tune, generate, cache)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, 1 if the command found a fault."""
    parser = argparse.ArgumentParser(prog="pykittens", description=pykittens.__doc__)
    parser.add_argument("--version", action="version", version=f"pykittens {pykittens.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command")
    parser.set_defaults(run=screen.usage_of(parser))
    for command in COMMANDS:
        command.add(commands)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe of Windows has no ✓
    parsed = parser.parse_args(arguments)
    outside = Loc.here()
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except KernelError as fault:
        # The caller of this function, such as the installed script, is not a line of the user's kernel.
        if fault.loc == outside:
            fault.loc = None
        print(fault, file=sys.stderr)
        # `check` returns 1 only for findings in a kernel.
        return int(getattr(parsed, "code_of_faults", 1))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130  # as shells do
    except BrokenPipeError:  # `pykittens show sass … | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
