"""A trace has what its format asks for, and says what the timeline says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from pykittens.analysis.timeline.spans import Activity, Timeline
from pykittens.checker.report.trace import chrome
from tests.timelines import MULTIPLY, ring, two_blocks

# The fields that an event of each phase must have (Trace Event Format, "Event Descriptions").
REQUIRED = {
    "X": {"name": str, "cat": str, "ph": str, "ts": float, "dur": float, "pid": int, "tid": int, "args": dict},
    "M": {"name": str, "ph": str, "pid": int, "tid": int, "args": dict},
    "s": {"name": str, "cat": str, "ph": str, "id": int, "ts": float, "pid": int, "tid": int},
    "f": {"name": str, "cat": str, "ph": str, "id": int, "ts": float, "pid": int, "tid": int, "bp": str},
}  # fmt: skip
NAMES = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}

TIMELINES = pytest.mark.parametrize(
    "timeline",
    [ring().timeline(), two_blocks(), ring(2, 1, 1).timeline()],
    ids=["ring", "two", "short"],
)


def events(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    """The events of a phase, out of the file as it is written."""
    return [e for e in json.loads(json.dumps(chrome(timeline)))["traceEvents"] if e["ph"] == phase]


@TIMELINES
def test_every_event_has_the_fields_of_its_phase(timeline):
    file = json.loads(json.dumps(chrome(timeline)))
    assert set(file) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert file["displayTimeUnit"] in ("ms", "ns")
    assert file["traceEvents"]
    for event in file["traceEvents"]:
        fields = REQUIRED[event["ph"]]
        assert {name: type(value) for name, value in event.items()} == fields, event


@TIMELINES
def test_every_span_is_a_complete_event_of_its_length_on_its_track(timeline):
    found = sorted((e["ts"], e["dur"], e["tid"], e["name"]) for e in events(timeline, "X"))
    wanted = sorted(
        (s.start / 1000, (s.end - s.start) / 1000, timeline.tracks.index(s.track), s.name)
        for s in timeline.spans
    )
    assert found == wanted


@TIMELINES
def test_timed_events_stand_in_the_order_of_time_behind_the_names(timeline):
    all_events = chrome(timeline)["traceEvents"]
    phases = [e["ph"] for e in all_events]
    assert "M" not in phases[phases.count("M") :]
    times = [e["ts"] for e in all_events if e["ph"] != "M"]
    assert times == sorted(times)


@TIMELINES
def test_events_of_a_thread_do_not_overlap(timeline):
    found = sorted(events(timeline, "X"), key=lambda e: (e["tid"], e["ts"]))
    for one, other in itertools.pairwise(found):
        if one["tid"] == other["tid"]:
            assert round(1000 * (one["ts"] + one["dur"])) <= round(1000 * other["ts"])


@TIMELINES
def test_every_process_and_thread_is_named_and_has_its_place(timeline):
    names = events(timeline, "M")
    for event in names:
        key, kind = NAMES[event["name"]]
        assert {k: type(v) for k, v in event["args"].items()} == {key: kind}
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in names if e["name"] == "thread_name"}
    assert list(named.values()) == [t.name for t in timeline.tracks]
    blocks = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
    assert list(blocks.values()) == list(timeline.processes)
    for what in ("process_sort_index", "thread_sort_index"):
        places = [e["args"]["sort_index"] for e in names if e["name"] == what]
        assert places == sorted(set(places))
    for event in events(timeline, "X"):
        assert (event["pid"], event["tid"]) in named


@TIMELINES
def test_every_arrow_starts_once_and_ends_once_later_inside_its_spans(timeline):
    starts, ends = ({e["id"]: e for e in events(timeline, phase)} for phase in "sf")
    assert len(timeline.arrows) == len(events(timeline, "s")) == len(events(timeline, "f")) > 0
    assert starts.keys() == ends.keys()
    spans = events(timeline, "X")
    for number, arrow in enumerate(timeline.arrows):
        start, end = starts[number], ends[number]
        assert start["ts"] <= end["ts"]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        for event, span in ((start, arrow.source), (end, arrow.target)):
            around = [
                s["name"]
                for s in spans
                if (s["pid"], s["tid"]) == (event["pid"], event["tid"])
                and s["ts"] <= event["ts"] < s["ts"] + s["dur"]
            ]
            assert around == [span.name]


def test_a_span_tells_its_source_line_and_its_arguments():
    timeline = ring().timeline()
    product = next(e for e in events(timeline, "X") if e["name"] == "mma_ABt")
    assert product["args"] == {"where": str(MULTIPLY), "line": MULTIPLY.text.strip()}
    copy = next(e for e in events(timeline, "X") if e["name"] == "load_async")
    assert copy["args"]["bytes"] == 64


def test_waits_can_be_told_from_work_by_their_category():
    timeline = ring(consumers=1).timeline()
    waiting = sum(s.activity in (Activity.WAIT, Activity.FULL) for s in timeline.spans)
    assert sum("waiting" in e["cat"].split(",") for e in events(timeline, "X")) == waiting > 0


def test_the_file_says_where_its_times_come_from():
    assert chrome(ring().timeline())["otherData"] == {
        "title": "ring",
        "note": "Emulated order with the cycles that the work takes at best; an order and no measurement.",
        "unit": "cycles",
    }
