"""Dense products beside cuBLAS and cuBLASLt, in one run on this machine's GPU.

Checks every product against float64, prints tables, writes them with card, date and versions to benchmarks/results/,
and draws them if matplotlib is installed. The files are written after each product. Long runs can be split, `--part
1/2` and `--part 2/2`; `--merge` makes one table of the files of several runs. Products of few rows take less time than
their launch on the host: `--protocol graphs` excludes host time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import protocol  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from gemm_measure import GemmBench, compile_ahead, measured  # noqa: E402
from gemm_problems import SECTIONS, Problem, problems  # noqa: E402
from gemm_report import merged, report  # noqa: E402

from pykittens.kernels.limits import Limits, limits_of  # noqa: E402
from pykittens.runtime import driver  # noqa: E402

try:
    from gemm_plot import plot
except ModuleNotFoundError:  # matplotlib is optional
    plot = None  # type: ignore[assignment]


def chosen(only: str, match: str, part: str) -> list[tuple[int, Problem]]:
    """The selected problems, with their numbers."""
    words = only.split(",")
    known = dict.fromkeys((*SECTIONS, *(p.kind for p in problems())))
    for word in words:
        if word not in known:
            sys.exit(f"gemm: --only {word!r} is none of: {', '.join(known)}")
    found = [
        (number, p)
        for number, p in enumerate(problems())
        if match in p.name and (p.section in words or p.kind in words)
    ]
    which, _, parts = part.partition("/")
    if not (which.isdecimal() and parts.isdecimal() and 1 <= int(which) <= int(parts)):
        sys.exit(f"gemm: --part is which of how many, such as 1/2, not {part!r}")
    return found[int(which) - 1 :: int(parts)]


def bench_of(options: argparse.Namespace) -> GemmBench:
    """How figures are measured with these options."""
    bench = protocol.bench_of(options.protocol, options.rounds, options.rest)
    return GemmBench(**vars(bench), tune=options.tune)


def gpu() -> tuple[Limits, str]:
    """The limits of this machine's GPU, and what is compiled for it."""
    return limits_of(torch.empty(0, device="cuda")), driver.device(0).arch


def about(options: argparse.Namespace) -> dict[str, Any]:
    """The card, the driver, the date, the versions, and the protocol."""
    return {**record.about(), "protocol": options.protocol, "rest": options.rest}


def measure_all(
    wanted: Sequence[tuple[int, Problem]],
    bench: GemmBench,
    where: dict[str, Any],
    folder: Path,
    label: str,
) -> dict[str, Any]:
    """Measure the problems in order. A failing problem is reported and left out, unless the GPU has failed."""
    results: dict[str, Any] = {"about": where, "rows": [], "faults": {}}
    for number, problem in wanted:
        begin = time.monotonic()
        try:
            row = measured(problem, bench)
        except Exception as fault:  # the other problems are still worth measuring
            said = f"{type(fault).__name__}: {fault}".splitlines()[0]
            results["faults"][problem.name] = said
            print(f"gemm: {problem.name}: {said}", file=sys.stderr, flush=True)
        else:
            results["rows"].append({"number": number, **row})
            print(
                f"{row['kernel']:28} {row['shape']:22} {row['us']:9.1f} us {row['ours']:6.0f} TFLOP/s "
                f"{row['ratio']:6.3f} {row['config']}"
                + (f" | tuned {row['tuned']:.3f} {row['tuned_config']}" if "tuned" in row else "")
                + f" | {time.monotonic() - begin:.1f} s",
                flush=True,
            )
        save(results, folder, label)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # raises if the GPU has failed
            torch.cuda.empty_cache()
    return results


def save(results: dict[str, Any], folder: Path, label: str) -> Path:
    """Write the figures and the tables; returns the path of the figures."""
    name = f"gemm-{results['about']['protocol']}{label}"
    return record.save(results, folder, name, report(results))


def written(results: dict[str, Any], folder: Path, label: str) -> None:
    """Print the tables, write them, and draw the figures."""
    path = save(results, folder, label)
    print(report(results), path, sep="\n")
    if results["rows"]:
        draw(path)


def draw(path: Path) -> None:
    """Draw a file of results beside it, or say how to draw it later."""
    record.draw(plot, path, "benchmarks/gemm.py --plot")


def main() -> None:
    """Check, measure and write; exits 1 if a product is wrong."""
    parser = record.parser(__doc__, rounds=None)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections or kinds of products")
    parser.add_argument("--match", default="", help="text in the name, as --list prints it")
    parser.add_argument("--part", default="1/1", help="such as 1/2")
    parser.add_argument("--protocol", default="burst", choices=protocol.PROTOCOLS)
    parser.add_argument("--rest", type=float, default=protocol.REST, help="seconds")
    parser.add_argument("--tune", action="store_true", help="also measure tuned products")
    parser.add_argument("--list", action="store_true", help="print names and measure nothing")
    parser.add_argument("--merge", type=Path, nargs="+", help="results of several runs")
    parser.add_argument("--plot", type=Path, help="results to draw")
    options = parser.parse_args()
    if options.plot:
        draw(options.plot)
        return
    if options.merge:
        results = merged([json.loads(path.read_text("utf-8")) for path in options.merge])
        written(results, options.out, options.label or "-merged")
        return
    wanted = chosen(options.only, options.match, options.part)
    if options.list:
        print(*(problem.name for _, problem in wanted), sep="\n")
        return
    if not torch.cuda.is_available():
        sys.exit("gemm: no CUDA device; --list prints what would be measured")
    torch.manual_seed(0)
    begin = time.monotonic()
    faults = compile_ahead([problem for _, problem in wanted], *gpu())
    print(*faults, f"compiled in {time.monotonic() - begin:.0f} s", sep="\n", flush=True)
    results = measure_all(wanted, bench_of(options), about(options), options.out, options.label)
    written(results, options.out, options.label)
    if results["faults"]:
        sys.exit(f"gemm: {len(results['faults'])} left out, as reported above")


if __name__ == "__main__":
    main()
