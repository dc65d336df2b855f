"""Runs a kernel in several schedules under the race detector."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from contextlib import nullcontext

import numpy as np

from pykittens.checker.copies import Copies
from pykittens.checker.differences import differences
from pykittens.checker.faults import caught_in, merged
from pykittens.checker.nonfinite import Origins, finding, nonfinite_outputs
from pykittens.checker.progress import CheckProgress
from pykittens.emulate import machine
from pykittens.emulate.finding import Finding, Kind, Level, Scope
from pykittens.emulate.memory import Array
from pykittens.emulate.races.detector import Races
from pykittens.emulate.races.moments import Moments
from pykittens.emulate.watch import Watcher, Watchers
from pykittens.ir.nodes import (
    Call,
    Kernel,
    While,
    tensors,
    waits_for_flags,
    walk,
    written,
)
from pykittens.runtime.arguments import Arguments, scalars
from pykittens.runtime.kernel import KernelFunction


def run_schedules(
    kernel: KernelFunction,
    arguments: Arguments,
    seeds: Collection[int],
    *,
    undefined: Collection[str] = (),
    kept: Collection[str] = (),
    watch: Watcher | None = None,
    progress: CheckProgress | None = None,
) -> list[Finding]:
    """The findings in the schedules of these seeds, each run on fresh copies of the arguments.

    undefined: tensors that are undefined before the launch. kept: tensors that may keep values. watch: an additional
    watcher of the first run. progress: shows how far the runs are.
    """
    recorded, copies = kernel.record(arguments), Copies(arguments)
    defined = tuple(undefined), tuple(kept)
    found: list[Finding] = []
    first: tuple[int, Mapping[str, Array]] | None = None
    with progress or nullcontext():
        for number, seed in enumerate(seeds):
            call = arguments.holding(copies.make())
            tensors = {name: array.numpy() for name, array in call.tensors.items()}
            races = Races(recorded, tensors, *defined)
            if progress is not None:
                progress.starts(recorded, number, len(seeds))
            others = [w for w in (progress, watch if number == 0 else None) if w is not None]
            mine = _run(recorded, call, races, others, seed)
            if number == 0 and any(f.level is Level.ERROR for f in mine):
                mine = _with_moments(recorded, arguments.holding(copies.make()), defined, seed)
            # With other faults a difference is a consequence. For a schedule-dependent result it shows the extent.
            if all(f.level is not Level.ERROR or f.kind is Kind.SCHEDULE_DEPENDENT for f in mine):
                if first is None:
                    first = seed, tensors
                    mine += _non_finite(kernel, arguments, copies, races, tensors, seed)
                else:
                    mine += differences(recorded, races.names, first, (seed, tensors))
            found += mine
    counted = not any(f.kind is Kind.BARRIER_COUNT for f in found)
    scope = Scope.EVERY_SCHEDULE if counted and is_determined(recorded) else Scope.TRIED
    return [dataclasses.replace(f, scope=scope) for f in _without_doubles(merged(found))]


def _run(
    kernel: Kernel, call: Arguments, races: Races, others: list[Watcher], seed: int
) -> list[Finding]:
    """The findings of one run, which writes the tensors of the call."""
    tensors = {name: array.numpy() for name, array in call.tensors.items()}
    faults: list[Finding] = []
    with caught_in(faults, seed=seed):
        watch = Watchers((*others, races)) if others else races
        machine.run(kernel, tensors, scalars(call), seed, watch)
        races.finish()
    if faults:
        races.report_deadlock()
    return [dataclasses.replace(f, seed=seed) for f in races.found.values()] + faults


def _with_moments(
    kernel: Kernel, call: Arguments, defined: tuple[tuple[str, ...], tuple[str, ...]], seed: int
) -> list[Finding]:
    """The findings of a run, found once more, with what led to each conflict, which other runs need not keep."""
    moments = Moments()
    tensors = {name: array.numpy() for name, array in call.tensors.items()}
    return _run(kernel, call, Races(kernel, tensors, *defined, moments), [moments], seed)


def _non_finite(
    kernel: KernelFunction,
    arguments: Arguments,
    copies: Copies,
    races: Races,
    after: Mapping[str, Array],
    seed: int,
) -> list[Finding]:
    """Outputs of a run with NaN or infinity from finite inputs; a second run finds the lines."""
    recorded = kernel.record(arguments)
    before = {name: array.numpy() for name, array in arguments.tensors.items()}
    outputs = list(nonfinite_outputs(recorded, races.initialized, before, after))
    if not outputs or not np.isfinite([float(v) for v in arguments.scalars.values()]).all():
        return []
    call = arguments.holding(copies.make())
    tensors, origins = {n: a.numpy() for n, a in call.tensors.items()}, Origins()
    machine.run(recorded, tensors, scalars(call), seed, origins)
    found = finding(outputs, after, origins)
    return [] if found is None else [dataclasses.replace(found, seed=seed)]


def is_determined(kernel: Kernel) -> bool:
    """Whether the waits of the groups, for stages, semaphores and turns, do not depend on the schedule.

    Flags and atomics with a result do, and so do `while` loops in a kernel that writes a tensor that it reads.
    Otherwise one schedule shows the order of all accesses, unless an arrival may count for another phase, which is a
    separate finding.
    """
    nodes = list(walk(kernel.body))
    read = {t for n in nodes if isinstance(n, Call) for t in tensors(n, n.op.effects.reads)}
    changing = not read.isdisjoint(written(kernel))
    spins = changing and any(isinstance(node, While) for node in nodes)
    acquires = any(isinstance(node, Call) and node.op.effects.acquires for node in nodes)
    return not spins and not acquires and not waits_for_flags(kernel)


# An access that nothing orders may also find memory unwritten.
_UNORDERED = (
    Kind.UNLANDED_COPY,
    Kind.OVERWRITTEN_IN_USE,
    Kind.RACE,
    Kind.BLOCK_CONFLICT,
)


def _without_doubles(findings: list[Finding]) -> list[Finding]:
    """The findings without the consequences of another finding on the same line.

    If the stores of an unordered sum are reported, the differing results are not. If an unordered read is reported, a
    read before the first write on the same line is not.
    """
    sums = {
        s.loc for f in findings if f.kind is Kind.SCHEDULE_DEPENDENT and f.missing for s in f.steps
    }
    unordered = {s.loc for f in findings if f.kind in _UNORDERED for s in f.steps}

    def follows(f: Finding) -> bool:
        if f.kind is Kind.SCHEDULE_DEPENDENT:
            return not f.missing and any(s.loc in sums for s in f.steps)
        reads = f.kind is Kind.UNWRITTEN_MEMORY and bool(f.missing)
        return reads and any(s.loc in unordered for s in f.steps)

    return [f for f in findings if not follows(f)]
