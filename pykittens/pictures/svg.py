"""A drawing in SVG: rectangles, lines and texts on a card of paper, in one palette.

The card is opaque, so a picture looks the same on a light and on a dark page. All coordinates are whole
pixels, so a picture is the same text on every machine.
"""

from __future__ import annotations

from html import escape

INK, MUTED, PAPER, RULE, BLANK = "#1f2733", "#5d6878", "#fdfcf9", "#c9ced6", "#eef0f3"
HIGHLIGHT = "#c0392b"
WARP_SHADES = ("#dfe3e9", "#eef0f3")  # of warps with even and odd numbers

# One for each row of an 8x8 block, or for each group of four banks.
HUES = ("#f0a3a0", "#f2bb86", "#ead678", "#b0d68c", "#84d0bd", "#8cc0ea", "#b0a9ea", "#e0a6d6")

_SANS = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# The name of the picture stands before each rule, so that none applies to the page around it.
_STYLE = f"""\
.pk-svg text {{ font-family: {_SANS}; fill: {INK}; }}
.pk-svg .title {{ font-size: 20px; font-weight: bold; }}
.pk-svg .head {{ font-size: 14px; font-weight: bold; }}
.pk-svg .note {{ font-size: 13px; fill: {MUTED}; }}
.pk-svg .cell {{ font-family: {_MONO}; font-size: 12px; text-anchor: middle; }}
.pk-svg .axis {{ font-size: 11px; fill: {MUTED}; text-anchor: middle; }}
.pk-svg .small {{ font-size: 11px; fill: {MUTED}; }}
.pk-svg .side {{ font-size: 11px; fill: {MUTED}; text-anchor: end; }}
"""

MARGIN = 28
_BASELINE = 4  # from the middle of a line of small text down to its baseline
_LINE = 19  # from a line of a note to the next
_ADVANCE = {
    "title": 130,
    "head": 95,
    "note": 74,
}  # tenths of a pixel per letter, in a wide font


def hue(index: int) -> str:
    """One of the eight hues."""
    return HUES[index % len(HUES)]


def lane_colour(lane: int) -> str:
    """The colour of a lane: one hue per four lanes, paler from the first to the last."""
    return mixed_with_white(hue(lane // 4), lane % 4 * 0.2)


def mixed_with_white(colour: str, share: float) -> str:
    """A colour mixed with a share of white."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


class Drawing:
    """The elements of a picture, which grows to hold them."""

    def __init__(self, title: str, subtitle: str) -> None:
        self.title, self.subtitle = title, subtitle
        self.parts: list[str] = []
        self.width, self.height = 0, 0
        self.text(MARGIN, MARGIN + 16, title, "title")
        self.text(MARGIN, MARGIN + 38, subtitle, "note")

    @property
    def top(self) -> int:
        """The upper end of the space below the title."""
        return MARGIN + 80

    def rect(self, x: int, y: int, width: int, height: int, fill: str, stroke: str = "") -> None:
        """A rectangle."""
        border = f' stroke="{stroke}" stroke-width="1"' if stroke else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"{border}/>'
        )
        self._reach(x + width, y + height)

    def outline(self, x: int, y: int, width: int, height: int, colour: str = INK) -> None:
        """A thick frame."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" fill="none" '
            f'stroke="{colour}" stroke-width="2"/>'
        )

    def cell(self, x: int, y: int, width: int, height: int, fill: str, text: str) -> None:
        """A coloured cell with a text in its middle."""
        self.rect(x, y, width, height, fill, PAPER)
        if text:
            self.text(x + width // 2, y + height // 2 + _BASELINE, text, "cell")

    def bar(
        self, x: int, y: int, width: int, height: int, fill: str, text: str, tooltip: str
    ) -> None:
        """A coloured bar with a text in its middle; `tooltip` is shown under the mouse."""
        self.parts.append(f"<g><title>{escape(tooltip, quote=False)}</title>")
        self.rect(x, y, width, height, fill)
        if text:
            self.text(x + width // 2, y + height // 2 + _BASELINE, text, "cell")
        self.parts.append("</g>")

    def text(self, x: int, y: int, text: str, style: str, colour: str = "") -> None:
        """A text whose style is `title`, `head`, `note`, `cell`, `axis`, `side` or `small`."""
        fill = f' style="fill: {colour}"' if colour else ""
        self.parts.append(
            f'<text class="{style}" x="{x}" y="{y}"{fill}>{escape(text, quote=False)}</text>'
        )
        self._reach(x + len(text) * _ADVANCE.get(style, 0) // 10, y)

    def notes(self, x: int, y: int, lines: list[str]) -> None:
        """Lines of a note, one below the other."""
        for number, line in enumerate(lines):
            self.text(x, y + number * _LINE, line, "note")

    def line(self, x: int, y: int, to_x: int, to_y: int, colour: str = RULE) -> None:
        """A thin line."""
        self.parts.append(
            f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{colour}" stroke-width="1" fill="none"/>'
        )

    def arrow(self, x: int, y: int, to_x: int, to_y: int, colour: str = MUTED) -> None:
        """A thin line with a head."""
        head = 3 if to_y >= y else -3
        self.parts.append(
            f'<path d="M{x} {y}L{to_x} {to_y}m-3 {-head}l3 {head}l3 {-head}" stroke="{colour}" '
            f'stroke-width="1" stroke-opacity="0.4" fill="none" pointer-events="none"/>'
        )

    def bracket(self, x: int, top: int, bottom: int, label: str) -> None:
        """A bracket at the left of some rows, with its label left of it."""
        self.parts.append(
            f'<path d="M{x} {top}h-5V{bottom}h5" stroke="{MUTED}" stroke-width="1" fill="none"/>'
        )
        self.text(x - 10, (top + bottom) // 2 + _BASELINE, label, "side")

    def _reach(self, x: int, y: int) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def svg(self) -> str:
        """The picture as a file."""
        width, height = self.width + MARGIN, self.height + MARGIN
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pk-svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.subtitle)}</desc>\n"
            f"<style>\n{_STYLE}</style>\n"
            f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" '
            f'fill="{PAPER}" stroke="{RULE}"/>\n{body}\n</svg>\n'
        )
