"""Findings that probably follow from another one are marked and kept; independent ones stand for themselves."""

from __future__ import annotations

import pytest

from pykittens.checker.report.causes import causes
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.errors import Loc
from tests.checker.report.sample import report


def finding(kind: Kind, *lines: int, missing: str = "an edge", **others) -> Finding:
    """A finding with these lines."""
    steps = tuple(FindingStep("the block", "does it", Loc("kernel.py", n, "f")) for n in lines)
    return Finding(kind, "`t` is wrong", steps, missing, "mend it", **others)


RACE = finding(Kind.RACE, 1, 2)
COUNT = finding(Kind.BARRIER_COUNT, 8, missing="a drain of `ring`", scope=Scope.ALWAYS)


def test_an_access_of_the_same_line_probably_follows() -> None:
    assert causes([RACE, finding(Kind.OVERWRITTEN_IN_USE, 2, 3)]) == [None, 0]


def test_a_finding_that_names_the_barrier_probably_follows() -> None:
    copy = finding(Kind.UNLANDED_COPY, 5, missing="a wait for stage 0 of `ring` to be full")
    assert causes([COUNT, copy, finding(Kind.RACE, 5)]) == [None, 0, 0]


def test_a_deadlock_follows_from_what_was_found_after_it() -> None:
    stuck = Finding(
        Kind.DEADLOCK, "deadlock", (FindingStep("producer", "waits: ring.fill() at 3", None),)
    )
    assert causes([stuck, COUNT]) == [1, None]


@pytest.mark.parametrize(
    "other",
    [
        finding(Kind.RACE, 3, 4),
        finding(Kind.MISSING_FENCE, 1, 2),
        finding(Kind.UNWAITED_PRODUCT, 1),
        finding(Kind.UNWRITTEN_MEMORY, 1, missing=""),
        finding(Kind.OUT_OF_RANGE, 1),
        finding(Kind.RESOURCES, 1),
        finding(Kind.BYTE_COUNT, 1, scope=Scope.ALWAYS),
        finding(Kind.RACE, 1, level=Level.NOTE),
    ],
    ids=lambda f: f"{f.kind.value}-{f.level.value}",
)
def test_an_independent_finding_stands_for_itself(other: Finding) -> None:
    assert causes([RACE, other]) == [None, None]


def test_a_warning_is_no_cause_of_an_error() -> None:
    assert causes([finding(Kind.RACE, 1, level=Level.WARNING), RACE]) == [None, None]


def test_a_report_keeps_every_finding_and_puts_consequences_after_their_cause() -> None:
    other = finding(Kind.RACE, 7, 9)
    follows = finding(Kind.OVERWRITTEN_IN_USE, 2, 3)
    made = report(RACE, other, follows)
    assert made.findings == (RACE, follows, other)
    assert made.causes == (None, 0, None)
    assert made.verdict == "3 errors (1 probably follows from another)"
    assert "follows: probably from finding 1, race at kernel.py:2" in str(made)
    assert [f["follows"] for f in made.data()["findings"]] == [None, 1, None]
    assert "probably from finding 1, race at kernel.py:2" in made.html()
