"""A timeline as data: spans of time on tracks, and arrows from the end of a wait's cause to the wait.

It says nothing of where the times come from: a model of the hardware makes it, and so can the clock of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from pykittens.errors import Loc

Unit = Literal["cycles", "ns"]
Args = Mapping[str, str | int]


class TrackKind(Enum):
    """What a track is of, in the order in which tracks stand below one another."""

    GROUP = "group"
    STAGE = "stage"
    ENGINE = "engine"


class Activity(Enum):
    """What goes on in a span; the values are what a legend says."""

    WORK = "a group works"
    WAIT = "a group waits"
    COPY = "a copy is under way"
    PRODUCT = "a product runs"
    FILLING = "a stage is being filled"
    FULL = "a stage is full and nobody has taken it"
    DRAINING = "a stage is being drained"


@dataclass(frozen=True)
class Track:
    """One thing that does one thing after another: a group of a role, an engine, or a stage of a ring.

    process: the block it belongs to.
    """

    process: str
    name: str
    kind: TrackKind


@dataclass(frozen=True, eq=False)
class Span:
    """A time on a track, from `start` until `end`, which no longer belongs to it."""

    track: Track
    name: str
    start: int
    end: int
    activity: Activity = Activity.WORK
    loc: Loc | None = None
    args: Args = field(default_factory=dict)


@dataclass(frozen=True)
class Arrow:
    """From the span whose end ended a wait to that wait."""

    source: Span
    target: Span


@dataclass(frozen=True)
class Timeline:
    """The spans of a launch. `title` is what it is of, `note` where its times come from."""

    title: str
    note: str
    unit: Unit
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    arrows: tuple[Arrow, ...] = ()

    @property
    def start(self) -> int:
        """When the first span starts; 0 where there is none."""
        return min((s.start for s in self.spans), default=0)

    @property
    def end(self) -> int:
        """When the last span ends; 0 where there is none."""
        return max((s.end for s in self.spans), default=0)

    @property
    def processes(self) -> tuple[str, ...]:
        """The blocks, in the order of their tracks."""
        return tuple(dict.fromkeys(t.process for t in self.tracks))

    def between(self, start: int, end: int) -> Timeline:
        """What of it lies in a window of time: spans cut at its ends, and the arrows whose two spans are left."""
        cut = {
            span: replace(span, start=max(span.start, start), end=min(span.end, end))
            for span in self.spans
            if span.start < end and start < span.end
        }
        # An arrow goes between the ends of its spans, so both must lie in the window.
        arrows = tuple(
            Arrow(cut[a.source], cut[a.target])
            for a in self.arrows
            if a.source in cut and a.target in cut and a.target.end <= end
        )
        return replace(self, spans=tuple(cut.values()), arrows=arrows)
