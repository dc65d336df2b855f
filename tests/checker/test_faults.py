"""What is raised becomes a finding, if it is the user's; findings of several schedules become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.checker.faults import caught_in, merged
from pykittens.emulate.finding import Finding, Kind, Scope
from pykittens.errors import (
    AccessError,
    DeadlockError,
    KernelError,
    LanguageError,
    Loc,
    ResourceError,
)
from pykittens.runtime.arrays import numpy_dtype


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DeadlockError, Kind.DEADLOCK),
        (AccessError, Kind.OUT_OF_RANGE),
        (ResourceError, Kind.RESOURCES),
        (LanguageError, Kind.FAULT),
    ],
)
def test_the_class_of_an_error_is_the_kind_of_the_finding(
    error: type[KernelError], kind: Kind
) -> None:
    found: list[Finding] = []
    with caught_in(found, scope=Scope.TRIED, seed=4):
        raise error("wrong", operands={"a": 1}, help="change it")
    (finding,) = found
    assert (finding.kind, finding.message, finding.help) == (kind, "wrong", "change it")
    assert (finding.operands, finding.seed, finding.scope) == ({"a": 1}, 4, Scope.TRIED)
    (step,) = finding.steps
    assert step.loc is not None
    assert step.loc.text.strip().startswith("raise error(")


def test_a_kind_that_is_known_better_is_taken() -> None:
    found: list[Finding] = []
    with caught_in(found, kind=Kind.ALIASING):
        raise LanguageError("wrong")
    assert found[0].kind is Kind.ALIASING


def test_the_caller_is_no_place_of_a_fault() -> None:
    found: list[Finding] = []
    caller = Loc.here()
    with caught_in(found, caller):
        raise LanguageError("wrong", loc=caller)
    assert found[0].steps == ()


def test_an_error_of_the_user_is_a_finding_at_their_line() -> None:
    found: list[Finding] = []
    with caught_in(found):
        np.zeros(4).reshape(3)
    with caught_in(found):
        raise AssertionError
    told = [(f.kind, f.message) for f in found]
    assert told[0][0] is Kind.FAULT
    assert told[0][1].startswith("ValueError: cannot reshape")
    assert told[1][1] == "AssertionError"
    assert [f.steps[0].loc.text.strip() for f in found] == [  # type: ignore[union-attr]
        "np.zeros(4).reshape(3)",
        "raise AssertionError",
    ]


@pk.function
def put(tile: Any, value: Any) -> None:
    pk.store(tile, value)


@pk.kernel
def put_twice(x: Any, y: Any) -> None:
    pk.grid(1)
    made = pk.shared(pk.st(f32, 64, 64))
    with pk.warpgroups(1):
        put(made, pk.load(x, rows=64, cols=64))
    with pk.warpgroups(1):
        put(made, pk.load(y, rows=64, cols=64))


def test_a_finding_in_a_helper_shows_the_line_of_its_call() -> None:
    x = np.ones((64, 64), np.float32)
    report = pk.check(put_twice, x, x.copy(), costs=False)
    finding = report.found(Kind.RACE)[0]
    lines = [[c.text.strip() for c in (s.loc, *s.loc.callers)] for s in finding.steps if s.loc]
    assert sorted(lines) == [
        ["pk.store(tile, value)", "put(made, pk.load(x, rows=64, cols=64))"],
        ["pk.store(tile, value)", "put(made, pk.load(y, rows=64, cols=64))"],
    ]
    for shown in (str(report), report.html()):
        assert "called at tests/checker/test_faults.py:" in shown
    calls = [step["calls"] for step in report.data()["findings"][0]["steps"]]
    assert [c["function"] for (c,) in calls] == ["put_twice", "put_twice"]


def test_an_error_of_the_package_goes_on() -> None:
    found: list[Finding] = []
    with pytest.raises(TypeError), caught_in(found):
        numpy_dtype("no such dtype")
    assert found == []


def test_what_several_schedules_show_is_one_finding_with_their_number() -> None:
    def race(seed: int, message: str = "race") -> Finding:
        return Finding(Kind.RACE, message, seed=seed)

    one, other = merged([race(3), race(3), race(5), race(9, "another")])
    assert (one.message, one.seed, one.schedules) == ("race", 3, 2)
    assert (other.message, other.seed, other.schedules) == ("another", 9, 1)
