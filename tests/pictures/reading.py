"""A picture read back: its texts with their places, for tests of what it shows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

_NAMESPACE = "{http://www.w3.org/2000/svg}"
# Pixels that a letter takes and that stand above the baseline, in DejaVu, a wide font.
_WIDTH = {
    "title": 13.0,
    "head": 9.6,
    "note": 7.4,
    "cell": 7.3,
    "axis": 6.6,
    "side": 6.6,
    "small": 6.6,
}
_HEIGHT = {"title": 16, "head": 11, "note": 10, "cell": 9, "axis": 8, "side": 8, "small": 8}
_START = {"cell": 0.5, "axis": 0.5, "side": 1.0}  # part of the text left of its x


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture, with its text where it is the room of one."""

    left: float
    top: float
    right: float
    bottom: float
    text: str = ""
    style: str = ""

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: Box) -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


@dataclass(frozen=True)
class Picture:
    """What a picture holds; `whole` is its view box."""

    whole: Box
    texts: list[Box]
    cells: list[Box]

    def words(self, style: str) -> list[str]:
        return [t.text for t in self.texts if t.style == style]


def read(svg: str) -> Picture:
    """The texts and the rectangles of a picture; fails where it is no well-formed XML."""
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = [_text(e) for e in root.iter(f"{_NAMESPACE}text")]
    cells = [_rect(e) for e in root.iter(f"{_NAMESPACE}rect") if "rx" not in e.attrib]
    return Picture(Box(0, 0, width, height), texts, cells)


def _text(element: ET.Element) -> Box:
    style, text = element.attrib["class"], element.text or ""
    x, y = float(element.attrib["x"]), float(element.attrib["y"])
    width = len(text) * _WIDTH[style]
    left = x - width * _START.get(style, 0)
    return Box(left, y - _HEIGHT[style], left + width, y, text, style)


def _rect(element: ET.Element) -> Box:
    x, y, width, height = (float(element.attrib[n]) for n in ("x", "y", "width", "height"))
    return Box(x, y, x + width, y + height)
