"""Draws a table of results as bars: the ratio to the vendor's library, one bar per shape."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "pykittens"  # the same file for the same figures


def write(figure: Any, results: Path) -> Path:
    """Write a picture of a results file beside it; returns the SVG."""
    target = results.with_suffix(".svg")
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)
    return target


def hide_frame(axis: Any) -> None:
    """Remove the upper and the right border."""
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def rule(axis: Any) -> None:
    """Draw horizontal lines behind the figures."""
    axis.grid(axis="y", color="#dddddd", linewidth=0.5)
    axis.set_axisbelow(True)


def plot(results: Path) -> Path:
    """Write the picture of a results file beside it; returns the SVG."""
    data = json.loads(results.read_text())
    rows = [r for r in data["rows"] if r["protocol"] != "host time"]
    labels = [f"{r['kernel']}\n{r['shape']}" for r in rows]
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(rows) + 1.2))
    positions = range(len(rows))
    axes.barh(positions, [r["ratio"] for r in rows], height=0.6, color="#4c72b0")
    axes.axvline(1.0, color="black", linewidth=1)
    for position, r in zip(positions, rows, strict=True):
        text = f"{r['ours']:,.0f} {r['unit']}, {r['against']} {r['library']:,.0f}"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(r["ratio"] + 0.02, position, text, va="center", fontsize=8, bbox=box)
    axes.set_yticks(list(positions), labels, fontsize=8)
    axes.set_xlim(0, max(r["ratio"] for r in rows) + 0.9)
    axes.invert_yaxis()
    axes.set_xlabel("speed, in units of the vendor's library")
    about = data["about"]
    axes.set_title(f"{about['card']}, {about['date']}, {rows[0]['protocol']}", fontsize=9)
    hide_frame(axes)
    figure.tight_layout()
    return write(figure, results)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(plot(Path(name)))
