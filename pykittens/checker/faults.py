"""Converts exceptions to findings, and merges the findings of several schedules."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import (
    AccessError,
    BarrierError,
    DeadlockError,
    KernelError,
    Loc,
    ResourceError,
    is_user_file,
)

_KINDS = {
    DeadlockError: Kind.DEADLOCK,
    AccessError: Kind.OUT_OF_RANGE,
    BarrierError: Kind.BARRIER_COUNT,
    ResourceError: Kind.RESOURCES,
}


@contextmanager
def caught_in(
    findings: list[Finding],
    caller: Loc | None = None,
    *,
    kind: Kind | None = None,
    scope: Scope = Scope.EVERY_SCHEDULE,
    seed: int | None = None,
) -> Iterator[None]:
    """Add the fault that ends the block to the findings, where it is the kernel's or the call's.

    A fault of the package itself goes on. `caller` is a place that is none of the user's; `kind`, what the fault is if
    its class does not say it.
    """
    try:
        yield
    except KernelError as fault:
        findings.append(_of_kernel_error(fault, caller, kind, scope, seed))
    except Exception as error:
        place = _place(error.__traceback__)
        if place is None:
            raise
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        findings.append(_finding(Kind.FAULT, told, place, scope, seed))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each that several schedules show, with the first seed and how many there were."""
    together: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        together.setdefault(finding.key, []).append(finding)
    return [
        dataclasses.replace(same[0], schedules=len({f.seed for f in same}))
        for same in together.values()
    ]


def first_of_each(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each once: of those that are one in several groups, the first."""
    first: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        first.setdefault(finding.key, finding)
    return list(first.values())


def _of_kernel_error(
    fault: KernelError, caller: Loc | None, kind: Kind | None, scope: Scope, seed: int | None
) -> Finding:
    if kind is None:
        kind = next((k for c, k in _KINDS.items() if isinstance(fault, c)), Kind.FAULT)
    if isinstance(fault, DeadlockError) and fault.waits:
        steps = tuple(FindingStep(name, f"waits: {told}", loc) for name, told, loc in fault.waits)
        return Finding(kind, fault.message, steps, scope=scope, seed=seed)
    place = None if fault.loc == caller else fault.loc
    finding = _finding(kind, fault.message, place, scope, seed)
    return dataclasses.replace(finding, help=fault.help or "", operands=fault.operands)


def _finding(
    kind: Kind, message: str, place: Loc | None, scope: Scope, seed: int | None
) -> Finding:
    steps = () if place is None else (FindingStep("", "", place),)
    return Finding(kind, message, steps, scope=scope, seed=seed)


def _place(trace: TracebackType | None) -> Loc | None:
    """The line of the user's that an error comes from, None where it comes from the package."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        # What NumPy or the standard library raise is the fault of who called them.
        if module not in sys.stdlib_module_names | {"numpy", "ml_dtypes"}:
            here = Loc(code.co_filename, trace.tb_lineno, code.co_name, code, trace.tb_lasti)
            found = here if is_user_file(code.co_filename) else None
        trace = trace.tb_next
    return found
