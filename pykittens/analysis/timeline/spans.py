"""A timeline as data: spans of time on tracks, and arrows from the cause of the end of a wait to the wait.

The times may come from a model of the hardware or from the clock of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from pykittens.display import Shown
from pykittens.errors import Loc

Unit = Literal["cycles", "ns"]
Args = Mapping[str, str | int]


class TrackKind(Enum):
    """What a track shows; tracks are listed in this order."""

    GROUP = "group"
    STAGE = "stage"
    ENGINE = "engine"


class Activity(Enum):
    """What happens in a span; the values are the texts of a legend."""

    WORK = "a group works"
    WAIT = "a group waits"
    COPY = "a copy is under way"
    PRODUCT = "a product runs"
    FILLING = "a stage is being filled"
    FULL = "a stage is full and nobody has taken it"
    DRAINING = "a stage is being drained"


@dataclass(frozen=True)
class Track:
    """A group of a role, an engine, or a stage of a ring, which does one thing at a time.

    process: its block.
    """

    process: str
    name: str
    kind: TrackKind


@dataclass(frozen=True, eq=False)
class Span:
    """A time on a track, from `start` to before `end`. kind: that of the instruction of which it is part, if any."""

    track: Track
    name: str
    start: int
    end: int
    activity: Activity = Activity.WORK
    loc: Loc | None = None
    args: Args = field(default_factory=dict)
    kind: str = ""


@dataclass(frozen=True)
class Arrow:
    """An arrow from a span to the wait that ended with it."""

    source: Span
    target: Span


@dataclass(frozen=True, repr=False)
class Timeline(Shown):
    """The spans of a launch. title: what ran. note: the source of the times."""

    title: str
    note: str
    unit: Unit
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    arrows: tuple[Arrow, ...] = ()

    def __repr__(self) -> str:
        window = f"{self.start:,} to {self.end:,} {self.unit}"
        return f"<timeline of {self.title}, {window}: {len(self.spans)} spans on {len(self.tracks)} tracks>"

    @property
    def start(self) -> int:
        """When the first span starts; 0 if there is none."""
        return min((s.start for s in self.spans), default=0)

    @property
    def end(self) -> int:
        """When the last span ends; 0 if there is none."""
        return max((s.end for s in self.spans), default=0)

    @property
    def processes(self) -> tuple[str, ...]:
        """The blocks, in the order of their tracks."""
        return tuple(dict.fromkeys(t.process for t in self.tracks))

    def between(self, start: int, end: int) -> Timeline:
        """The timeline within a window of time: spans cut at its ends, and the arrows between spans within it."""
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
