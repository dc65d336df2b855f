"""Assigns times to the events of a run, which has an order but no clock.

Events are added in any order in which causes come before effects. A group does one thing at a time; an engine serves
the event that is ready first; a wait ends with the last event that it waits for. So the times depend on the
dependencies, and not on the order in which events are added.
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
    """An event on a track, which starts after all of `after` have ended; a wait itself takes no cycles.

    previous: the previous event of its group. order: the number of its group, or of the group that asked an engine for
    it, and the number of events of the group before it. start and end are set with all times.
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
        """The events that must have ended before it starts."""
        return self.after if self.previous is None else (*self.after, self.previous)


@dataclass(eq=False)
class StageUse:
    """One use of a stage: the events that took it for a fill, landed in it, took it for a drain and returned it."""

    track: Track
    name: str
    taken: list[Event] = field(default_factory=list)
    landed: list[Event] = field(default_factory=list)
    drained: list[Event] = field(default_factory=list)
    returned: list[Event] = field(default_factory=list)


class Timekeeper:
    """The events of a run, and their timeline."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._numbers: dict[Track, int] = {}
        self._events: list[Event] = []
        self._now: dict[Track, Event] = {}
        self._uses: list[StageUse] = []

    def track(self, process: str, name: str, kind: TrackKind) -> Track:
        """The track with this name in a block; it is shown even if it has no spans."""
        track = Track(process, name, kind)
        self._numbers.setdefault(track, len(self._numbers))
        return track

    def now(self, group: Track) -> Event:
        """The latest event of a group, with whose end an arrival or an issue happens."""
        if group not in self._now:
            self._now[group] = self._added(Event(group, "", 0, Activity.WORK, ()))
        return self._now[group]

    def work(
        self,
        group: Track,
        name: str,
        cycles: int,
        loc: Loc | None = None,
        args: Args | None = None,
    ) -> Event:
        """The group itself does work, after its previous event."""
        return self._next(Event(group, name, cycles, Activity.WORK, (), None, loc, args or {}))

    def wait(
        self, group: Track, until: Iterable[Event], name: str, loc: Loc | None = None
    ) -> Event:
        """The group continues when all these events have ended."""
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
        """An engine does work when all these events have ended and it has served the events that were ready before."""
        assert engine.kind is TrackKind.ENGINE, f"{engine} is no engine"
        event = Event(engine, name, cycles, activity, tuple(after), None, loc, args or {})
        return self._added(event)

    def use(self, stage: Track, name: str) -> StageUse:
        """A new use of a stage; the caller adds its events."""
        self._uses.append(StageUse(stage, name))
        return self._uses[-1]

    def _next(self, event: Event) -> Event:
        """Add an event of a group, after its previous one."""
        group = event.track
        assert group.kind is TrackKind.GROUP, f"{group} is no group"
        event.previous = self._now.get(group)
        self._now[group] = self._added(event)
        return event

    def _added(self, event: Event) -> Event:
        if event.track.kind is TrackKind.GROUP:
            done = 0 if event.previous is None else event.previous.order[1] + 1
            event.order = (self._numbers[event.track], done)
        elif event.after:
            event.order = event.after[0].order
        self._events.append(event)
        return event

    def timeline(self) -> Timeline:
        """The timeline of the events added so far."""
        _set_times(self._events)
        spans = {e: span for e in self._events if (span := _span(e)) is not None}
        arrows = tuple(arrow for e in spans if (arrow := _arrow(e, spans)) is not None)
        stages = [span for use in self._uses for span in _stage_spans(use)]
        blocks = list(dict.fromkeys(t.process for t in self._numbers))
        kinds = list(TrackKind)
        tracks = sorted(self._numbers, key=lambda t: (blocks.index(t.process), kinds.index(t.kind)))
        numbers = {track: n for n, track in enumerate(tracks)}
        ordered = sorted([*spans.values(), *stages], key=lambda s: (numbers[s.track], s.start))
        return Timeline(self.title, NOTE, "cycles", tuple(tracks), tuple(ordered), arrows)


def _set_times(events: list[Event]) -> None:
    """Start every event when its causes have ended; the event that is ready first is served first, then by `order`."""
    numbers = {event: n for n, event in enumerate(events)}
    missing = Counter({e: len(e.causes) for e in events})
    effects: dict[Event, list[Event]] = {e: [] for e in events}
    for event in events:
        for cause in event.causes:
            effects[cause].append(event)
    # The events of one group come in its order, so the numbers only decide between events of one group.
    ready = [(0, e.order, numbers[e]) for e in events if not missing[e]]
    heapq.heapify(ready)
    free: dict[Track, int] = {}
    done = 0
    while ready:
        at, _, number = heapq.heappop(ready)
        event = events[number]
        # Events that become ready because of it are ready no earlier than it ends, so none is overtaken.
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
    """The span of an event, in which it ran or its group waited; None if it took no time."""
    start = event.start
    if event.activity is Activity.WAIT:
        start = event.previous.end if event.previous is not None else 0
    if start == event.end:
        return None
    return Span(event.track, event.name, start, event.end, event.activity, event.loc, event.args)


def _arrow(event: Event, spans: Mapping[Event, Span]) -> Arrow | None:
    """The arrow from the cause of the end of a wait to the wait; an arrival is shown at the last span of its group."""
    if event.activity is not Activity.WAIT:
        return None
    last: Event | None = max(event.after, key=lambda e: (e.end, e.order))
    while last is not None and last not in spans:
        last = last.previous
    return Arrow(spans[last], spans[event]) if last is not None else None


def _stage_spans(use: StageUse) -> list[Span]:
    """The spans in which a stage is filled, full and drained, as far as the use went."""
    if not use.taken:
        return []
    first = min(use.taken, key=lambda e: (e.end, e.order))
    taken = first.end
    full = max(e.end for e in (*use.taken, *use.landed))
    found = [(taken, full, Activity.FILLING, first.loc)]
    if use.drained:
        first = min(use.drained, key=lambda e: (e.end, e.order))
        drained = first.end
        returned = max(e.end for e in (*use.drained, *use.returned))
        found.append((full, drained, Activity.FULL, None))
        found.append((drained, returned, Activity.DRAINING, first.loc))
    return [
        Span(use.track, use.name, start, end, activity, loc)
        for start, end, activity, loc in found
        if start < end
    ]
