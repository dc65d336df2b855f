"""A report puts errors first, says what fails, how to see a schedule again, and what to change."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

import pykittens as pk
from pykittens.checker.report.advice import ADVICE
from pykittens.checker.report.report import OPTIONS, KernelText
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.errors import ArgumentError
from pykittens.pictures.steps import draw
from tests.checker.report.sample import (
    early,
    full_report,
    many_threads,
    moments,
    report,
    unlanded,
    unwritten,
)


def test_findings_stand_errors_first_and_else_in_their_order() -> None:
    other = Finding(Kind.RACE, "two write `y`")
    made = report(many_threads(), unwritten(), unlanded(), other)
    assert [f.message for f in made.findings] == [
        f.message for f in (unlanded(), other, unwritten(), many_threads())
    ]
    assert (len(made.errors), len(made.warnings), len(made.notes)) == (2, 1, 1)
    assert made.verdict == "2 errors, 1 warning, 1 note"
    assert [f.kind for f in made.found(Kind.RACE)] == [Kind.RACE]


def test_only_errors_make_a_report_not_ok() -> None:
    assert report().ok
    assert report().verdict == "no fault found"
    assert report(many_threads(), unwritten()).ok
    assert not report(unlanded()).ok


@pytest.mark.parametrize(
    ("finding", "levels"),
    [
        (unlanded(), {Level.ERROR, Level.WARNING, Level.NOTE}),
        (unwritten(), {Level.WARNING, Level.NOTE}),
        (many_threads(), {Level.NOTE}),
    ],
)
def test_a_report_fails_on_findings_as_bad_as_asked_or_worse(
    finding: Finding, levels: set[Level]
) -> None:
    made = report(finding)
    assert {level for level in Level if made.fails(level)} == levels
    assert not made.fails(None)
    assert not any(report().fails(level) for level in Level)


def test_every_finding_says_what_to_change() -> None:
    assert ADVICE.keys() == set(Kind)
    made = report(unlanded(), many_threads())
    assert made.errors[0].help == unlanded().help
    assert made.notes[0].help == ADVICE[Kind.RESOURCES]


def test_a_schedule_is_seen_again_by_the_call_or_by_the_command() -> None:
    assert report().replay(unlanded()) == "pk.check(early, x, y, to=bf16, seed=17)"
    told = report(command="pykittens check early.py").replay(unlanded())
    assert told == "pykittens check early.py --seed 17"
    assert report().replay(many_threads()) == ""


def test_results_that_differ_are_seen_again_in_several_schedules() -> None:
    differs = Finding(Kind.SCHEDULE_DEPENDENT, "`y` differs", seed=2)
    assert report().replay(differs) == "pk.check(early, x, y, to=bf16, schedules=3)"
    told = report(command="pykittens check early.py").replay(differs)
    assert told == "pykittens check early.py --schedules 3"


def test_a_constant_named_as_an_option_is_shown_apart() -> None:
    made = report(constants={"to": "bf16", "seed": "7"})
    call = 'pk.check(early, x, y, to=bf16, constants={"seed": 7}, seed=17)'
    assert made.replay(unlanded()) == call
    words = inspect.signature(pk.check).parameters.values()
    assert [w.name for w in words if w.kind is w.KEYWORD_ONLY] == [*OPTIONS]


def test_the_source_of_a_kernel_is_its_lines_as_the_file_has_them() -> None:
    source = KernelText.of(early.function)
    lines = Path(source.file).read_text().splitlines()
    assert source.lines[0] == "@pk.kernel"
    assert lines[source.first - 1 : source.first - 1 + len(source.lines)] == [*source.lines]
    assert source.location.endswith(f"sample.py:{source.first}")


def test_a_function_without_a_file_has_no_lines() -> None:
    scope: dict[str, object] = {}
    exec("def nowhere(): pass", scope)
    assert KernelText.of(scope["nowhere"]) == KernelText("<string>", 1)  # type: ignore[arg-type]


def test_a_report_is_saved_as_the_name_ends(tmp_path: Path) -> None:
    made = full_report()
    for name in ("a.txt", "a.json", "a.html", "a.svg", "a.trace.json"):
        made.save(tmp_path / name)
    assert (tmp_path / "a.txt").read_text() == f"{made}\n"
    assert json.loads((tmp_path / "a.json").read_text()) == made.data()
    assert (tmp_path / "a.html").read_text() == made.html()
    assert (tmp_path / "a.svg").read_text() == made.svg()
    assert json.loads((tmp_path / "a.trace.json").read_text())["traceEvents"]
    with pytest.raises(ArgumentError, match="use one of .trace.json, .json, .html"):
        made.save(tmp_path / "a.pdf")
    with pytest.raises(ArgumentError, match="has no timeline: no schedule was run"):
        dataclasses.replace(made, timeline=None, seeds=()).save(tmp_path / "a.svg")
    with pytest.raises(ArgumentError, match="has no timeline: the check had costs=False"):
        dataclasses.replace(made, timeline=None).save(tmp_path / "a.svg")


def test_the_steps_of_the_worst_conflict_are_saved_as_a_picture(tmp_path: Path) -> None:
    first = dataclasses.replace(unlanded(), moments=moments("tile"))
    second = dataclasses.replace(unwritten(), moments=moments("other"))
    made = report(many_threads(), second, first)
    made.save(tmp_path / "a.steps.svg")
    assert (tmp_path / "a.steps.svg").read_text() == made.steps() == draw(first).svg()
    with pytest.raises(ArgumentError, match="the report on early has no steps to show") as caught:
        full_report().steps()
    assert caught.value.help == "an .svg shows the timeline"


def test_the_repr_of_a_report_is_its_verdict_and_its_worst_finding() -> None:
    made = full_report()
    assert repr(made).splitlines() == [
        f"<check of early, {made.source.location}: {made.verdict}>",
        "error[unlanded-copy]: `tile` is read while a copy into it is under way",
        "print(report) shows the whole report",
    ]
    assert len(repr(report()).splitlines()) == 2
