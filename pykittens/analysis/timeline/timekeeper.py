"""Assigns times to the events of a run, which has an order and no clock.

Events are told in any order in which causes come before effects. A group does one thing after another; an engine
serves who is ready first; a wait ends when the last of what it waits for has. So the times depend on what waits for
what, and not on the order of telling.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykittens.analysis.timeline.spans import (
    Activity,
    Args,
    Arrow,
    Span,
    Timeline,
    Track,
    TrackKind,
)
from pykittens.errors import Loc

NOTE = "Emulated order with the cycles that the work takes at best; an order and no measurement."


@dataclass(eq=False)
class Event:
    """Something that happens on a track once all of `after` have; a wait takes no cycles of its own.

    previous: what its group did before. order: the place of its group, or of the group that asked an engine for it,
    and how much the group had done. start and end are known when all times are.
    """

    track: Track
    name: str
    cycles: int
    activity: Activity
    after: tuple[Event, ...]
    previous: Event | None = None
    loc: Loc | None = None
    args: Args = field(default_factory=dict)
    order: tuple[int, int] = (0, 0)
    start: int = 0
    end: int = 0

    @property
    def causes(self) -> tuple[Event, ...]:
        """All that must have ended before it starts."""
        return self.after if self.previous is None else (*self.after, self.previous)


@dataclass(eq=False)
class StageTurn:
    """One turn of a stage round the ring: who took it to fill it, what came, who drained it, who gave it back."""

    track: Track
    name: str
    taken: list[Event] = field(default_factory=list)
    landed: list[Event] = field(default_factory=list)
    drained: list[Event] = field(default_factory=list)
    returned: list[Event] = field(default_factory=list)


class Timekeeper:
    """The events of a run, and the timeline that they make."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._places: dict[Track, int] = {}
        self._events: list[Event] = []
        self._now: dict[Track, Event] = {}
        self._turns: list[StageTurn] = []

    def track(self, process: str, name: str, kind: TrackKind) -> Track:
        """The track of this name in a block; it is shown even if nothing happens on it."""
        track = Track(process, name, kind)
        self._places.setdefault(track, len(self._places))
        return track

    def now(self, group: Track) -> Event:
        """The latest event of a group: an arrival, or an issue, happens when that has ended."""
        if group not in self._now:
            self._now[group] = self._told(Event(group, "", 0, Activity.WORK, ()))
        return self._now[group]

    def work(
        self,
        group: Track,
        name: str,
        cycles: int,
        loc: Loc | None = None,
        args: Args | None = None,
    ) -> Event:
        """A group does something itself, after what it did before."""
        return self._next(Event(group, name, cycles, Activity.WORK, (), None, loc, args or {}))

    def wait(
        self, group: Track, until: Iterable[Event], name: str, loc: Loc | None = None
    ) -> Event:
        """A group goes on when all these events have ended."""
        return self._next(Event(group, name, 0, Activity.WAIT, tuple(until), None, loc))

    def start(
        self,
        engine: Track,
        name: str,
        cycles: int,
        after: Iterable[Event],
        activity: Activity,
        loc: Loc | None = None,
        args: Args | None = None,
    ) -> Event:
        """An engine does something when all these events have ended and it has served who was ready before."""
        assert engine.kind is TrackKind.ENGINE, f"{engine} is no engine"
        event = Event(engine, name, cycles, activity, tuple(after), None, loc, args or {})
        return self._told(event)

    def turn(self, stage: Track, name: str) -> StageTurn:
        """A turn of a stage; the one who asks puts the events into it as they come."""
        self._turns.append(StageTurn(stage, name))
        return self._turns[-1]

    def _next(self, event: Event) -> Event:
        """An event of a group, after what it did before."""
        group = event.track
        assert group.kind is TrackKind.GROUP, f"{group} is no group"
        event.previous = self._now.get(group)
        self._now[group] = self._told(event)
        return event

    def _told(self, event: Event) -> Event:
        if event.track.kind is TrackKind.GROUP:
            done = 0 if event.previous is None else event.previous.order[1] + 1
            event.order = (self._places[event.track], done)
        elif event.after:
            event.order = event.after[0].order
        self._events.append(event)
        return event

    def timeline(self) -> Timeline:
        """The times of all that has been told so far."""
        _set_times(self._events)
        spans = {e: span for e in self._events if (span := _span(e)) is not None}
        arrows = tuple(arrow for e in spans if (arrow := _arrow(e, spans)) is not None)
        stages = [span for turn in self._turns for span in _stage_spans(turn)]
        blocks = list(dict.fromkeys(t.process for t in self._places))
        kinds = list(TrackKind)
        tracks = sorted(self._places, key=lambda t: (blocks.index(t.process), kinds.index(t.kind)))
        places = {track: n for n, track in enumerate(tracks)}
        ordered = sorted([*spans.values(), *stages], key=lambda s: (places[s.track], s.start))
        return Timeline(self.title, NOTE, "cycles", tuple(tracks), tuple(ordered), arrows)


