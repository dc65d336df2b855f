"""Marks the findings that probably follow from another finding: one mistake often shows in several ways.

A finding is marked if an earlier finding shares with it a line, or a barrier, pipeline or flag that both name. Proofs
come first, then the findings of the runs in the order in which they were found; deadlocks and results that differ come
last, because they are outcomes. No finding is left out. Findings of other kinds, and proofs, stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pykittens.emulate.finding import Finding, Kind, Level, Scope

_OF_BARRIERS = (Kind.BARRIER_COUNT, Kind.BYTE_COUNT, Kind.DEADLOCK)
_UNORDERED = (Kind.UNLANDED_COPY, Kind.OVERWRITTEN_IN_USE, Kind.RACE, Kind.BLOCK_CONFLICT)
_OUTCOMES = (Kind.DEADLOCK, Kind.UNWRITTEN_MEMORY, Kind.SCHEDULE_DEPENDENT)
_CAUSES = (*_OF_BARRIERS, *_UNORDERED, Kind.UNWAITED_PRODUCT)
# `full`, full[0], "phase 0 of full", "full: one arrival more", ring.drain()
_NAME = re.compile(
    r"`([A-Za-z_]\w*)|\b(\w+)\[\d|\bphase(?: \d+)? of (?!stage )(\w+)|\b(\w+)(?:\.(?:fill|drain)\(|: one)"
)


def causes(findings: Sequence[Finding]) -> list[int | None]:
    """For each finding the index of the one from which it probably follows, or None."""
    order = sorted(range(len(findings)), key=lambda i: (findings[i].kind in _OUTCOMES, i))
    found: list[int | None] = [None] * len(findings)
    for position, i in enumerate(order):
        for j in order[:position]:
            if _may_follow(findings[i]) and _may_cause(findings[j], findings[i]):
                root = found[j]
                found[i] = j if root is None else root
                break
    return found


def _may_follow(finding: Finding) -> bool:
    if finding.scope is Scope.ALWAYS or finding.level is Level.NOTE:
        return False
    # An output that is not written whole is no consequence of a fault: the run came to its end.
    is_read = finding.kind is Kind.UNWRITTEN_MEMORY and bool(finding.missing)
    differs = finding.kind is Kind.SCHEDULE_DEPENDENT
    return is_read or differs or finding.kind in (*_OF_BARRIERS, *_UNORDERED)


def _may_cause(cause: Finding, finding: Finding) -> bool:
    if cause.kind not in _CAUSES or cause.level is not Level.ERROR:
        return False
    return not (
        _lines(cause).isdisjoint(_lines(finding)) and _names(cause).isdisjoint(_names(finding))
    )


def _lines(finding: Finding) -> set[str]:
    return {s.loc.path for s in (*finding.steps, *finding.history) if s.loc is not None}


def _names(finding: Finding) -> set[str]:
    """The barriers, pipelines and flags that a finding names."""
    said = [finding.missing]
    if finding.kind in _OF_BARRIERS:
        said += [finding.message, *(s.what for s in finding.steps)]
    return {name for match in _NAME.findall(" ".join(said)) for name in match if name}
