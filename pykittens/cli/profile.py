"""`pykittens profile`: times the roles and stages of a kernel in a launch on a GPU."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pykittens.analysis.timeline.profile import Profile
from pykittens.checker.calls import Run, replaced_calls
from pykittens.checker.report.profile import FORMS, as_text
from pykittens.cli import arguments, screen, scripts
from pykittens.errors import ArgumentError, BackendError, KernelError
from pykittens.runtime import driver
from pykittens.runtime.arrays import torch_dtype
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.profile import CLOCK_READS
from pykittens.types.dtypes import DTYPES


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "profile",
        help="time the roles and stages of a kernel in a launch on a GPU",
        description="Run a kernel on a GPU with clock reads and show where the time of its roles goes. With --arg, "
        "arrays hold fixed random numbers, integers 0 to 7, flags 0; NAME=DTYPE[SHAPE]=N is full of N. Without --arg, "
        "the file runs as a script, and a call of a kernel in it is timed.",
    )
    arguments.add(parser)
    call = "time the N-th call that the script makes, or that of the kernel K; the default is 1"
    parser.add_argument("--call", type=int, default=1, metavar="N", help=call)
    reads = "the most clock reads that a group records; the default is %(default)s"
    parser.add_argument("--clock-reads", type=int, default=CLOCK_READS, metavar="N", help=reads)
    screen.add_output(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Profile, and print the table or write a file."""
    form = _form(parsed.output)
    if (missing := driver.available()) is not None:
        raise BackendError(
            f"a profile needs a GPU: {missing}",
            loc=None,
            help=f"`pykittens check {parsed.file} -o timeline.svg` shows the order of events in the emulator, with the "
            "least cycles of the work",
        )
    # The output of the file is not part of the profile.
    with contextlib.redirect_stdout(sys.stderr):
        profile = _given_call(parsed) if parsed.arg else _own_call(parsed)
    screen.write(as_text(profile, form), parsed.output)
    if parsed.output:
        print(f"{profile.timeline.title}: {len(profile.timeline.spans)} spans, in {parsed.output}")
    return 0


def _form(output: str | None) -> str:
    if output is None:
        return "text"
    form = FORMS.get(Path(output).suffix)
    if form is None:
        endings = ", ".join(FORMS)
        raise ArgumentError(
            f"{output} has the ending of no form of a profile",
            loc=None,
            help=f"let the name end in {endings}",
        )
    return form


def _given_call(parsed: argparse.Namespace) -> Profile:
    """The profile of the kernel with the arguments of --arg."""
    request = arguments.request(parsed, arguments.random_numbers)
    arguments.clear_flags(request)
    args = [_on_gpu(a) if isinstance(a, np.ndarray) else a for a in request.args]
    return request.kernel.profile(*args, clock_reads=parsed.clock_reads, **request.constants)


def _on_gpu(array: np.ndarray[Any, Any]) -> Any:
    """An array as a tensor of PyTorch on the first GPU."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise BackendError("PyTorch, which holds the arrays, is not installed", loc=None) from None
    dtype = torch_dtype(next(d.name for d in DTYPES.values() if d.numpy == array.dtype))
    words = array.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[array.itemsize])
    return torch.from_numpy(words).cuda().view(dtype)


def _own_call(parsed: argparse.Namespace) -> Profile:
    """The profile of a call that the file makes when it is run."""
    file, name = arguments.file_and_kernel(parsed.file, parsed.kernel)
    if parsed.constant:
        raise ArgumentError(
            "--constant needs --arg", help="the calls of the file have their own constants"
        )
    found: list[Profile] = []
    calls = 0

    def call(
        run: Run, kernel: KernelFunction, args: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        nonlocal calls
        calls += name in (None, kernel.parameters.name)
        if calls == parsed.call and not found and name in (None, kernel.parameters.name):
            found.append(kernel.profile(*args, clock_reads=parsed.clock_reads, **constants))
        else:
            run(kernel, *args, **constants)

    with replaced_calls(call):
        _, stopped = scripts.run(file, arguments.python_file(file))
    if found:
        if stopped is not None:
            print(stopped)
        return found[0]
    raise stopped or _no_call(file, name, calls, parsed.call)


def _no_call(file: str, name: str | None, calls: int, wanted: int) -> KernelError:
    """The error for a file that makes no such call."""
    which = f"the kernel `{name}`" if name else "a kernel"
    return ArgumentError(
        f"{file} calls {which} {calls} times when it is run, and --call is {wanted}",
        loc=None,
        help=arguments.NAMED,
    )
