"""`pykittens check`: finds faults of a kernel, with generated arguments or in the calls that its file makes."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pykittens.checker.calls import checked_calls
from pykittens.checker.check import examine
from pykittens.checker.options import SCHEDULES, CheckOptions
from pykittens.checker.progress import CheckProgress
from pykittens.checker.report import data, page, terminal
from pykittens.checker.report.report import FORMATS, CheckReport
from pykittens.cli import arguments, screen, scripts
from pykittens.emulate.finding import Kind, Level
from pykittens.errors import ArgumentError, KernelError, Loc
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.devices import DEVICES


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="find races, deadlocks and other faults of a kernel, without a GPU",
        description="Run a kernel in the emulator in many schedules and report its faults. With --arg, arrays hold "
        "fixed random numbers, integers 0 to 7, flags 0; NAME=DTYPE[SHAPE]=N is full of N. Without --arg, the "
        "file runs as a script, and each call of a kernel in it is checked. The exit code is 1 if a fault was "
        "found, 2 if the command line or the file does not allow a check.",
    )
    arguments.add(parser)
    option = parser.add_argument
    schedules = f"the number of schedules; the default is {SCHEDULES}"
    option("--schedules", type=_positive, default=SCHEDULES, metavar="N", help=schedules)
    option("--seed", type=int, metavar="S", help="try only the schedule of this seed")
    levels, least = [*(level.value for level in Level), "never"], Level.ERROR.value
    fail_on = f"the lowest level for which the exit code is 1; the default is {least}"
    option("--fail-on", choices=levels, default=least, help=fail_on)
    kinds = [k.value for k in Kind]
    ignore = f"leave out findings of a kind, one of {', '.join(kinds)}"
    option("--ignore", action="append", default=[], choices=kinds, metavar="KIND", help=ignore)
    option("--format", choices=FORMATS, help="the default is the ending of the output, or text")
    screen.add_output(parser)
    undefined = (
        "a tensor without contents before the launch: reading it before it is written is a fault"
    )
    option("--undefined", action="append", default=[], metavar="NAME", help=undefined)
    kept = "a tensor of which the launch may leave elements as they are"
    option("--kept", action="append", default=[], metavar="NAME", help=kept)
    device = "the GPU to model; the default is %(default)s"
    option("--device", choices=DEVICES, default=next(iter(DEVICES)), help=device)
    no_costs = "report no resources, costs and timeline, which is faster"
    option("--no-costs", action="store_true", help=no_costs)
    parser.set_defaults(run=run, code_of_faults=screen.USAGE)


def run(parsed: argparse.Namespace) -> int:
    """Check, and print or write the reports; the exit code says whether a fault was found."""
    form = _format(parsed)
    reports: list[CheckReport] = []
    stopped: KernelError | None = None
    kernels: dict[str, KernelFunction] = {}
    # The output of the file is not part of a report.
    with contextlib.redirect_stdout(sys.stderr):
        if parsed.arg:
            reports.append(_given_call(parsed))
        else:
            stopped = _own_calls(parsed, reports, kernels)
    if not reports:
        raise _no_call(parsed, stopped, kernels)
    _check_named("--undefined", parsed.undefined, reports)
    _check_named("--kept", parsed.kept, reports)
    _put_out(reports, form, parsed.output)
    fail_on = None if parsed.fail_on == "never" else Level(parsed.fail_on)
    fails = any(r.fails(fail_on) for r in reports)
    if stopped is not None and not fails:
        raise stopped
    if stopped is not None:
        print(stopped, file=sys.stderr)
    return int(fails)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return int(text)


# -- what is checked -------------------------------------------------------------------------------


def _given_call(parsed: argparse.Namespace) -> CheckReport:
    """The report on the kernel with the arguments of --arg."""
    caller = Loc.here()
    request = arguments.request(parsed, arguments.random_numbers)
    arguments.clear_flags(request)
    return examine(request.kernel, request.args, request.constants, _options(parsed, caller))


def _own_calls(
    parsed: argparse.Namespace, reports: list[CheckReport], kernels: dict[str, KernelFunction]
) -> KernelError | None:
    """Add a report for each call that the file makes when it is run; the fault that stopped it, if one did.

    kernels: gets those that the file defines, if nothing stopped it.
    """
    file, name = arguments.file_and_kernel(parsed.file, parsed.kernel)
    if parsed.constant:
        raise ArgumentError(
            "--constant needs --arg", help="the calls of the file have their own constants"
        )
    path = arguments.python_file(file)
    options = _options(parsed, None)

    def look(kernel: KernelFunction, args: tuple[Any, ...], constants: Mapping[str, Any]) -> None:
        if name in (None, kernel.parameters.name):
            reports.append(examine(kernel, args, constants, options))

    def failed(kernel: KernelFunction, error: KernelError) -> None:
        """Go on after a faulty call, so that later calls are checked; the report on the call has the error."""
        if name not in (None, kernel.parameters.name):
            print(f"{kernel.parameters.name} is not checked and fails: {error.message}")
        elif reports[-1].ok and not reports[-1].ignored:
            raise error

    with checked_calls(look, failed):
        names, stopped = scripts.run(file, path)
    kernels.update(arguments.kernels_of(names, str(path)))
    return stopped


def _check_named(option: str, names: Sequence[str], reports: Sequence[CheckReport]) -> None:
    """Refuse a tensor that no call has; a call that is refused may have any."""
    for name in names:
        if all(r.arguments and name not in r.arguments for r in reports):
            raise ArgumentError(
                f"{option} {name}: no kernel that was checked takes such an argument",
                loc=None,
                help=f"the arguments are {', '.join(dict.fromkeys(n for r in reports for n in r.arguments))}",
            )


def _no_call(
    parsed: argparse.Namespace, stopped: KernelError | None, kernels: Mapping[str, KernelFunction]
) -> KernelError:
    """The error for a file that calls no kernel to check; `stopped`: the reason why it did not run to its end."""
    file, name = arguments.file_and_kernel(parsed.file, parsed.kernel)
    if stopped is not None and name is None:
        return stopped
    return ArgumentError(
        f"{file} calls no kernel{f' `{name}`' if name else ''} when it is run",
        operands={"it stopped": stopped.message} if stopped is not None else None,
        loc=stopped.loc if stopped is not None else None,
        help=_way_to_call(name, kernels) if stopped is None else arguments.NAMED,
    )


def _way_to_call(name: str | None, kernels: Mapping[str, KernelFunction]) -> str:
    """The help if a file calls no kernel, or none of this name, from the kernels that it defines."""
    if not kernels:
        return "a kernel is a function marked @pk.kernel"
    chosen = name or (next(iter(kernels)) if len(kernels) == 1 else "")
    if chosen not in kernels:
        return f"it has {', '.join(kernels)}; {arguments.NAMED}"
    options = arguments.as_options(kernels[chosen].parameters.positional)
    return f"call it there, or give its arguments: --kernel {chosen} {options}"


def _options(parsed: argparse.Namespace, caller: Loc | None) -> CheckOptions:
    words = ["pykittens", "check", parsed.file]
    for option, values in (
        ("--kernel", [] if parsed.kernel is None else [parsed.kernel]),
        ("--arg", parsed.arg),
        ("--constant", parsed.constant),
        ("--undefined", parsed.undefined),
        ("--kept", parsed.kept),
    ):
        words += [word for value in values for word in (option, value)]
    return CheckOptions(
        parsed.schedules,
        parsed.seed,
        parsed.ignore,
        parsed.undefined,
        parsed.kept,
        parsed.device,
        costs=not parsed.no_costs,
        command=shlex.join(words),
        caller=caller,
        progress=CheckProgress(sys.stderr),
    )


# -- what is printed -------------------------------------------------------------------------------


def _format(parsed: argparse.Namespace) -> str:
    if parsed.format is not None:
        return str(parsed.format)
    name = parsed.output or ""
    form = next((form for form, ending in FORMATS.items() if name.endswith(ending)), None)
    if form is None and Path(name).suffix:
        raise ArgumentError(
            f"{name} has the ending of no report format",
            loc=None,
            help=f"let the name end in {', '.join(FORMATS.values())}, or give --format",
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
        case "svg" | "trace" | "steps":
            if len(reports) > 1:
                what = "picture of steps" if form == "steps" else "timeline"
                raise ArgumentError(
                    f"a {what} shows one call, and {len(reports)} were checked",
                    help="name the kernel, FILE:K, or its arguments with --arg",
                )
            shown = reports[0].as_text(form)
        case _:
            shown = "\n\n".join(map(str, reports)) + "\n"
    screen.write(shown, output)
    for report in reports if output else ():
        print(f"{report.kernel}, {report.source.location}: {report.verdict}, in {output}")
