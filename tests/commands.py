"""Commands as pages show them, run in this process: starting Python takes longer than most of them."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from pykittens.cli import main
from pykittens.ops.core import OPS


class Done(NamedTuple):
    """The result of a command: its exit code, its output, and the output on stderr."""

    code: int
    output: str
    errors: str


class _Errors(io.StringIO):
    """Text that is also written to a second stream."""

    def __init__(self, also: io.StringIO) -> None:
        super().__init__()
        self.also = also

    def write(self, text: str) -> int:
        self.also.write(text)
        return super().write(text)


def run(folder: Path, program: str, *words: str, **environment: str) -> Done:
    """Run `python FILE` or `pykittens ...` in a folder."""
    output = io.StringIO()
    errors = _Errors(output)
    own = {n: op for n, op in OPS.items() if op.function.__module__.startswith("pykittens.")}
    code = 0
    with (
        mock.patch.dict(OPS, own, clear=True),  # a file that adds an operation runs often
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", [*words]),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        if program == "pykittens":
            code = main(words)
        else:
            assert program == "python"
            runpy.run_path(words[0], run_name="__main__")
    return Done(code, output.getvalue(), errors.getvalue())
