"""What benchmarks/gemm.py writes: tables by section, means by kind, and several runs as one."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
KEY = ("section", "kind", "kernel", "shape", "protocol")  # of rows that measure the same
SAME = ("card", "driver", "torch", "cuda", "rest")  # of runs that may be put together
# How far ratios of two runs may be apart to confirm each other: burst repeats within 1%.
REPEATS = 0.02


def ratios_of(row: Row) -> list[float]:
    """The ratio to the library in every run that is in a row."""
    return [run["ratio"] for run in row["runs"]] if "runs" in row else [row["ratio"]]


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def groups(rows: Sequence[Row], *by: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows that have the same in these columns, in the order in which they are met."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return found


# -- several runs ----------------------------------------------------------------------------------


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Runs, and parts of runs, as one: what was measured several times becomes one row of geometric means."""
    about = dict(results[0]["about"])
    for result in results[1:]:
        for name in SAME:
            if result["about"].get(name) != about.get(name):
                sys.exit(f"gemm: these results have another {name} and cannot be put together")
    about["date"] = " ".join(sorted({r["about"]["date"] for r in results}))
    rows = [row for result in results for row in result["rows"]]
    together = [_one(same) for same in groups(rows, *KEY).values()]
    faults: dict[str, str] = {}
    for result in results:
        faults.update(result.get("faults", {}))
    return {
        "about": about,
        "rows": sorted(together, key=lambda row: row["number"]),
        "faults": faults,
    }


def _one(rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    means = ("ours", "library", "ratio", "us", "library_us", "tuned")
    runs = [run for row in rows for run in row.get("runs", [row])]
    found = {n: geometric_mean(r[n] for r in runs) for n in means if all(n in r for r in runs)}
    kept = {n: x for n, x in rows[0].items() if n not in (*means, "rounds", "runs")}
    return {
        **kept,
        **found,
        "error": max(row["error"] for row in rows),
        "config": "; ".join(dict.fromkeys(row["config"] for row in rows)),
        "runs": [{n: run[n] for n in (*means, "rounds") if n in run} for run in runs],
    }


def is_confirmed(row: Row) -> bool:
    """Whether the ratios of all runs lie close together; one run confirms nothing."""
    ratios = ratios_of(row)
    return len(ratios) > 1 and max(ratios) <= min(ratios) * (1 + REPEATS)


# -- tables ----------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    """All tables as Markdown."""
    rows, about = results["rows"], results["about"]
    parts = ["# " + ", ".join(f"{name} {value}" for name, value in about.items())]
    parts.append(_said_of_runs(rows))
    if rows:
        parts.append(means(rows))
    for (section, protocol), found in groups(rows, "section", "protocol").items():
        parts.append(f"## {section}, {protocol}\n\n{table(found)}")
    if results.get("faults"):
        lines = [f"- {name}: {fault}" for name, fault in results["faults"].items()]
        parts.append("## Left out\n\n" + "\n".join(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def _said_of_runs(rows: Sequence[Row]) -> str:
    again = [row for row in rows if len(ratios_of(row)) > 1]
    if not again:
        return ""
    held = sum(map(is_confirmed, again))
    return (
        f"{len(again)} of {len(rows)} products were measured in more than one run; the ratios of {held} lie within "
        f"{REPEATS:.0%} of each other. The others are marked with a star."
    )


def means(rows: Sequence[Row]) -> str:
    """Geometric means and the worst product of each section, layout and kind."""
    lines = ["| Products | count | geometric mean | worst | of |", "|---|---|---|---|---|"]
    has_tuned = any("tuned" in row for row in rows)
    if has_tuned:
        lines = [f"{line}{cell}" for line, cell in zip(lines, (" tuned |", "---|"), strict=True)]
    for (section, protocol), found in groups(rows, "section", "protocol").items():
        parts = {f"**{section}, {protocol}**": found}
        for column in ("layout", "kind"):
            some = groups(found, column)
            if len(some) > 1:
                parts |= {str(name): part for (name,), part in some.items()}
        for name, part in parts.items():
            worst = min(part, key=lambda row: row["ratio"])
            cells = [name, len(part), f"{geometric_mean(row['ratio'] for row in part):.3f}"]
            cells += [f"{worst['ratio']:.3f}", f"{worst['kernel']}, {worst['shape']}"]
            if has_tuned:
                tuned = [row["tuned"] for row in part if "tuned" in row]
                cells.append(f"{geometric_mean(tuned):.3f}" if tuned else "-")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """A line a product."""
    heads = ["Product", "m x n x k", "us", "TFLOP/s", "Library", "TFLOP/s", "Ratio"]
    has_tuned, has_others = any("tuned" in r for r in rows), any(r["others"] for r in rows)
    heads += ["Tuned"] * has_tuned + ["Other ways"] * has_others + ["Configuration", "Error"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for r in rows:
        runs = r.get("runs", [r])
        star = "*" if len(runs) > 1 and not is_confirmed(r) else ""
        cells = [r["kernel"], r["shape"], _each(runs, "us", 1), _each(runs, "ours", 0)]
        cells += [r["against"], _each(runs, "library", 0), _each(runs, "ratio", 3) + star]
        if has_tuned:
            said = f"{r['tuned']:.3f}: {r['tuned_config']}" if "tuned" in r else "-"
            cells.append(said)
        if has_others:
            cells.append("; ".join(f"{n} {x:.0f}" for n, x in r["others"].items()) or "-")
        cells += [r["config"], f"{r['error']:.1e}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(runs: Sequence[Row], name: str, digits: int) -> str:
    return ", ".join(f"{run[name]:.{digits}f}" for run in runs)


# -- files -----------------------------------------------------------------------------------------


def stem_of(about: dict[str, Any], label: str) -> str:
    """How the files of a run are called."""
    card, date = about["card"].replace(" ", "-").lower(), about["date"].replace(" ", "-to-")
    return f"{card}-{date}-gemm-{about['protocol']}{label}"


def save(results: dict[str, Any], folder: Path, label: str) -> Path:
    """Write the figures and the tables; the file of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem_of(results['about'], label)}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(report(results), encoding="utf-8")
    return path
