"""Draws the results of benchmarks/experiments.py, a panel per experiment, and the figures of ThunderKittens (TK)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plot import hide_frame, plt, rule, write
from record import Row

plt.rcParams.update({"font.size": 8, "axes.titlesize": 9, "axes.linewidth": 0.6})

# On an H100, from the ThunderKittens paper: docs/facts.md, "Order of work".
PUBLISHED_STAGES = (260, 484, 683, 760)
PUBLISHED_PERSISTENT = {
    "persistent": (108, 184, 309, 450, 600),
    "a block a tile": (93, 161, 271, 414, 565),
}
COLOURS = ("#1f4e9c", "#d9822b", "#4f8f4f")
GREY = "#999999"
PANEL = 3.4, 2.8  # inches


def plot(results: Path) -> Path:
    """Write the picture of a results file beside it; returns the SVG."""
    data = json.loads(results.read_text("utf-8"))
    kinds = list(dict.fromkeys(row["experiment"] for row in data["rows"]))
    size = PANEL[0] * len(kinds), PANEL[1] + 0.4
    figure, axes = plt.subplots(1, len(kinds), figsize=size, squeeze=False)
    for axis, kind in zip(axes.flat, kinds, strict=True):
        PANELS[kind](axis, [row for row in data["rows"] if row["experiment"] == kind])
        hide_frame(axis)
    about = data["about"]
    figure.suptitle(
        f"C = A @ B.T in bf16, {about['card']}, {about['date']}, CUDA graphs", fontsize=9
    )
    figure.tight_layout()
    return write(figure, results)


def _stages(axis: Any, rows: Sequence[Row]) -> None:
    for colour, size in zip(COLOURS, dict.fromkeys(row["at"] for row in rows), strict=False):
        found = [row for row in rows if row["at"] == size]
        ours = [row for row in found if row["name"].isdecimal()]
        x, y = [int(row["name"]) for row in ours], [row["tflops"] for row in ours]
        axis.plot(x, y, color=colour, marker="o", markersize=4, label=f"{size}")
        for row in found:
            if not row["name"].isdecimal():
                style = {"color": colour, "linestyle": ":", "linewidth": 1}
                axis.axhline(row["tflops"], label=f"{row['name']} at {size}", **style)
    _published(axis, range(1, 5), PUBLISHED_STAGES, "TK, H100")
    axis.set_xticks(range(1, 5))
    _finish(axis, "stages in flight", "stages", "TFLOP/s")


def _persistent(axis: Any, rows: Sequence[Row]) -> None:
    positions = {at: i for i, at in enumerate(dict.fromkeys(row["at"] for row in rows))}
    for colour, name in zip(COLOURS, dict.fromkeys(row["name"] for row in rows), strict=False):
        found = [row for row in rows if row["name"] == name]
        x, y = [positions[row["at"]] for row in found], [row["tflops"] for row in found]
        axis.plot(x, y, color=colour, marker="o", markersize=4, label=name)
    for name, published in PUBLISHED_PERSISTENT.items():
        mark = "^" if name == "persistent" else "v"
        count = len(published) if len(positions) == len(published) else 0
        _published(axis, range(count), published[:count], f"TK, H100: {name}", mark)
    axis.set_xticks(range(len(positions)), [f"{at}" for at in positions])
    _finish(axis, "persistent blocks, m = n = 4096", "k", "TFLOP/s")


def _orders(axis: Any, rows: Sequence[Row]) -> None:
    positions = range(len(rows))
    axis.barh(positions, [row["tflops"] for row in rows], height=0.6, color=COLOURS[0])
    for position, row in zip(positions, rows, strict=True):
        moved = f"{row['tflops']:.0f}"
        if "read" in row:
            moved += f", {(row['read'] + row['written']) / 1e9:.1f} GB"
        axis.text(row["tflops"], position, f" {moved}", va="center", fontsize=7)
    axis.set_yticks(list(positions), [row["name"] for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0, max(row["tflops"] for row in rows) * 1.35)
    sources = ", ".join(dict.fromkeys(row["source"] for row in rows if "source" in row))
    axis.set_title(f"order of tiles at {rows[0]['at']}" + f"\nbytes {sources}" * bool(sources))
    axis.set_xlabel("TFLOP/s")


def _published(axis: Any, x: range, y: Sequence[float], label: str, mark: str = "x") -> None:
    if x:
        style = {"color": GREY, "linestyle": "--", "linewidth": 1, "markersize": 4}
        axis.plot(list(x), list(y), marker=mark, label=label, **style)


def _finish(axis: Any, title: str, across: str, up: str) -> None:
    axis.set_ylim(bottom=0)
    axis.set_title(title)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    rule(axis)
    axis.legend(frameon=False, fontsize=6, loc="best")


PANELS = {"stages": _stages, "persistent": _persistent, "orders": _orders}
