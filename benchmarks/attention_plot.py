"""Draws the results of benchmarks/attention.py: a bar for each shape, the ratio to the library, by kernel and width."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pykittens.pictures.svg import HUES, INK, MARGIN, MUTED, RULE, Drawing

LABEL, UNIT, HEIGHT, GAP = 230, 170, 13, 3  # pixels; UNIT: those of a ratio of 1
PANEL = LABEL + 3 * UNIT + 60  # of a column of panels
WIDEST = 2.4  # the largest ratio whose bar has its own length
COLOURS = {"full": HUES[5], "causal": HUES[1]}

Rows = list[dict[str, Any]]


def width_of(row: dict[str, Any]) -> str:
    """The width of the heads, and of values if they have another."""
    return str(row["shape"].removesuffix(" causal").split(", ", 3)[3])


def panels_of(rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """The rows by kernel and width; those with bounds of the keys are together."""
    found: dict[str, Rows] = {}
    for row in rows:
        is_of_bounds = row["against"] in ("plain", "causal")
        title = f"{row['kernel']}, d = {width_of(row)}"
        found.setdefault("bounds, beside no bounds" if is_of_bounds else title, []).append(row)
    return found


def panel(drawing: Drawing, x: int, top: int, title: str, rows: Rows) -> int:
    """Draw the bars of a panel; returns its lower end."""
    mean = geometric_mean(row["ratio"] for row in rows)
    drawing.text(x, top, f"{title}: geometric mean {mean:.3f}", "head")
    left, first = x + LABEL, top + 10
    bottom = first + len(rows) * (HEIGHT + GAP)
    for number, row in enumerate(rows):
        y = first + number * (HEIGHT + GAP)
        is_of_bounds, shape = row["against"] in ("plain", "causal"), row["shape"]
        label = f"{row['kernel']}, d = {width_of(row)}" if is_of_bounds else shape
        is_causal = "causal" in f"{row['kernel']} {shape}"
        drawing.text(left - 8, y + 11, label.removesuffix(" causal"), "side")
        length = round(min(row["ratio"], WIDEST) * UNIT)
        drawing.rect(left, y, length, HEIGHT, COLOURS["causal" if is_causal else "full"])
        figures = f"{row['ratio']:.2f}, {row['ours']:,.0f} {row['unit']}"
        drawing.text(left + length + 6, y + 11, figures, "small")
    for tick in range(3):
        at = left + tick * UNIT
        drawing.line(at, first - 2, at, bottom, INK if tick == 1 else RULE)
        drawing.text(at, bottom + 12, f"{tick}.0", "axis")
    return bottom + 40


def picture(data: dict[str, Any]) -> str:
    """The picture of results as a file."""
    about, panels = data["about"], panels_of(data["rows"])
    drawing = Drawing(
        "Attention: speed in units of the faster backend of PyTorch",
        f"{about['card']}, {about['date']}, {data['rows'][0]['protocol']}; batch, heads, length, width",
    )
    y = drawing.top - 22
    for number, (name, colour) in enumerate(COLOURS.items()):
        drawing.rect(MARGIN + number * 90, y - 10, 12, 12, colour)
        drawing.text(MARGIN + number * 90 + 18, y, name, "note")
    ends = [drawing.top + 12] * 2  # of two columns
    for title, rows in panels.items():
        column = ends.index(min(ends))
        ends[column] = panel(drawing, MARGIN + column * PANEL, ends[column], title, rows)
    drawing.line(MARGIN, max(ends), MARGIN + 2 * PANEL - MARGIN, max(ends), MUTED)
    return drawing.svg()


def plot(results: Path) -> Path:
    """Write the picture of a results file beside it; returns the SVG."""
    target = results.with_suffix(".svg")
    text = picture(json.loads(results.read_text("utf-8")))
    target.write_text(text, encoding="utf-8", newline="\n")
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(plot(Path(name)))
