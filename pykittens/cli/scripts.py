"""Runs a Python file as a script, for commands that look at the calls that it makes."""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pykittens.cli import arguments
from pykittens.errors import ArgumentError, KernelError


def run(file: str, path: Path) -> tuple[dict[str, Any], KernelError | None]:
    """Run a file; returns its names, and the fault that stopped it, if one did."""
    with _as_a_script(path):
        try:
            return runpy.run_path(str(path), run_name="__main__"), None
        except SystemExit as end:
            if end.code in (None, 0):
                return {}, None
            return {}, ArgumentError(f"{file} ends with the exit code {end.code}", loc=None)
        except KernelError as fault:
            return {}, fault
        except Exception as error:
            return {}, arguments.stopped_by(f"{file} does not run to its end", error, path)


@contextlib.contextmanager
def _as_a_script(path: Path) -> Iterator[None]:
    """Hide the arguments of this command and make the folder of the file importable, as if Python ran it."""
    words, folders = sys.argv, list(sys.path)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = words, folders
