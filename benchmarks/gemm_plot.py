"""Draws the results of benchmarks/gemm.py: a panel per layer or epilogue, the ratio to the library over its shapes.

If a panel has too many shapes to name, the axis is the time of the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from gemm_report import groups, ratios_of
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator
from plot import hide_frame, plt, rule, write

plt.rcParams.update({"font.size": 8, "axes.titlesize": 8, "axes.linewidth": 0.6})

LAYOUTS = {"A @ B.T": ("#1f4e9c", "o", "-"), "A @ B": ("#d9822b", "s", "--")}
COLUMNS = 4
PANEL = 2.5, 2.1  # inches
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 2.5, 3.0)
NARROWEST = 0.9, 1.12  # the least range of the axis
MOST_NAMED = 12  # shapes of a panel


def limits_of(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The range of the axis of ratios, the same for all panels of a section."""
    ratios = [ratio for row in rows for ratio in ratios_of(row)]
    return min(NARROWEST[0], min(ratios) * 0.97), max(NARROWEST[1], max(ratios) * 1.03)


def plot(results: Path) -> Path:
    """Write the picture of a results file beside it; returns the SVG."""
    data = json.loads(results.read_text("utf-8"))
    panels = groups(data["rows"], "panel")
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    size = PANEL[0] * columns + 0.4, PANEL[1] * lines + 0.9
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False)
    limits = {name: limits_of(rows) for (name,), rows in groups(data["rows"], "section").items()}
    for axis, ((title,), rows) in zip(axes.flat, panels.items(), strict=False):
        draw(axis, title, rows)
        low, high = limits[rows[0]["section"]]
        axis.set_yscale("log")
        axis.set_ylim(low, high)
        axis.yaxis.set_major_locator(FixedLocator([t for t in TICKS if low <= t <= high]))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    about, mean = data["about"], geometric_mean(row["ratio"] for row in data["rows"])
    figure.suptitle(
        f"gemm, speed in units of the vendor's library: {about['card']}, {about['date']}, "
        f"{about['protocol']}; geometric mean of {len(data['rows'])} products {mean:.3f}",
        fontsize=9,
    )
    handles, labels = _legend(axes)
    if len(handles) > 1:
        figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0.25 / size[1], 1, 1 - 0.1 / size[1]))
    return write(figure, results)


def draw(axis: Any, title: str, rows: list[dict[str, Any]]) -> None:
    """A panel: a line per layout, and bars from the lowest to the highest of several runs."""
    positions = {at: i for i, at in enumerate(dict.fromkeys(row["at"] for row in rows))}
    are_named = len(positions) <= MOST_NAMED
    is_joined = "\n" not in "".join(positions)  # other labels have no order
    axis.axhline(1.0, color="black", linewidth=0.8, zorder=1)
    for (layout, _), found in groups(rows, "layout", "protocol").items():
        colour, mark, line = LAYOUTS[layout]
        x = [positions[row["at"]] if are_named else row["library_us"] for row in found]
        ranges = [(min(ratios_of(row)), max(ratios_of(row))) for row in found]
        axis.vlines(x, *zip(*ranges, strict=True), color=colour, linewidth=3, alpha=0.4)
        style = {"linestyle": line if is_joined else "none", "linewidth": 1, "markersize": 4}
        y = [row["ratio"] for row in found]
        axis.plot(x, y, color=colour, marker=mark, label=layout, zorder=3, **style)
    axis.set_title(title)
    if are_named:
        axis.set_xticks(range(len(positions)), list(positions), fontsize=7 if is_joined else 5)
        axis.set_xlim(-0.5, len(positions) - 0.5)
    else:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_xlabel("µs of the library", fontsize=7)
    rule(axis)
    hide_frame(axis)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
