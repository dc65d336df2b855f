"""Products of shapes drawn at random: what gemm picks, other candidates, and the vendor's library, in one run.

Extents are log-uniform, in strata of the number of operations, in all layouts; `--odd` draws rows that the copy engine
does not reach, and measures the product of the next aligned extents beside each; `--unit 64` draws rows that start at
lines. `--again` measures once more the products of results that were slow. `--candidates 24` measures as many
configurations of each shape, to which benchmarks/gemm_fit.py fits the rates of the estimate.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import protocol  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from gemm_measure import compared, compile_all, name_of, set_in, shape_of  # noqa: E402
from gemm_problems import Data, Problem  # noqa: E402
from gemm_report import part_of_fastest  # noqa: E402

from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.gemm.choose import candidates  # noqa: E402
from pykittens.kernels.gemm.config import Config, GemmShape  # noqa: E402
from pykittens.kernels.limits import Limits, limits_of  # noqa: E402
from pykittens.runtime import driver  # noqa: E402

STRATA = (1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 4e12)  # operations, the bounds of each stratum
ROWS, COLUMNS = (1, 16384), (64, 32768)
MOST_BYTES = 2e9
WIDE = 128 * 192  # elements of the smallest of the large tiles
LAYOUTS = ((False, True), (False, False), (True, False), (True, True))  # a, b transposed


def drawn(
    seed: int, count: int, section: str = "bf16", odd: bool = False, unit: int = 8
) -> list[Problem]:
    """Problems of all strata, n and k multiples of `unit`; fp8 products have the one layout that the library takes."""
    numbers, found = random.Random(seed), {low: list[Problem]() for low in STRATA[:-1]}
    each = -(-count // len(found))
    while any(len(x) < each for x in found.values()):
        m = _extent(numbers, *ROWS, odd)
        n, k = (_extent(numbers, *COLUMNS, odd, unit) for _ in "nk")
        a, b = numbers.choice(LAYOUTS) if section == "bf16" else LAYOUTS[0]
        p = Problem(section, "drawn", "", "", m, n, k, transpose_b=b, transpose_a=a)
        low = max((x for x in found if x <= p.work), default=None)
        moved = 2 * (m * k + n * k + m * n)
        if low is None or p.work > STRATA[-1] or moved > MOST_BYTES:
            continue
        if section != "bf16" and (n % 16 or k % 16):  # the library refuses them
            continue
        if len(found[low]) < each:
            found[low].append(p)
    return [p for group in zip(*found.values(), strict=True) for p in group][:count]


def slow(paths: Sequence[Path], below: float) -> list[Problem]:
    """The problems of results in which the pick's speed was below this part of the library's."""
    found = []
    for row in (r for path in paths for r in json.loads(path.read_text("utf-8"))["rows"]):
        s, own = row["shape"], row["us"].get(row["pick"], math.inf)
        if row["kind"] != "aligned" and row["library_us"] / own < below:
            section = "blocks" if s["blocks"] else "fp8" if s["bytes"] == 1 else "bf16"
            a, b = (".T" in side for side in row["layout"].split("@"))
            sizes = s["m"], s["n"], s["k"]
            found.append(Problem(section, "drawn", "", "", *sizes, transpose_b=b, transpose_a=a))
    return found


def _extent(numbers: random.Random, low: int, high: int, odd: bool, unit: int = 8) -> int:
    x = math.exp(numbers.uniform(math.log(low), math.log(high)))
    return round(x) if odd else max(round(x / unit) * unit, 1 if low == 1 and x < 4 else unit)


@dataclass(frozen=True)
class Case:
    """A problem, with the configurations to measure by their names; the first is what gemm picks."""

    problem: Problem
    shape: GemmShape
    ways: dict[str, Config]

    @staticmethod
    def of(problem: Problem, limits: Limits, count: int) -> Case:
        """The case of a problem with this number of candidates: the best of each kind by the estimate."""
        shape, kinds = shape_of(problem), dict[Any, Config]()
        for c in candidates(shape, limits):
            kinds.setdefault(_kind(c), c)
        return Case(problem, shape, {name_of(c): c for c in [*kinds.values()][:count]})


def _kind(c: Config) -> tuple[Any, ...]:
    """What sets configurations apart; tiles that read about as much from the L2 cache for each product are alike."""
    area = c.rows * c.cols
    tile = area if area >= WIDE else (c.rows, c.cols)
    return tile, c.depth, c.spread, c.splits > 1, c.turns, c.copied, c.loaders, c.vectors > 0


def aligned(p: Problem) -> Problem:
    """The problem with extents that the copy engine reaches."""
    m, n, k = (-(-x // 8) * 8 for x in (p.m, p.n, p.k))
    return replace(p, m=m if p.transpose_a else p.m, n=n, k=k, kind="aligned")


def measured(case: Case, bench: protocol.Bench) -> dict[str, Any]:
    """Microseconds of each configuration and of the library, and what was wrong."""
    p = case.problem

    def way(config: Config) -> Any:
        def call(d: Data) -> Any:
            return gemm(d.a, d.b, d.out, transpose_b=p.transpose_b, config=config, **d.extras)

        return call

    ways = {name: way(config) for name, config in case.ways.items()}
    figures, errors, faults = compared(bench, p, ways, p.name)
    us = {f.name: f.median * 1e3 for f in figures}
    library = next(name for name in us if name not in case.ways)
    return {
        "shape": asdict(case.shape),
        "layout": p.layout,
        "kind": p.kind,
        "work": p.work,
        "pick": next(iter(case.ways)),
        "us": {name: us[name] for name in case.ways if name in us},
        "rounds": {f.name: [1e3 * x for x in f.rounds] for f in figures},
        "library_us": us[library],
        "configs": {name: set_in(c) for name, c in case.ways.items()},
        "error": max(errors.values(), default=math.nan),
        "faults": faults,
    }


# -- what is told ----------------------------------------------------------------------------------


def stratum(work: float) -> str:
    """The stratum of a product by its number of operations."""
    low = max((x for x in STRATA[:-1] if x <= work), default=STRATA[0])
    return f"from {low:.0e}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Ratios to the library, by strata, and of the pick to the fastest candidate."""
    groups: dict[str, list[dict[str, Any]]] = {"all": []}
    for row in rows:
        if row["pick"] in row["us"] and row["kind"] != "aligned":
            groups["all"].append(row)
            groups.setdefault(stratum(row["work"]), []).append(row)
    lines = []
    for name, group in groups.items():
        ratios = sorted(r["library_us"] / r["us"][r["pick"]] for r in group)
        best = [part_of_fastest({n: r["rounds"][n] for n in r["us"]}, r["pick"]) for r in group]
        if ratios:
            low = ratios[int(0.01 * len(ratios))]
            several = any(len(r["us"]) > 1 for r in group)
            picks = [f"{x:.3f}" if several else "-" for x in (geometric_mean(best), min(best))]
            numbers = (f"{x:.3f}" for x in (geometric_mean(ratios), low, ratios[0]))
            lines.append((name, len(ratios), *numbers, *picks))
    heads = ("Operations", "Shapes", "To the library", "1%", "Least", "Pick to best", "Least")
    return record.markdown(heads, lines)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Every product, the slowest beside the library first."""

    def cells(row: dict[str, Any]) -> tuple[str, ...]:
        s, us = row["shape"], row["us"]
        own, best = us.get(row["pick"], math.nan), min(us, key=us.get, default="")
        size = f"{s['m']} x {s['n']} x {s['k']}"
        figures = (f"{own:.1f}", f"{row['library_us']:.1f}", f"{row['library_us'] / own:.3f}")
        return size, row["layout"], row["kind"], *figures, row["pick"], best

    heads = ("Shape", "Layout", "Kind", "us", "Library us", "Ratio", "Pick", "Fastest")
    return record.markdown(heads, sorted(map(cells, rows), key=lambda x: x[5]))


def main() -> None:
    """Measure, print and write."""
    parser = record.parser(__doc__, rounds=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--section", choices=("bf16", "fp8", "blocks"), default="bf16")
    parser.add_argument("--odd", action="store_true", help="extents that are no multiples of 8")
    parser.add_argument("--unit", type=int, default=8, help="of which n and k are multiples")
    parser.add_argument("--candidates", type=int, default=1, help="configurations of each shape")
    parser.add_argument("--again", type=Path, nargs="+", help="slow products of these results")
    parser.add_argument("--below", type=float, default=0.85, help="of the library: slow")
    parser.add_argument("--compile-seconds", type=float, default=240)
    options = parser.parse_args()
    limits, arch = limits_of(torch.empty(0, device="cuda")), driver.device(0).arch
    if options.again:
        problems = slow(options.again, options.below)
    else:
        problems = drawn(options.seed, options.count, options.section, options.odd, options.unit)
    if options.odd:
        problems = [q for p in problems for q in (p, aligned(p))]
    cases = [Case.of(p, limits, options.candidates) for p in problems]
    wanted = [(case.problem, config) for case in cases for config in case.ways.values()]
    for fault in compile_all(wanted, arch, seconds=options.compile_seconds):
        print(fault, file=sys.stderr)
    bench = protocol.bench_of("graphs", options.rounds, rest=0.02)
    about = {**record.about(), "seed": options.seed}
    results: dict[str, Any] = {"about": about, "limits": asdict(limits), "rows": []}
    kind = f"{'odd-' * options.odd}{options.section}"
    for case in cases:
        try:
            results["rows"].append(measured(case, bench))
        except Exception as fault:  # the other problems are still worth measuring
            print(f"{case.problem.name}: {type(fault).__name__}: {fault}", file=sys.stderr)
        text = f"{record.heading(results['about'])}\n\n{summary(results['rows'])}\n\n"
        name = f"gemm-shapes-{kind}{options.label}"
        record.save(results, options.out, name, text + table(results["rows"]) + "\n")
        torch.cuda.empty_cache()
    print(summary(results["rows"]))


if __name__ == "__main__":
    main()
