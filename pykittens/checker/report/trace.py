"""A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source: "Trace Event Format", Google, sections "Complete Events", "Flow Events" and "Metadata Events". Times of the
format are microseconds; a nanosecond, or a cycle, is a thousandth of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track

_TICKS = 1000  # nanoseconds, or cycles, in a unit of the format
_WAITS = (Activity.WAIT, Activity.FULL)

Event = dict[str, Any]


def chrome(timeline: Timeline) -> dict[str, Any]:
    """The whole file, to be written as JSON: blocks are its processes, tracks its threads."""
    process = {name: number for number, name in enumerate(timeline.processes)}
    thread = {track: number for number, track in enumerate(timeline.tracks)}
    places = {track: {"pid": process[track.process], "tid": thread[track]} for track in thread}
    timed = [_complete(span, places[span.track]) for span in timeline.spans]
    for number, arrow in enumerate(timeline.arrows):
        timed.append(_flow(number, "s", arrow.source, places[arrow.source.track]))
        timed.append(_flow(number, "f", arrow.target, places[arrow.target.track]))
    # A longer span that starts with a shorter one comes first; an arrow after the span it leaves.
    timed.sort(key=lambda e: (e["ts"], -e.get("dur", -1)))
    return {
        "traceEvents": [*_names(process, places), *timed],
        "displayTimeUnit": "ns",
        "otherData": {"title": timeline.title, "note": timeline.note, "unit": timeline.unit},
    }


def _names(process: dict[str, int], places: dict[Track, dict[str, int]]) -> Iterator[Event]:
    """The names of blocks and tracks, and the order in which they stand."""
    for name, number in process.items():
        yield _metadata("process_name", {"pid": number, "tid": 0}, name=name)
        yield _metadata("process_sort_index", {"pid": number, "tid": 0}, sort_index=number)
    for track, place in places.items():
        yield _metadata("thread_name", place, name=track.name)
        yield _metadata("thread_sort_index", place, sort_index=place["tid"])


def _metadata(what: str, place: dict[str, int], **args: str | int) -> Event:
    return {"name": what, "ph": "M", **place, "args": args}


def _complete(span: Span, place: dict[str, int]) -> Event:
    """A span with its start and its duration."""
    args: dict[str, str | int] = {**span.args}
    if span.loc is not None:
        args |= {"where": str(span.loc), "line": span.loc.text.strip()}
    category = f"{span.activity.name.lower()}{',waiting' if span.activity in _WAITS else ''}"
    return {
        "name": span.name,
        "cat": category,
        "ph": "X",
        "ts": span.start / _TICKS,
        "dur": (span.end - span.start) / _TICKS,
        **place,
        "args": args,
    }


def _flow(number: int, phase: str, span: Span, place: dict[str, int]) -> Event:
    """One end of an arrow: it belongs to the span in which it lies, so it lies just before the end of the span."""
    event: Event = {"name": "ends the wait", "cat": "flow", "ph": phase, "id": number}
    event |= {"ts": (span.end - 1) / _TICKS, **place}
    if phase == "f":
        event["bp"] = "e"
    return event
