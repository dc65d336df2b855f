"""Draws a table of results as bars: the ratio to the vendor's library, one bar a shape."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "pykittens"  # the same file for the same figures


def plot(results: Path) -> Path:
    """Write the picture of a results file beside it; returns the SVG."""
    data = json.loads(results.read_text())
    rows = [r for r in data["rows"] if r["protocol"] != "host time"]
    labels = [f"{r['kernel']}\n{r['shape']}" for r in rows]
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(rows) + 1.2))
    places = range(len(rows))
    axes.barh(places, [r["ratio"] for r in rows], height=0.6, color="#4c72b0")
    axes.axvline(1.0, color="black", linewidth=1)
    for place, r in zip(places, rows, strict=True):
        text = f"{r['ours']:,.0f} {r['unit']}, {r['against']} {r['library']:,.0f}"
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(r["ratio"] + 0.02, place, text, va="center", fontsize=8, bbox=behind)
    axes.set_yticks(list(places), labels, fontsize=8)
    axes.set_xlim(0, max(r["ratio"] for r in rows) + 0.9)
    axes.invert_yaxis()
    axes.set_xlabel("speed, in units of the vendor's library")
    about = data["about"]
    axes.set_title(f"{about['card']}, {about['date']}, {rows[0]['protocol']}", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    target = results.with_suffix(".svg")
    figure.savefig(target, metadata={"Date": None})
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(plot(Path(name)))
