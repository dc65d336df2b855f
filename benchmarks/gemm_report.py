"""The report of benchmarks/gemm.py: tables by section, means by kind, and several runs merged into one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any, TypeVar

from record import Row, heading, markdown

T = TypeVar("T")
KEY = ("section", "kind", "kernel", "shape", "protocol")  # equal for rows that measure the same
SAME = ("card", "driver", "torch", "cuda", "rest")  # equal for runs that may be merged
# The ratios of two runs confirm each other within this difference; burst repeats within 1%.
REPEATS = 0.02


def ratios_of(row: Row) -> list[float]:
    """The ratio to the library in every run of a row."""
    return [run["ratio"] for run in row["runs"]] if "runs" in row else [row["ratio"]]


def part_of_fastest(rounds: Mapping[T, Sequence[float]], pick: T) -> float:
    """The speed of a pick beside that of the fastest configuration, from the times of the rounds of each.

    Half of the rounds tell which is the fastest, and the other half how fast it is: of many that take equally long, the
    fastest of all rounds is the luckiest.
    """
    halves = [{n: median(times[i::2]) for n, times in rounds.items()} for i in (0, 1)]
    pairs = [(min(told, key=told.__getitem__), by) for told, by in (halves, halves[::-1])]
    return geometric_mean(by[fastest] / by[pick] for fastest, by in pairs)


def groups(rows: Sequence[Row], *by: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in these columns, in the order of their first rows."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return found


# -- several runs ----------------------------------------------------------------------------------


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs, or shares of runs, as one; a product that was measured repeatedly is one row of geometric means."""
    about = dict(results[0]["about"])
    for result in results[1:]:
        for name in SAME:
            if result["about"].get(name) != about.get(name):
                sys.exit(f"gemm: these results have a different {name} and cannot be merged")
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
    """Whether the ratios of several runs agree within REPEATS."""
    ratios = ratios_of(row)
    return len(ratios) > 1 and max(ratios) <= min(ratios) * (1 + REPEATS)


# -- tables ----------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    """All tables as Markdown."""
    rows = results["rows"]
    pieces = [f"# {heading(results['about'])}", _agreement(rows)]
    if rows:
        pieces.append(means(rows))
    for (section, protocol), found in groups(rows, "section", "protocol").items():
        pieces.append(f"## {section}, {protocol}\n\n{table(found)}")
    if results.get("faults"):
        lines = [f"- {name}: {fault}" for name, fault in results["faults"].items()]
        pieces.append("## Left out\n\n" + "\n".join(lines))
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _agreement(rows: Sequence[Row]) -> str:
    again = [row for row in rows if len(ratios_of(row)) > 1]
    if not again:
        return ""
    return (
        f"{len(again)} of {len(rows)} products were measured in more than one run; the ratios of "
        f"{sum(map(is_confirmed, again))} agree within {REPEATS:.0%}. The others are marked with a star."
    )


def means(rows: Sequence[Row]) -> str:
    """Geometric means and the worst product of each section, layout and kind."""
    heads = ["Products", "count", "geometric mean", "worst", "of"]
    heads += ["tuned"] * any("tuned" in row for row in rows)
    named: list[tuple[str, list[Row]]] = []
    for (section, protocol), found in groups(rows, "section", "protocol").items():
        named.append((f"**{section}, {protocol}**", found))
        for column in ("layout", "kind"):
            if len(some := groups(found, column)) > 1:
                named += [(str(name), same) for (name,), same in some.items()]
    lines = []
    for name, some_rows in named:
        worst = min(some_rows, key=lambda row: row["ratio"])
        mean = geometric_mean(row["ratio"] for row in some_rows)
        cells = [name, len(some_rows), f"{mean:.3f}", f"{worst['ratio']:.3f}"]
        cells.append(f"{worst['kernel']}, {worst['shape']}")
        if "tuned" in heads:
            tuned = [row["tuned"] for row in some_rows if "tuned" in row]
            cells.append(f"{geometric_mean(tuned):.3f}" if tuned else "-")
        lines.append(cells)
    return markdown(heads, lines)


def table(rows: Sequence[Row]) -> str:
    """A line per product."""
    heads = ["Product", "m x n x k", "us", "TFLOP/s", "Library", "TFLOP/s", "Ratio"]
    has_tuned, has_others = any("tuned" in r for r in rows), any(r["others"] for r in rows)
    heads += ["Tuned"] * has_tuned + ["Other ways"] * has_others + ["Configuration", "Error"]
    lines = []
    for r in rows:
        runs = r.get("runs", [r])
        star = "*" if len(runs) > 1 and not is_confirmed(r) else ""
        cells = [r["kernel"], r["shape"], _each(runs, "us", 1), _each(runs, "ours", 0)]
        cells += [r["against"], _each(runs, "library", 0), _each(runs, "ratio", 3) + star]
        if has_tuned:
            cells.append(f"{r['tuned']:.3f}: {r['tuned_config']}" if "tuned" in r else "-")
        if has_others:
            cells.append("; ".join(f"{n} {x:.0f}" for n, x in r["others"].items()) or "-")
        lines.append([*cells, r["config"], f"{r['error']:.1e}"])
    return markdown(heads, lines)


def _each(runs: Sequence[Row], name: str, digits: int) -> str:
    return ", ".join(f"{run[name]:.{digits}f}" for run in runs)
