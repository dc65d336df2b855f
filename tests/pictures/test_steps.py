"""The steps of a conflict are legible, marked where the fault is, and as the tool draws them on the page."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens.cli.arguments import load
from pykittens.emulate.finding import Finding, Kind, Moment, TileMoment
from pykittens.errors import Loc
from pykittens.pictures.steps import draw, draw_beside
from pykittens.pictures.svg import HIGHLIGHT
from tests.pictures.reading import Picture, read
from tests.planted.core import every

TOOL = load(Path(__file__).resolve().parents[2] / "tools" / "pictures.py")

HELD, READ = TileMoment("x", "X[0]"), TileMoment("x", "X[0]", readers=("a product",))
OVERWRITTEN = TileMoment("x", "X[1]", landing=True, readers=("a product",))


def moment(who: str, what: str, tile: TileMoment, **others: object) -> Moment:
    return Moment(who, what, Loc("/home/me/ring.py", 7, "ring"), (tile,), **others)  # type: ignore[arg-type]


FAULT = (
    moment("consumers", "starts a product that reads x", READ, is_access=True),
    moment("consumers", "arrives on free", READ),
    moment("producer", "ends its wait for free", READ, seen=1),
    moment("producer", "starts a copy of X[1] into x", OVERWRITTEN, seen=1, is_access=True),
)
DONE = moment("consumers", "waits until its products are done", HELD)
REPAIRED = (FAULT[0], DONE, *(dataclasses.replace(m, seen=m.seen and 2) for m in FAULT[1:]))
FINDING = Finding(
    Kind.OVERWRITTEN_IN_USE, "`x` is written while a product may still read it", moments=FAULT
)


def legible(shown: Picture) -> None:
    """Fail where something lies outside the picture, or a text on another."""
    for box in shown.texts + shown.cells:
        assert shown.whole.holds(box), box
    for one, other in itertools.combinations(shown.texts, 2):
        assert not one.overlaps(other), (one, other)
    for word in (t for t in shown.texts if t.style == "cell"):
        assert any(cell.holds(word) for cell in shown.cells), word


def red(svg: str) -> list[str]:
    """The texts that say what is wrong."""
    return [
        line.partition(">")[2].partition("<")[0]
        for line in svg.splitlines()
        if f"fill: {HIGHLIGHT}" in line
    ]


@pytest.mark.parametrize(
    "kind", [Kind.OVERWRITTEN_IN_USE, Kind.RACE, Kind.MISSING_FENCE, Kind.UNLANDED_COPY]
)
def test_the_steps_of_planted_bugs_are_legible(kind: Kind) -> None:
    drawn = 0
    for planted in (p for p in every() if p.kind is kind):
        arguments = planted.arguments(np.random.default_rng(0))
        options = {"schedules": 1, "costs": False, "compile": False}
        report = pk.check(planted.kernel, *arguments, **options, constants=planted.constants)
        for finding in report.findings:
            if finding.moments:
                legible(read(draw(finding).svg()))
                drawn += 1
    assert drawn


def test_the_panels_are_numbered_and_say_who_did_what_at_which_line() -> None:
    shown = read(draw(FINDING).svg())
    assert shown.words("head") == ["1. consumers", "2. consumers", "3. producer", "4. producer"]
    assert shown.words("side") == ["ring.py:7"] * 4
    notes = shown.words("note")
    for m in FAULT:
        assert m.what in notes
    assert notes.count("producer has seen: nothing yet") == 2
    assert notes.count("producer has seen: step 2") == 1
    assert shown.words("cell").count("a product reads it") == 4


def test_the_last_panel_of_a_fault_says_what_is_missing() -> None:
    svg = draw(FINDING).svg()
    assert red(svg) == ["producer has not seen the end of step 1"]
    assert svg.count(f'stroke="{HIGHLIGHT}"') == 1
    unfenced = dataclasses.replace(FINDING, kind=Kind.MISSING_FENCE)
    assert red(draw(unfenced).svg()) == ["no fence follows step 1"]


def test_equal_steps_are_beside_each_other_and_a_missing_one_is_marked() -> None:
    svg = draw_beside("ring", FINDING, REPAIRED).svg()
    shown = read(svg)
    legible(shown)
    assert red(svg) == ["2. consumers: missing", "producer has not seen the end of step 1"]
    heads = {t.text: t for t in shown.texts if t.style == "head"}
    assert heads["With the fault"].top == heads["Repaired"].top
    tops: dict[str, set[float]] = {}
    for m in FAULT:
        tops[m.what] = {t.top for t in shown.texts if t.text == m.what}
    assert [len(at) for at in tops.values()] == [1] * len(FAULT)
    notes = shown.words("note")
    assert notes.count("producer has seen: step 3") == 3
    assert [notes.count(m.what) for m in REPAIRED] == [2] * len(REPAIRED)


def test_a_long_name_is_cut_and_a_long_sentence_has_two_lines() -> None:
    what = "starts a copy of a_tensor_with_a_name[10, 20, 30] into values of stage 0"
    who = "warpgroups of some/folder/of_the_user/kernels.py:60"
    moments = (*FAULT[:3], dataclasses.replace(FAULT[3], who=who, what=what))
    svg = draw(dataclasses.replace(FINDING, moments=moments)).svg()
    legible(read(svg))
    assert "4. warpgroups of line 60" in svg
    assert what not in svg
    assert "starts a copy of" in svg


def test_the_steps_of_the_page_are_as_the_tool_draws_them() -> None:
    kept = (TOOL.FOLDER / TOOL.RACE).read_text(encoding="utf-8")
    assert kept == TOOL.race(), "if they should be others, `make pictures`"


def test_the_steps_of_the_page_are_legible_and_end_with_the_fault() -> None:
    svg = TOOL.race()
    legible(read(svg))
    assert red(svg) == ["3. consumers: missing", "producer has not seen the end of step 2"]
