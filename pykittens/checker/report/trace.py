"""A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source: "Trace Event Format", Google, sections "Complete Events", "Flow Events" and "Metadata Events". Times of the
format are microseconds; a nanosecond or a cycle is a thousandth of a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track

_TICKS = 1000  # nanoseconds, or cycles, in a unit of the format
_WAITS = (Activity.WAIT, Activity.FULL)

Event = dict[str, Any]


def chrome(timeline: Timeline) -> dict[str, Any]:
    """The whole file, as values for JSON: blocks are its processes, tracks its threads."""
    process = {name: number for number, name in enumerate(timeline.processes)}
    thread = {track: number for number, track in enumerate(timeline.tracks)}
    ids = {track: {"pid": process[track.process], "tid": thread[track]} for track in thread}
    timed = [_complete(span, ids[span.track]) for span in timeline.spans]
    for number, arrow in enumerate(timeline.arrows):
        timed.append(_flow(number, "s", arrow.source, ids[arrow.source.track]))
        timed.append(_flow(number, "f", arrow.target, ids[arrow.target.track]))
    # Of spans that start together the longest comes first; an arrow comes after the span that it leaves.
    timed.sort(key=lambda e: (e["ts"], -e.get("dur", -1)))
    return {
        "traceEvents": [*_names(process, ids), *timed],
        "displayTimeUnit": "ns",
        "otherData": {"title": timeline.title, "note": timeline.note, "unit": timeline.unit},
    }


def _names(process: dict[str, int], ids: dict[Track, dict[str, int]]) -> Iterator[Event]:
    """The names of blocks and tracks, and their order."""
    for name, number in process.items():
        yield _metadata("process_name", {"pid": number, "tid": 0}, name=name)
        yield _metadata("process_sort_index", {"pid": number, "tid": 0}, sort_index=number)
    for track, identity in ids.items():
        yield _metadata("thread_name", identity, name=track.name)
        yield _metadata("thread_sort_index", identity, sort_index=identity["tid"])


def _metadata(what: str, identity: dict[str, int], **args: str | int) -> Event:
    return {"name": what, "ph": "M", **identity, "args": args}


def _complete(span: Span, identity: dict[str, int]) -> Event:
    """A span with its start and its duration."""
    args: dict[str, str | int] = {**span.args}
    if span.kind:
        args["kind"] = span.kind
    if span.loc is not None:
        args |= {"where": str(span.loc), "line": span.loc.text.strip()}
    category = f"{span.activity.name.lower()}{',waiting' if span.activity in _WAITS else ''}"
    return {
        "name": span.name,
        "cat": category,
        "ph": "X",
        "ts": span.start / _TICKS,
        "dur": (span.end - span.start) / _TICKS,
        **identity,
        "args": args,
    }


def _flow(number: int, phase: str, span: Span, identity: dict[str, int]) -> Event:
    """One end of an arrow. An event belongs to the span around it, so the arrow ends just before the span does."""
    event: Event = {"name": "ends the wait", "cat": "flow", "ph": phase, "id": number}
    event |= {"ts": (span.end - 1) / _TICKS, **identity}
    if phase == "f":
        event["bp"] = "e"
    return event
