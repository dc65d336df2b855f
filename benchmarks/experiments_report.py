"""What benchmarks/experiments.py writes: a table an experiment, and the figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def table(rows: Sequence[Row]) -> str:
    """A line a way, a column an extent; for the orders the bytes beside the speed."""
    parts = []
    for kind in dict.fromkeys(row["experiment"] for row in rows):
        found = [row for row in rows if row["experiment"] == kind]
        parts.append(_orders_table(found) if kind == "orders" else _speeds_table(kind, found))
    return "\n\n".join(parts)


def _speeds_table(kind: str, rows: Sequence[Row]) -> str:
    extent = {"stages": "m = n = k =", "persistent": "k ="}[kind]
    places = list(dict.fromkeys(row["at"] for row in rows))
    by = {(row["name"], row["at"]): row for row in rows}
    heads = [kind, *(f"TFLOP/s, {extent} {at}" for at in places)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in dict.fromkeys(row["name"] for row in rows):
        cells = [
            f"{r['tflops']:.0f}, {r['ratio']:.2f}" if (r := by.get((name, at))) else "-"
            for at in places
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _orders_table(rows: Sequence[Row]) -> str:
    heads = ["order", f"TFLOP/s at {rows[0]['at']}", "GB read", "GB written", "GB/s", "bytes are"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for r in rows:
        cells = [r["name"], f"{r['tflops']:.0f}, {r['ratio']:.2f}"]
        if "read" in r:
            total = r["read"] + r["written"]
            seconds = 2.0 * r["at"] ** 3 / r["tflops"] * 1e-12
            cells += [f"{r['read'] / 1e9:.1f}", f"{r['written'] / 1e9:.1f}"]
            cells += [f"{total / seconds * 1e-9:.0f}", r["source"]]
        else:
            cells += ["-"] * 4
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def save(rows: Sequence[Row], about: dict[str, str], folder: Path, label: str = "") -> Path:
    """Write the table and the figures; the file of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    card = about["card"].replace(" ", "-").lower()
    path = folder / f"{card}-{about['date']}-experiments{label}.json"
    found = {"about": about, "rows": list(rows)}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    heading = ", ".join(f"{name} {value}" for name, value in about.items())
    told = "TFLOP/s, and the ratio to cuBLAS in the same run; launches in CUDA graphs."
    text = f"# {heading}\n\n{told}\n\n{table(rows)}\n"
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    return path
