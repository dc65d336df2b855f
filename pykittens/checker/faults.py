"""Converts exceptions to findings, and merges the findings of several schedules."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
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
    """Add the exception that ends the block to the findings if the kernel or the call caused it; raise others.

    `caller` is a location outside the user's code; `kind` is used instead of the kind of the exception's class.
    """
    try:
        yield
    except KernelError as error:
        kind = kind or next((k for c, k in _KINDS.items() if isinstance(error, c)), Kind.FAULT)
        waits = error.waits if isinstance(error, DeadlockError) else ()
        steps = [FindingStep(name, f"waits: {reason}", loc) for name, reason, loc in waits]
        if not steps and error.loc not in (None, caller):
            steps = [FindingStep("", "", error.loc)]
        found = Finding(kind, error.message, tuple(steps), scope=scope, seed=seed)
        if isinstance(error, DeadlockError):
            history = tuple(FindingStep(*said) for said in error.history)
            found = replace(found, history=history)
        if not waits:  # the steps of a deadlock show its operands, the groups that wait
            found = replace(found, help=error.help or "", operands=error.operands)
        findings.append(found)
    except Exception as error:
        loc = _user_line(error.__traceback__)
        if loc is None:
            raise
        message = f"{type(error).__name__}: {error}".rstrip(": ")
        step = FindingStep("", "", loc)
        findings.append(Finding(Kind.FAULT, message, (step,), scope=scope, seed=seed))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without repeats in groups, blocks or schedules, each with the number of schedules that showed it."""
    together: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        together.setdefault(finding.key, []).append(finding)
    return [
        replace(same[0], schedules=len({f.seed for f in same if f.seed is not None}))
        for same in together.values()
    ]


def _user_line(trace: TracebackType | None) -> Loc | None:
    """The line of the user's code that raised an error; None if the package raised it."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        # An error of NumPy or the standard library is attributed to the caller.
        if module not in sys.stdlib_module_names | {"numpy", "ml_dtypes"}:
            here = Loc(code.co_filename, trace.tb_lineno, code.co_name, code, trace.tb_lasti)
            found = here if is_user_file(code.co_filename) else None
        trace = trace.tb_next
    return found
