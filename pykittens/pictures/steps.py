"""The picture of a conflict, step by step: what the tiles of a ring hold, what reads them, what a group has seen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import PurePath

from pykittens.analysis.timeline.spans import Activity
from pykittens.emulate.finding import Finding, Kind, Moment, TileMoment
from pykittens.pictures.svg import BLANK, HIGHLIGHT, MARGIN, PAPER, RULE, Drawing
from pykittens.pictures.timeline import COLOURS

_WIDTH, _GAP, _PAD = 344, 16, 14  # of a panel, between panels, and inside of one
_LINE, _BOX, _READER = (
    19,
    26,
    20,
)  # the heights of a line of a note, of a tile, and of what reads it
_HEIGHT = 130  # of a panel without the lines that say what happens
_LETTER, _HEAD = 74, 96  # tenths of a pixel of a letter, in a wide font
_ACROSS = 3  # panels in a row

_LANDING, _HELD = COLOURS[Activity.COPY], COLOURS[Activity.FULL]
_READ = COLOURS[Activity.PRODUCT]
_LEGEND = {_HELD: "a tile with data", _LANDING: "a copy is under way", _READ: "an engine reads it"}


def draw(finding: Finding) -> Drawing:
    """The moments of a finding in rows, from left to right."""
    drawing = Drawing(f"{finding.kind.value}, step by step", finding.message.replace("`", ""))
    moments = finding.moments
    run = _Run(drawing, moments, range(1, len(moments) + 1), finding.kind, _lines(moments))
    run.top = drawing.height + _GAP + 4
    for i in range(len(moments)):
        run.panel(i, i % _ACROSS, i // _ACROSS)
    return _with_legend(drawing)


def draw_beside(title: str, finding: Finding, repaired: Sequence[Moment]) -> Drawing:
    """The moments of a finding, and right of each the same one of a kernel that is repaired."""
    drawing = Drawing(title, finding.message.replace("`", ""))
    rows, lines = _aligned(finding.moments, repaired), _lines([*finding.moments, *repaired])
    runs = ("With the fault", finding.moments, finding.kind), ("Repaired", repaired, None)
    for column, (name, moments, kind) in enumerate(runs):
        numbers = [n for n, row in enumerate(rows, 1) if row[column] is not None]
        run = _Run(drawing, moments, numbers, kind, lines)
        x, y = run.corner(column, 0)
        drawing.text(x, y - 12, name, "head")
        for n, (of_fault, of_repaired) in enumerate(rows):
            if (i := (of_fault, of_repaired)[column]) is not None:
                run.panel(i, column, n)
            elif of_repaired is not None:
                run.gap(repaired[of_repaired], n + 1, column, n)
    return _with_legend(drawing)


def _lines(moments: Sequence[Moment]) -> int:
    """The lines that the panels need to say what happens."""
    return max(len(_wrapped(m.what)) for m in moments)


def _wrapped(what: str) -> list[str]:
    return textwrap.wrap(what, (_WIDTH - 2 * _PAD) * 10 // _LETTER)


def _aligned(one: Sequence[Moment], other: Sequence[Moment]) -> list[tuple[int | None, int | None]]:
    """The indices of equal moments in pairs, those of others alone."""
    a_texts, b_texts = ([f"{m.who} {m.what}" for m in moments] for moments in (one, other))
    rows: list[tuple[int | None, int | None]] = []
    for tag, a, to_a, b, to_b in SequenceMatcher(
        None, a_texts, b_texts, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            rows += zip(range(a, to_a), range(b, to_b), strict=True)
        else:
            rows += [(i, None) for i in range(a, to_a)] + [(None, i) for i in range(b, to_b)]
    return rows


class _Run:
    """The panels of one run. numbers: those of its moments. kind: that of its fault, None if it has none."""

    def __init__(
        self,
        drawing: Drawing,
        moments: Sequence[Moment],
        numbers: Sequence[int],
        kind: Kind | None,
        lines: int,
    ) -> None:
        self.drawing, self.moments, self.numbers, self.kind = drawing, moments, numbers, kind
        self.top, self.height = drawing.top, _HEIGHT + lines * _LINE

    def corner(self, column: int, row: int) -> tuple[int, int]:
        """The upper left corner of a panel."""
        return MARGIN + column * (_WIDTH + _GAP), self.top + row * (self.height + _GAP)

    def gap(self, moment: Moment, number: int, column: int, row: int) -> None:
        """A moment that this run lacks."""
        x, y = self.corner(column, row)
        self.drawing.rect(x, y, _WIDTH, self.height, BLANK)
        self.drawing.text(
            x + _PAD, y + 24, f"{number}. {_short(moment.who)}: missing", "head", HIGHLIGHT
        )
        self.drawing.notes(x + _PAD, y + 44, _wrapped(moment.what))

    def panel(self, index: int, column: int, row: int) -> None:
        """One moment."""
        drawing, moment = self.drawing, self.moments[index]
        x, y = self.corner(column, row)
        left, right, foot = x + _PAD, x + _WIDTH - _PAD, y + self.height - 12
        drawing.rect(x, y, _WIDTH, self.height, PAPER, RULE)
        place = PurePath(str(moment.loc)).name if moment.loc else ""
        drawing.text(right, y + 24, place, "side")
        room = right - left - len(place) * _LETTER // 10
        drawing.text(
            left, y + 24, _cut(f"{self.numbers[index]}. {_short(moment.who)}", room, _HEAD), "head"
        )
        drawing.notes(left, y + 44, _wrapped(moment.what))
        room = (right - left + _PAD) // len(moment.tiles)
        for n, tile in enumerate(moment.tiles):
            self.tile(tile, left + n * room, foot - _BOX - _READER - 18, room - _PAD)
        is_fault = self.kind is not None and moment is self.moments[-1]
        if is_fault:
            drawing.outline(x, y, _WIDTH, self.height, HIGHLIGHT)
        colour = HIGHLIGHT if is_fault else ""
        drawing.text(left, foot, self.known(moment, is_fault), "note", colour)

    def known(self, moment: Moment, is_fault: bool) -> str:
        """What the group of the second access knows; for a fault, what it lacks."""
        first = next(n for n, m in zip(self.numbers, self.moments, strict=True) if m.is_access)
        if is_fault and self.kind is Kind.MISSING_FENCE:
            return f"no fence follows step {first}"
        if is_fault:
            text = f"has not seen the end of step {first}"
        elif any(m.seen is not None for m in self.moments):
            seen = "nothing yet" if moment.seen is None else f"step {self.numbers[moment.seen]}"
            text = f"has seen: {seen}"
        else:
            return ""
        room = _WIDTH - 2 * _PAD - len(text) * _LETTER // 10
        return f"{_cut(_short(self.moments[-1].who), room)} {text}"

    def tile(self, tile: TileMoment, x: int, y: int, width: int) -> None:
        """A tile with its contents, and below it what reads it."""
        fill = _LANDING if tile.landing else _HELD if tile.contents else BLANK
        self.drawing.text(x, y - 6, tile.name, "small")
        self.drawing.cell(x, y, width, _BOX, fill, _cut(_short(tile.contents or "empty"), width))
        if tile.readers:
            count, first = len(tile.readers), tile.readers[0]
            text = f"{first} reads it" if count == 1 else f"{count} read it"
            is_cut = _cut(text, width) != text
            self.drawing.cell(x, y + _BOX, width, _READER, _READ, first if is_cut else text)


def _short(who: str) -> str:
    """The name of a group; of its location, if it has one, only the line."""
    return re.sub(r" of \S+:(\d+)", r" of line \1", who)


def _cut(text: str, width: int, letter: int = _LETTER) -> str:
    """As much of a text as there is room for."""
    room = (width - 4) * 10 // letter
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _with_legend(drawing: Drawing) -> Drawing:
    x, y = MARGIN, drawing.height + 30
    for colour, meaning in _LEGEND.items():
        drawing.rect(x, y - 11, 14, 14, colour)
        drawing.text(x + 22, y, meaning, "note")
        x += 22 + len(meaning) * _LETTER // 10 + 20
    return drawing