def _set_times(events: list[Event]) -> None:
    """Start every event when its causes have ended; who is ready first is served first, then the group named first."""
    numbers = {event: n for n, event in enumerate(events)}
    missing = Counter({e: len(e.causes) for e in events})
    effects: dict[Event, list[Event]] = {e: [] for e in events}
    for event in events:
        for cause in event.causes:
            effects[cause].append(event)
    # What one group tells comes in its order, so the numbers decide between its own only.
    ready = [(0, e.order, numbers[e]) for e in events if not missing[e]]
    heapq.heapify(ready)
    free: dict[Track, int] = {}
    done = 0
    while ready:
        at, _, number = heapq.heappop(ready)
        event = events[number]
        # What becomes ready by it does so no earlier, so nobody is overtaken.
        event.start = max(at, free.get(event.track, 0))
        event.end = free[event.track] = event.start + event.cycles
        done += 1
        for effect in effects[event]:
            missing[effect] -= 1
            if not missing[effect]:
                time = max(cause.end for cause in effect.causes)
                heapq.heappush(ready, (time, effect.order, numbers[effect]))
    assert done == len(events), "events wait for one another in a circle"


def _span(event: Event) -> Span | None:
    """What is seen of an event: the time it took or was waited for; None if that is none."""
    start = event.start
    if event.activity is Activity.WAIT:
        start = event.previous.end if event.previous is not None else 0
    if start == event.end:
        return None
    return Span(event.track, event.name, start, event.end, event.activity, event.loc, event.args)


def _arrow(event: Event, spans: Mapping[Event, Span]) -> Arrow | None:
    """From what ended a wait to the wait: an arrival is shown as the end of what its group did last."""
    if event.activity is not Activity.WAIT:
        return None
    last: Event | None = max(event.after, key=lambda e: (e.end, e.order))
    while last is not None and last not in spans:
        last = last.previous
    return Arrow(spans[last], spans[event]) if last is not None else None


def _stage_spans(turn: StageTurn) -> list[Span]:
    """A stage being filled, full, and being drained, as far as the turn went."""
    if not turn.taken:
        return []
    first = min(turn.taken, key=lambda e: (e.end, e.order))
    taken = first.end
    full = max(e.end for e in (*turn.taken, *turn.landed))
    found = [(taken, full, Activity.FILLING, first.loc)]
    if turn.drained:
        first = min(turn.drained, key=lambda e: (e.end, e.order))
        drained = first.end
        returned = max(e.end for e in (*turn.drained, *turn.returned))
        found.append((full, drained, Activity.FULL, None))
        found.append((drained, returned, Activity.DRAINING, first.loc))
    return [
        Span(turn.track, turn.name, start, end, activity, loc)
        for start, end, activity, loc in found
        if start < end
    ]
