"""The picture of a timeline: one line per track, one bar per span, arrows to the ends of waits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track
from pykittens.errors import ArgumentError
from pykittens.pictures.svg import BLANK, MARGIN, RULE, Drawing, hue, mixed_with_white

_PALE = 0.65  # the share of white in the colour of a wait
COLOURS = {
    Activity.WORK: hue(5),
    Activity.WAIT: mixed_with_white(hue(5), _PALE),
    Activity.COPY: hue(1),
    Activity.PRODUCT: hue(4),
    Activity.FILLING: hue(2),
    Activity.FULL: mixed_with_white(hue(3), _PALE),
    Activity.DRAINING: hue(3),
}

# Of kinds of instructions; those that no activity has come first.
_KINDS = (0, 6, 7, 1, 4, 5, 2, 3)

_WIDTH = 1080  # of the time that is shown
_LINE, _BAR = 30, 22  # of a track, and of a bar in it
_HEADING = 28  # of a block
_LETTER, _SIDE_LETTER = 8, 7  # pixels of a letter in a bar, and in the name of a track
_TICKS = 10  # at most
_PROCESSES = 4  # blocks, if the caller names none


def draw(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    blocks: tuple[str, ...] | None = None,
) -> Drawing:
    """The picture of a window of time of some blocks; the default is all of it, of the first few blocks."""
    first = timeline.start if start is None else start
    last = timeline.end if end is None else end
    if not any(s.start < last and first < s.end for s in timeline.spans) or last <= first:
        raise ArgumentError(
            f"{timeline.title} has nothing to show from {first:,} to {last:,} {timeline.unit}",
            help=f"it goes from {timeline.start:,} to {timeline.end:,} {timeline.unit}",
        )
    chosen = _chosen(timeline, blocks)
    own = tuple(s for s in timeline.spans if s.track.process in chosen)
    shown = replace(timeline, spans=own).between(first, last)
    about = f"{_blocks(chosen, timeline)}, {first:,} to {last:,} {timeline.unit}. {timeline.note}"
    return _Picture(shown, chosen, first, last, Drawing(timeline.title, about)).drawn()


def _chosen(timeline: Timeline, blocks: tuple[str, ...] | None) -> tuple[str, ...]:
    known = timeline.processes
    if blocks is None:
        return known[:_PROCESSES]
    for block in blocks:
        if block not in known:
            raise ArgumentError(
                f"{timeline.title} has no {block}", help=f"it has {', '.join(known)}"
            )
    return tuple(b for b in known if b in blocks)


def _blocks(chosen: tuple[str, ...], timeline: Timeline) -> str:
    count = len(timeline.processes)
    named = ", ".join(chosen)
    return named if len(chosen) == count else f"{named} of {count} blocks"


class _Picture:
    """The positions of times and tracks, and the picture."""

    def __init__(
        self, timeline: Timeline, blocks: tuple[str, ...], first: int, last: int, drawing: Drawing
    ) -> None:
        self.timeline, self.drawing = timeline, drawing
        self.first, self.last = first, last
        self.tracks = [t for t in timeline.tracks if t.process in blocks]
        self.spans: dict[Track, list[Span]] = {track: [] for track in self.tracks}
        for span in timeline.spans:
            if span.track in self.spans:
                self.spans[span.track].append(span)
        kinds = dict.fromkeys(s.kind for track in self.tracks for s in self.spans[track] if s.kind)
        self.kinds = {k: hue(_KINDS[n % len(_KINDS)]) for n, k in enumerate(kinds)}
        self.left = MARGIN + max(len(t.name) for t in self.tracks) * _SIDE_LETTER + 20
        self.tops: dict[Track, int] = {}
        y = drawing.top
        self.headings: list[tuple[int, str]] = []
        for block in blocks:
            self.headings.append((y, block))
            y += _HEADING
            for track in self.tracks:
                if track.process == block:
                    self.tops[track] = y
                    y += _LINE
        self.bottom = y

    def drawn(self) -> Drawing:
        self.axis()
        for y, block in self.headings:
            self.drawing.text(MARGIN, y + 14, block, "head")
        hidden = sum(self.line(track) for track in self.tracks)
        for arrow in self.timeline.arrows:
            self.arrow(arrow.source, arrow.target)
        self.legend(hidden)
        return self.drawing

    def x(self, time: int) -> int:
        """The position of a time."""
        return self.left + (time - self.first) * _WIDTH // (self.last - self.first)

    def axis(self) -> None:
        """Round times at the top, each with a line through all tracks."""
        y = self.drawing.top - 14
        step = _step(self.last - self.first)
        for time in range(-(-self.first // step) * step, self.last + 1, step):
            x = self.x(time)
            self.drawing.line(x, y + 5, x, self.bottom, BLANK)
            self.drawing.text(x, y, f"{time:,}", "axis")
        self.drawing.text(MARGIN, y, self.timeline.unit, "small")
        self.drawing.line(self.left, y + 5, self.left + _WIDTH, y + 5, RULE)

    def line(self, track: Track) -> int:
        """The bars of a track; returns the number of spans that are too thin to be drawn."""
        y, hidden = self.tops[track], 0
        self.drawing.text(self.left - 10, y + _BAR // 2 + 4, track.name, "side")
        self.drawing.line(self.left, y + _BAR + 3, self.left + _WIDTH, y + _BAR + 3, BLANK)
        taken = self.left
        for span in self.spans[track]:
            left = max(taken, self.x(span.start))
            right = min(max(self.x(span.end), self.x(span.start) + 1), self.left + _WIDTH)
            if right <= left:
                hidden += 1
                continue
            fits = len(span.name) * _LETTER + 6 <= right - left
            text = span.name if fits else ""
            # A gap of one pixel separates bars that follow one another.
            width = right - left - (right - left > 2)
            self.drawing.bar(left, y, width, _BAR, self.colour(span), text, self.tooltip(span))
            taken = right
        return hidden

    def colour(self, span: Span) -> str:
        """The colour of what happens, or of the kind of instruction that a group runs."""
        if not span.kind:
            return COLOURS[span.activity]
        pale = _PALE if span.activity is Activity.WAIT else 0
        return mixed_with_white(self.kinds[span.kind], pale)

    def tooltip(self, span: Span) -> str:
        """The text that is shown for a span under the mouse."""
        cycles = span.end - span.start
        unit: str = self.timeline.unit
        if cycles == 1 and unit == "cycles":
            unit = "cycle"
        lines = [
            f"{span.track.name}: {span.name}",
            f"{span.start:,} to {span.end:,}, {cycles:,} {unit}; {span.activity.value}",
            *(f"{name}: {value}" for name, value in span.args.items()),
        ]
        if span.loc is not None:
            lines += [str(span.loc), span.loc.text.strip()]
        return "\n".join(lines)

    def arrow(self, source: Span, target: Span) -> None:
        """An arrow from the end of the cause of a wait to the end of the wait."""
        if source.track not in self.tops or target.track not in self.tops:
            return
        start, end = self.tops[source.track], self.tops[target.track]
        if start == end:
            return
        down = start < end
        y, to_y = (start + _BAR, end) if down else (start, end + _BAR)
        self.drawing.arrow(self.x(source.end), y, self.x(target.end), to_y)

    def legend(self, hidden: int) -> None:
        """The meaning of the colours, and the number of hidden spans."""
        x, y = MARGIN, self.bottom + 22
        found = {s.activity for spans in self.spans.values() for s in spans if not s.kind}
        meanings = {a.value: COLOURS[a] for a in Activity if a in found} | self.kinds
        for meaning, colour in meanings.items():
            room = 22 + len(meaning) * 74 // 10 + 20
            if x + room > self.left + _WIDTH:
                x, y = MARGIN, y + 22
            self.drawing.rect(x, y - 11, 14, 14, colour)
            self.drawing.text(x + 22, y, meaning, "note")
            x += room
        lines = []
        if self.timeline.arrows:
            lines.append("An arrow leads from what ended a wait to the end of the wait.")
        if self.kinds:
            lines.append(
                "A group has the colour of the instruction that it runs, pale while it waits."
            )
        if hidden:
            spans = f"{hidden} spans are" if hidden > 1 else "1 span is"
            lines.append(f"{spans} thinner than a pixel and not drawn.")
        self.drawing.notes(MARGIN, y + 24, lines)


def _step(length: int) -> int:
    """The least of 1, 2, 5, 10, 20, … that gives few enough ticks."""
    steps: Iterator[int] = (
        factor * 10**power for power in itertools.count() for factor in (1, 2, 5)
    )
    return next(step for step in steps if length <= step * _TICKS)
