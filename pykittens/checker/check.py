"""`pk.check`: applies every analysis to a kernel call and leaves the user's arrays unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykittens.analysis.timeline.recorder import Recorder
from pykittens.analysis.timeline.spans import Timeline
from pykittens.checker.costs import cost_tables
from pykittens.checker.faults import caught_in
from pykittens.checker.options import SCHEDULES, CheckOptions, check_options, words_of
from pykittens.checker.progress import terminal_progress
from pykittens.checker.proofs.launches import prove_aliasing
from pykittens.checker.report.report import CheckReport, KernelText, Table
from pykittens.checker.runs import is_determined, run_schedules
from pykittens.checker.static import examine_statically
from pykittens.emulate.finding import Finding, Kind, Level, Scope
from pykittens.errors import ArgumentError, Loc
from pykittens.ir.nodes import Kernel
from pykittens.ops.debug import shows
from pykittens.runtime.arguments import (
    Arguments,
    check_requirements,
    device_name,
    known_values,
    leaf_names,
    scalar_dtype,
)
from pykittens.runtime.arguments import check as check_arguments
from pykittens.runtime.arrays import Array
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.devices import DEVICES
from pykittens.types.dtypes import DType


@dataclass
class CallResult:
    """Findings, sentences that hold for all arguments, and tables of a call that is not refused.

    seeds: the schedules that were run. every_schedule: whether their findings hold for every schedule. stopped: whether
    a fault ended every run. timeline: that of the first run. not_compiled: what a compilation lacks.
    """

    findings: list[Finding] = field(default_factory=list)
    proved: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    seeds: tuple[int, ...] = ()
    every_schedule: bool = False
    stopped: bool = False
    timeline: Timeline | None = None
    not_compiled: str = ""


def check(
    kernel: KernelFunction,
    /,
    *args: Any,
    schedules: int = SCHEDULES,
    seed: int | None = None,
    ignore: Collection[str] = (),
    undefined: Collection[str] = (),
    kept: Collection[str] = (),
    device: str = "H200",
    costs: bool = True,
    compile: bool = True,
    constants: Mapping[str, Any] | None = None,
    **named: Any,
) -> CheckReport:
    """The faults and the costs of a kernel call, found on copies of its arguments.

    Faults of the kernel and of its arguments are findings; none is raised. The kernel runs in `schedules` schedules, or
    only in the schedule of `seed`. `ignore` names kinds of findings to leave out. `undefined` names tensors that are
    undefined before the launch, in addition to those full of NaN; `kept` names tensors of which the launch may leave
    elements as they are. `device` is the GPU to model. Without `costs` the
    report has no tables of resources and costs, and no timeline. Without `compile` the kernel is not compiled, so that
    errors and remarks of the compiler are not found. `constants` has the constants of the kernel whose
    names are those of options: `constants={"seed": 3}`. If the check takes more than two seconds and stderr is a
    terminal, a line there shows how far it is. An ArgumentError for something that is no kernel, and for wrong options.

        >>> @pk.kernel
        ... def half(x, y):
        ...     row, col = pk.grid(x.rows // 64, x.cols // 64)
        ...     pk.store(y[row, col], 0.5 * pk.load(x[row, col], rows=64, cols=64))
        >>> report = pk.check(half, np.ones((100, 70), np.float32), np.empty((100, 70), np.float32))
        >>> report.ok, report.findings[0].kind.value
        (False, 'unwritten-memory')
    """
    options = CheckOptions(
        schedules,
        seed,
        words_of(ignore),
        words_of(undefined),
        words_of(kept),
        device,
        costs,
        compile,
        progress=terminal_progress(),
    )
    if twice := [name for name in constants or {} if name in named]:
        raise ArgumentError(f"check: `{twice[0]}` is given twice, once in `constants`")
    check_options(kernel, args, options)
    return examine(kernel, args, {**named, **(constants or {})}, options)


def examine(
    kernel: KernelFunction,
    args: tuple[Any, ...],
    constants: Mapping[str, Any],
    options: CheckOptions,
) -> CheckReport:
    """The report on one call."""
    found: list[Finding] = []
    result = CallResult()
    tensors_and_numbers: dict[str, str] = {}
    known_constants: dict[str, str] = {}
    with caught_in(found, options.caller):
        arguments = check_arguments(kernel.parameters, args, constants)
        tensors_and_numbers = _tensors_and_numbers(arguments)
        known_constants = _constants(arguments)
        _check_device(kernel, arguments)
        recorded = kernel.record(arguments)
        found += _refusals(recorded, arguments, options.caller)
        if not found:
            result = _examine_launch(kernel, recorded, arguments, options)
            found += result.findings
    kept = tuple(f for f in found if f.kind.value not in options.ignore)
    ignored = Counter(f.kind.value for f in found if f.kind.value in options.ignore)
    return CheckReport(
        kernel.parameters.name,
        KernelText.of(kernel.function),
        arguments=tensors_and_numbers,
        constants=known_constants,
        findings=kept,
        seeds=result.seeds,
        proved=result.proved,
        holds=_holds(result, "nothing else" if kept else "nothing") + _not_compiled(result),
        tables=result.tables,
        timeline=result.timeline,
        ignored=dict(ignored),
        command=options.command,
    )


def _examine_launch(
    kernel: KernelFunction, recorded: Kernel, arguments: Arguments, options: CheckOptions
) -> CallResult:
    """Proofs, then the findings of the schedules, then the costs."""
    device = DEVICES[options.device]
    static = examine_statically(
        recorded, arguments, device, options.caller, compiles=options.compile
    )
    result = CallResult([*static.findings], static.proved, not_compiled=static.missing)
    if static.launches:
        recorder = Recorder(recorded.name) if options.costs else None
        # Otherwise a kernel's prints would appear once per schedule. Other threads go on printing.
        before = shows.set(False)
        try:
            ran = run_schedules(
                kernel,
                arguments,
                options.seeds,
                undefined=options.undefined,
                kept=options.kept,
                watch=recorder,
                progress=options.progress,
            )
        finally:
            shows.reset(before)
        result.seeds = options.seeds
        tried = any(f.scope is Scope.TRIED for f in ran)
        result.every_schedule = is_determined(recorded) and not tried
        result.stopped = any(_stops(f) and f.schedules == len(options.seeds) for f in ran)
        result.findings += [f for f in ran if not _is_proved(f, static.findings)]
        result.timeline = recorder.timeline() if recorder is not None else None
    if options.costs:
        costs = cost_tables(recorded, arguments, device, static.blocks_per_sm)
        result.tables = static.tables + costs
    return result


def _is_proved(finding: Finding, proofs: Sequence[Finding]) -> bool:
    """Whether a proof found the same kind of fault on one of the lines, for all arguments."""
    lines = {str(s.loc) for s in finding.steps}
    return any(
        p.kind is finding.kind and not lines.isdisjoint(str(s.loc) for s in p.steps) for p in proofs
    )


def _check_device(kernel: KernelFunction, arguments: Arguments) -> None:
    if arguments.device != "cpu":
        raise ArgumentError(
            f"{kernel.parameters.name}: the arrays are on {device_name(arguments.device)}, and a check runs on the CPU",
            help="pass copies on the CPU",
        )


def _refusals(recorded: Kernel, arguments: Arguments, caller: Loc | None) -> list[Finding]:
    """The reasons why a launch refuses this call."""
    found = prove_aliasing(recorded, arguments, caller)
    if not found:
        with caught_in(found, caller):
            check_requirements(recorded, arguments, known_values(recorded, arguments))
    return found


# -- the call, in words ----------------------------------------------------------------------------


def _tensors_and_numbers(arguments: Arguments) -> dict[str, str]:
    tensors, numbers = arguments.tensors, arguments.scalars
    shown = {name: _array(array) for name, array in tensors.items()}
    shown |= {name: f"{scalar_dtype(x)} {x}" for name, x in numbers.items()}
    return {name: shown.get(name, "None") for name, _ in leaf_names(arguments.forms)}


def _array(array: Array) -> str:
    """Dtype and shape; strides if the array is not contiguous, and a misaligned address."""
    text = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    packed = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent > 1 and stride != packed and 0 not in array.shape:
            text += f", strides {array.strides}"
            break
        packed *= extent
    if past := array.address % 16:
        text += f", address is {past} byte{'s' * (past > 1)} past a 16-byte boundary"
    return text


def _constants(arguments: Arguments) -> dict[str, str]:
    return {
        name: str(value) if isinstance(value, DType) else getattr(value, "__name__", repr(value))
        for name, value in arguments.constants.items()
    }


def _stops(finding: Finding) -> bool:
    """Whether a run ends at a fault."""
    is_out_of_range = finding.kind is Kind.OUT_OF_RANGE and finding.level is Level.ERROR
    return is_out_of_range or finding.kind in (Kind.DEADLOCK, Kind.FAULT)


def _holds(result: CallResult, nothing: str) -> str:
    """One sentence that says how far the report holds."""
    seeds = result.seeds
    if not seeds:
        return "no schedule was tried because the call is refused"
    tried, each = f"the {len(seeds)} schedules tried, seeds {seeds[0]} to {seeds[-1]}", "each of "
    if len(seeds) == 1:
        tried, each = f"the one schedule tried, seed {seeds[0]}", ""
    if result.stopped:
        return f"{each}{tried}, ended at a fault; nothing after it was checked"
    if result.every_schedule:
        return (
            f"{nothing} was found in {tried}; with these arguments the order of accesses is the same in every "
            "schedule, because no wait depends on timing"
        )
    return f"{nothing} was found in {tried}, with these arguments; other schedules may differ"


def _not_compiled(result: CallResult) -> str:
    """The end of that sentence if there is no compiler."""
    missing = result.not_compiled
    return f"; the kernel was not compiled, because {missing}" if missing else ""
