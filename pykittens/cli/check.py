"""`pykittens check`: finds the faults of a kernel, on generated arguments or in the calls that its file makes."""

from __future__ import annotations

import argparse
import contextlib
import runpy
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pykittens.checker.calls import checked_calls
from pykittens.checker.check import examine
from pykittens.checker.options import SCHEDULES, CheckOptions
from pykittens.checker.report import data, page, terminal
from pykittens.checker.report.report import FORMATS, CheckReport
from pykittens.cli import arguments, screen
from pykittens.emulate.finding import Kind, Level
from pykittens.errors import ArgumentError, KernelError, Loc
from pykittens.ir.nodes import Call, tensors, walk
from pykittens.runtime.arguments import check as check_arguments
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.devices import DEVICES

USAGE = 2  # the exit code of a wrong command line, as argparse has it


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="find races, deadlocks and other faults of a kernel, without a GPU",
        description="Run a kernel in the emulator in many schedules and say what is wrong with it. With --arg, its "
        "arrays are of random numbers, always the same, integers of 0 to 7, flags of zeros, and NAME=DTYPE[SHAPE]=N "
        "is full of N. Without --arg, the file is run as a script and every call it makes of a kernel is checked. The "
        "exit code is 1 where something was found, 2 where the command line or the file does not allow a check.",
    )
    arguments.add(parser)
    parser.add_argument(
        "--schedules",
        type=_positive,
        default=SCHEDULES,
        metavar="N",
        help=f"{SCHEDULES} if not said",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="try the schedule of this seed alone")
    parser.add_argument(
        "--fail-on",
        choices=[*(level.value for level in Level), "never"],
        default=Level.ERROR.value,
        help="the least level for which the exit code is 1; error if not said",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        choices=[k.value for k in Kind],
        metavar="KIND",
        help=f"leave out findings of a kind, one of {', '.join(k.value for k in Kind)}",
    )
    parser.add_argument("--format", choices=FORMATS, help="as the name of the output ends, or text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file")
    parser.add_argument(
        "--undefined",
        action="append",
        default=[],
        metavar="NAME",
        help="a tensor that holds nothing before the launch, so that reading it before it is written is a fault",
    )
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default=next(iter(DEVICES)),
        help="the GPU to reckon for; %(default)s if not said",
    )
    parser.set_defaults(run=run, code_of_faults=USAGE)


def run(parsed: argparse.Namespace) -> int:
    """Check, print or write, and tell by the exit code what was found."""
    form = _format(parsed)
    reports: list[CheckReport] = []
    stopped: KernelError | None = None
    # What the file prints is no part of a report.
    with contextlib.redirect_stdout(sys.stderr):
        if parsed.arg:
            reports.append(_given_call(parsed))
        else:
            stopped = _own_calls(parsed, reports)
    if not reports:
        raise stopped or _no_call(parsed)
    _check_undefined(parsed.undefined, reports)
    _put_out(reports, form, parsed.output)
    fail_on = None if parsed.fail_on == "never" else Level(parsed.fail_on)
    if any(r.fails(fail_on) for r in reports):
        return 1
    # A file that a faulty kernel stopped has been told of; one that stopped for another reason has not.
    if stopped is not None and all(r.ok for r in reports):
        raise stopped
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number of 1 or more")
    return int(text)


# -- what is checked -------------------------------------------------------------------------------


def _given_call(parsed: argparse.Namespace) -> CheckReport:
    """The report on the kernel with the arguments of --arg."""
    caller = Loc.here()
    request = arguments.request(parsed, arguments.random_numbers)
    _clear_flags(request)
    return examine(request.kernel, request.args, request.constants, _options(parsed, caller))


def _own_calls(parsed: argparse.Namespace, reports: list[CheckReport]) -> KernelError | None:
    """Add a report for each call that the file makes when it is run; the fault that stopped it, if one did."""
    file, name = arguments.file_and_kernel(parsed.file, parsed.kernel)
    if parsed.constant:
        raise ArgumentError(
            "--constant stands beside --arg", help="the file's own calls have theirs"
        )
    path = arguments.python_file(file)
    options = _options(parsed, None)

    def look(kernel: KernelFunction, args: tuple[Any, ...], constants: Mapping[str, Any]) -> None:
        if name in (None, kernel.parameters.name):
            reports.append(examine(kernel, args, constants, options))

    with checked_calls(look), _as_a_script(path):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                return ArgumentError(f"{file} ends with the exit code {end.code}", loc=None)
        except KernelError as fault:
            return fault
        except Exception as error:
            return arguments.stopped_by(f"{file} does not run to its end", error, path)
    return None


