"""`pk.check`: applies every analysis to a kernel call and leaves the user's arrays unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykittens.analysis.timeline.recorder import Recorder
from pykittens.analysis.timeline.spans import Timeline
from pykittens.checker.costs import cost_tables
from pykittens.checker.faults import caught_in
from pykittens.checker.options import SCHEDULES, Options, check_kernel, check_options, words_of
from pykittens.checker.proofs.launches import prove_aliasing
from pykittens.checker.report.report import Report, Source, Table
from pykittens.checker.runs import is_determined, run_schedules
from pykittens.checker.static import look_at
from pykittens.emulate.finding import Finding, Kind, Level, Scope
from pykittens.errors import ArgumentError, Loc
from pykittens.ir.nodes import Kernel
from pykittens.ops.debug import shows
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import (
    Arguments,
    check_requirements,
    device_name,
    known_values,
    scalar_dtype,
    scalars,
)
from pykittens.runtime.arguments import check as check_arguments
from pykittens.runtime.arrays import Array
from pykittens.runtime.compiled import Compiled
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.devices import DEVICES
from pykittens.types.dtypes import DType


def check(
    kernel: KernelFunction,
    /,
    *args: Any,
    schedules: int = SCHEDULES,
    seed: int | None = None,
    ignore: Collection[str] = (),
    undefined: Collection[str] = (),
    device: str = "H200",
    costs: bool = True,
    constants: Mapping[str, Any] | None = None,
    **named: Any,
) -> Report:
    """What is wrong with a call of a kernel, and what it costs; found on copies of its arguments.

    Faults of the kernel and of its arguments are findings; none is raised. It runs in so many schedules, or in that of
    `seed` alone. `ignore` names kinds of findings to leave out; `undefined`, tensors that hold nothing before the
    launch, as one of NaN does; `device` is the GPU to reckon for. Without `costs` it says what is wrong only. What the
    kernel takes by a name that is one of these words is given in `constants`: `constants={"seed": 3}`.
    """
    options = Options(schedules, seed, words_of(ignore), words_of(undefined), device, costs=costs)
    if twice := [name for name in constants or {} if name in named]:
        raise ArgumentError(f"check: `{twice[0]}` is given twice, once of them in `constants`")
    check_options(kernel, len(args), options)
    return examine(kernel, args, {**named, **(constants or {})}, options)


def examine(
    kernel: KernelFunction, args: tuple[Any, ...], constants: Mapping[str, Any], options: Options
) -> Report:
    """The report on one call."""
    check_kernel(kernel)
    found: list[Finding] = []
    known = _Known()
    arguments: Arguments | None = None
    with caught_in(found, options.caller):
        arguments = check_arguments(kernel.parameters, args, constants)
        _check_device(kernel, arguments)
        recorded = kernel.record(arguments)
        found += _refusals(recorded, arguments, options.caller)
        if not found:
            known = _look(kernel, recorded, arguments, options)
            found += known.findings
    kept = [f for f in found if f.kind.value not in options.ignore]
    return Report(
        kernel.parameters.name,
        Source.of(kernel.function),
        _tensors_and_numbers(arguments) if arguments is not None else {},
        _constants(arguments) if arguments is not None else {},
        findings=tuple(kept),
        seeds=known.seeds,
        proved=known.proved,
        holds=_holds(known, bool(kept)),
        tables=known.tables,
        timeline=known.timeline,
        ignored=_counts(f for f in found if f.kind.value in options.ignore),
        command=options.command,
    )


@dataclass
class _Known:
    """What has been found out of a call that is not refused.

    every_schedule: what is said holds for all of them. stopped: in each a fault ended the run.
    """

    findings: list[Finding] = field(default_factory=list)
    proved: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    every_schedule: bool = False
    stopped: bool = False
    tables: tuple[Table, ...] = ()
    timeline: Timeline | None = None


def _look(
    kernel: KernelFunction, recorded: Kernel, arguments: Arguments, options: Options
) -> _Known:
    """Prove what can be proved, run the schedules, count what it costs."""
    device = DEVICES[options.device]
    before = look_at(
        recorded, arguments, device, _compiled(kernel, arguments, options), options.caller
    )
    known = _Known(list(before.findings), before.proved, tables=before.tables)
    if before.launches:
        _run(kernel, recorded, arguments, options, known)
    if options.costs:
        numbers = scalars(arguments)
        known.tables += cost_tables(recorded, arguments, numbers, device, before.blocks_per_sm)
    else:
        known.tables = ()
    return known


def _compiled(kernel: KernelFunction, arguments: Arguments, options: Options) -> Compiled | None:
    """The compiled kernel, where costs are asked for and there is a compiler; what it refuses is told elsewhere."""
    if not options.costs or nvrtc.available() is not None:
        return None
    given = (
        arguments.tensors[name].numpy() if name in arguments.tensors else arguments.scalars[name]
        for name in arguments.order
    )
    with caught_in([]):
        return kernel.compile(*given, arch=DEVICES[options.device].arch, **arguments.constants)
    return None


def _run(
    kernel: KernelFunction, recorded: Kernel, arguments: Arguments, options: Options, known: _Known
) -> None:
    """Run the schedules."""
    recorder = Recorder(recorded.name) if options.costs else None
    # What a kernel prints, it would print once a schedule. Other threads go on printing.
    before = shows.set(False)
    try:
        ran = run_schedules(
            kernel, arguments, options.seeds, undefined=options.undefined, watch=recorder
        )
    finally:
        shows.reset(before)
    known.seeds = options.seeds
    known.every_schedule = is_determined(recorded) and not any(f.scope is Scope.TRIED for f in ran)
    known.stopped = any(_stops(f) and f.schedules == len(options.seeds) for f in ran)
    known.findings += [f for f in ran if not _is_proved(f, known.findings)]
    known.timeline = recorder.timeline() if recorder is not None else None


def _is_proved(finding: Finding, proofs: Sequence[Finding]) -> bool:
    """Whether a proof tells the same of a line, for all arguments."""
    lines = {str(s.loc) for s in finding.steps}
    return any(
        p.kind is finding.kind and not lines.isdisjoint(str(s.loc) for s in p.steps) for p in proofs
    )


def _check_device(kernel: KernelFunction, arguments: Arguments) -> None:
    if arguments.device != "cpu":
        raise ArgumentError(
            f"{kernel.parameters.name}: the arrays are on {device_name(arguments.device)}, a check runs on the CPU",
            help="pass copies of them on the CPU",
        )


def _refusals(recorded: Kernel, arguments: Arguments, caller: Loc | None) -> list[Finding]:
    """Why a call like this is refused before it runs, if it is."""
    found = prove_aliasing(recorded, arguments, caller)
    if not found:
        with caught_in(found, caller):
            check_requirements(recorded, arguments, known_values(recorded, arguments))
    return found


# -- what the report says of the call --------------------------------------------------------------


def _tensors_and_numbers(arguments: Arguments) -> dict[str, str]:
    return {
        name: _array(arguments.tensors[name])
        if name in arguments.tensors
        else f"{scalar_dtype(arguments.scalars[name])} {arguments.scalars[name]}"
        for name in arguments.order
    }


def _array(array: Array) -> str:
    """Dtype and shape; strides where it is no plain array, and how it lies where the copy engine would mind."""
    told = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    packed = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent > 1 and stride != packed and 0 not in array.shape:
            told += f", strides {array.strides}"
            break
        packed *= extent
    if past := array.address % 16:
        told += f", {past} byte{'s' * (past > 1)} behind a multiple of 16"
    return told


def _constants(arguments: Arguments) -> dict[str, str]:
    return {
        name: str(value) if isinstance(value, DType) else getattr(value, "__name__", repr(value))
        for name, value in arguments.constants.items()
    }


def _stops(finding: Finding) -> bool:
    """Whether a run ends at a fault."""
    wild = finding.kind is Kind.OUT_OF_RANGE and finding.level is Level.ERROR
    return wild or finding.kind in (Kind.DEADLOCK, Kind.FAULT)


def _holds(known: _Known, has_findings: bool) -> str:
    """One sentence that says for what the answer holds."""
    seeds = known.seeds
    if not seeds:
        return "no schedule was tried, since the call is refused"
    nothing = "nothing else" if has_findings else "nothing"
    tried = (
        f"the one schedule tried, that of seed {seeds[0]}"
        if len(seeds) == 1
        else f"the {len(seeds)} schedules tried, seeds {seeds[0]} to {seeds[-1]}"
    )
    if known.stopped:
        each = "" if len(seeds) == 1 else "each of "
        return f"{each}{tried}, ended at a fault; what would come behind it has not been seen"
    if known.every_schedule:
        return (
            f"{nothing} was found in {tried}; the order of accesses is the same in every schedule with these "
            "arguments, as what each group waits for does not depend on who comes first"
        )
    return f"{nothing} was found in {tried}, with these arguments; other schedules may differ"


def _counts(findings: Iterator[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.kind.value] = counts.get(finding.kind.value, 0) + 1
    return counts
