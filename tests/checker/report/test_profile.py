"""A profile as text, picture, page and trace, and what a notebook shows of it."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from pykittens.analysis.timeline.profile import Profile, Spent
from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track, TrackKind
from pykittens.checker.report.profile import FORMS, as_text
from tests.parsed import Parsed

WARPS, PAGES = (
    Track("block 0", "warps", TrackKind.GROUP),
    Track("block 0", "pages[0]", TrackKind.STAGE),
)
SPANS = (
    Span(WARPS, "until pages[0] is full", 0, 400, Activity.WAIT, None, {"part": "wait"}, "matvec"),
    Span(WARPS, "drains pages[0]", 400, 900, Activity.WORK, None, {"part": "compute"}, "matvec"),
    Span(WARPS, "works", 900, 1000, Activity.WORK, None, {"part": "compute"}),
    Span(PAGES, "turn 0", 50, 400, Activity.FILLING),
    Span(PAGES, "turn 0", 400, 900, Activity.DRAINING),
)
PROFILE = Profile(
    Timeline("a <program>", "A GPU. Clock reads.", "ns", (WARPS, PAGES), SPANS),
    (
        Spent("", "warps", 1, Counter(compute=100)),
        Spent("matvec", "warps", 2, Counter(wait=400, compute=500)),
    ),
)


def test_the_text_is_the_title_and_the_tables() -> None:
    assert as_text(PROFILE, "text").splitlines() == [
        "a <program>",
        "A GPU. Clock reads.",
        "",
        "instruction           group  times   ns  wait  fetch  compute  store  signal",
        "matvec                warps      2  450   200      0      250      0       0",
        "between instructions  warps      1  100     0      0      100      0       0",
        "",
        "instruction  group  waits                times   ns",
        "matvec       warps  until pages is full      1  400",
        "",
        "ring   turns  filling  full  draining",
        "pages      1      350     0       500",
    ]


def test_the_picture_has_a_bar_for_each_span_in_the_colour_of_its_kind(golden) -> None:
    svg = as_text(PROFILE, "svg")
    golden("pictures/profile.svg", svg)
    found = re.findall(r"<g><title>.*?: (.*?)\n.*?</title>\n?<rect [^>]*fill=\"(#\w+)\"", svg, re.S)
    colours = dict(found)
    assert colours["until pages[0] is full"] != colours["drains pages[0]"] != colours["works"]
    assert ">matvec</text>" in svg
    assert "pale while it waits" in svg
    assert "An arrow" not in svg


def test_a_page_stands_alone() -> None:
    page = as_text(PROFILE, "html")
    parsed = Parsed(page)
    assert "a <program>" in parsed.text
    assert "<program>" not in page
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parsed.found}
    assert page.count("<table") == 3
    assert "<svg" in page
    shown = PROFILE._repr_html_()
    assert shown is not None
    assert shown.count("<table") == 3


def test_a_trace_has_the_kind_and_the_part_of_each_span() -> None:
    events = json.loads(as_text(PROFILE, "trace"))["traceEvents"]
    args = [e["args"] for e in events if e["ph"] == "X" and e["name"] == "drains pages[0]"]
    assert args == [{"part": "compute", "kind": "matvec"}]
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {
        "warps",
        "pages[0]",
    }


def test_a_profile_says_how_to_read_it() -> None:
    assert repr(PROFILE) == (
        "<profile of a <program>: 5 spans; print(profile.table()) shows where the time goes>"
    )


@pytest.mark.parametrize("form", FORMS.values())
def test_a_profile_without_spans_has_a_form_or_an_error(form: str) -> None:
    empty = Profile(Timeline("nothing", "", "ns", (WARPS,), ()), ())
    if form == "svg":
        with pytest.raises(Exception, match="nothing to show"):
            as_text(empty, form)
    else:
        assert as_text(empty, form)