@contextlib.contextmanager
def _as_a_script(path: Path) -> Iterator[None]:
    """The file has no arguments of ours, and imports from its own folder, as when Python runs it."""
    words, folders = sys.argv, list(sys.path)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = words, folders


def _check_undefined(names: Sequence[str], reports: Sequence[CheckReport]) -> None:
    """Refuse a tensor that no call has; a call that is refused may have any."""
    for name in names:
        if all(r.arguments and name not in r.arguments for r in reports):
            raise ArgumentError(
                f"--undefined {name}: no kernel that was checked takes such an argument",
                loc=None,
                help=f"there are {', '.join(dict.fromkeys(n for r in reports for n in r.arguments))}",
            )


def _no_call(parsed: argparse.Namespace) -> ArgumentError:
    file, name = arguments.file_and_kernel(parsed.file, parsed.kernel)
    return ArgumentError(
        f"{file} calls no kernel{f' `{name}`' if name else ''} when it is run",
        loc=None,
        help="name a kernel and its arguments, as in --kernel K --arg A=bf16[512,512] --arg n=3",
    )


def _clear_flags(request: arguments.Request) -> None:
    """Set to 0 the tensors by whose elements the blocks wait for one another, as callers of such kernels do."""
    kernel = request.kernel
    try:
        recorded = kernel.record(
            check_arguments(kernel.parameters, request.args, request.constants)
        )
    except Exception:
        return  # which the check tells
    names = kernel.parameters.names(len(request.args))
    by_name = dict(zip(names, request.args, strict=True))
    for node in walk(recorded.body):
        if isinstance(node, Call):
            for name in tensors(node, (*node.op.effects.waits, *node.op.effects.signals)):
                by_name[name][...] = 0


def _options(parsed: argparse.Namespace, caller: Loc | None) -> CheckOptions:
    words = ["pykittens", "check", parsed.file]
    if parsed.kernel is not None:
        words += ["--kernel", parsed.kernel]
    for option, values in (("--arg", parsed.arg), ("--constant", parsed.constant)):
        words += [word for value in values for word in (option, value)]
    words += [word for name in parsed.undefined for word in ("--undefined", name)]
    return CheckOptions(
        parsed.schedules,
        parsed.seed,
        parsed.ignore,
        parsed.undefined,
        parsed.device,
        command=shlex.join(words),
        caller=caller,
    )


# -- what is printed -------------------------------------------------------------------------------


def _format(parsed: argparse.Namespace) -> str:
    if parsed.format is not None:
        return str(parsed.format)
    name = parsed.output or ""
    form = next((form for form, ending in FORMATS.items() if name.endswith(ending)), None)
    if form is None and Path(name).suffix:
        raise ArgumentError(
            f"no format of a report ends as {name} does",
            loc=None,
            help=f"let the name end in {', '.join(FORMATS.values())}, or say --format",
        )
    return form or "text"


def _put_out(reports: list[CheckReport], form: str, output: str | None) -> None:
    """Print the reports; or write them, and print a line for each."""
    if output is None and form == "text" and sys.stdout.isatty():
        console = screen.console()
        for number, report in enumerate(reports):
            if number:
                console.print()
            terminal.show(report, console)
        return
    match form:
        case "json":
            shown = data.json_text(data.all_data(reports))
        case "html":
            shown = page.page(reports)
        case "svg" | "trace":
            if len(reports) > 1:
                raise ArgumentError(
                    f"a timeline is of one call, and {len(reports)} were checked",
                    help="name the kernel, FILE:K, or its arguments with --arg",
                )
            shown = reports[0].as_text(form)
        case _:
            shown = "\n\n".join(map(str, reports)) + "\n"
    screen.write(shown, output)
    for report in reports if output else ():
        print(f"{report.kernel}, {report.source.location}: {report.verdict}, in {output}")
