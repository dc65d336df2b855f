"""Grouped products beside torch._grouped_mm, in one run on this machine's GPU: experts that share tokens unevenly.

Checks every product against float64, prints a table and writes it with card, date and versions to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from protocol import Figure, buffer_count, burst, driver_version, isolated  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens.kernels.gemm.choose import fitted  # noqa: E402
from pykittens.kernels.gemm.config import Config, GemmShape  # noqa: E402
from pykittens.kernels.grouped_gemm import grouped_gemm  # noqa: E402
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k  # noqa: E402
from pykittens.kernels.limits import limits_of  # noqa: E402

Row = dict[str, Any]
Measure = Callable[[dict[str, Callable[[int], Any]], int, int], list[Figure]]
BF16 = torch.bfloat16
ALLOWED = 4e-3  # of the norm: results are rounded to bf16
LIBRARY = "torch._grouped_mm"


@dataclass(frozen=True)
class Problem:
    """Groups that share `tokens`: of rows, n x k matrices; with `sums` they share the sum, and n x k is a result.

    skewed: sizes drawn from a heavy-tailed distribution, some of them 0; else equal.
    """

    groups: int
    tokens: int
    n: int
    k: int
    skewed: bool = True
    sums: bool = False

    @property
    def name(self) -> str:
        return f"{self.groups} x {self.n} x {self.k}, {self.tokens} tokens, " + (
            "skewed" if self.skewed else "equal"
        )

    def shapes(self) -> list[tuple[int, ...]]:
        """Of both operands and the result, as the kernels take them."""
        matrices = self.groups, self.n, self.k
        if self.sums:
            return [(self.tokens, self.n), (self.tokens, self.k), matrices]
        return [(self.tokens, self.k), matrices, (self.tokens, self.n)]


EXPERTS = ((8, 14336, 4096), (8, 4096, 14336), (64, 2048, 4096))
PROBLEMS = (
    *(Problem(*e[:1], tokens, *e[1:]) for e in EXPERTS for tokens in (4096, 16384)),
    *(Problem(8, 16384, 14336, 4096, skewed=False), Problem(64, 16384, 2048, 4096, skewed=False)),
    *(Problem(8, 64, 14336, 4096), Problem(64, 256, 2048, 4096)),
    *(Problem(*e[:1], 16384, *e[1:], sums=True) for e in (EXPERTS[0], EXPERTS[2])),
    Problem(64, 16384, 2048, 4096, skewed=False, sums=True),
)


def offsets_of(problem: Problem, device: str) -> torch.Tensor:
    """Where the groups end."""
    weights = torch.ones(problem.groups)
    if problem.skewed:
        weights = torch.distributions.Exponential(1.0).sample((problem.groups,)) ** 1.5
        weights[:: max(problem.groups // 4, 2)] = 0
    ends = (weights.cumsum(0) / weights.sum() * problem.tokens).round()
    ends[-1] = problem.tokens
    return ends.to(device=device, dtype=torch.int32)


def ours(problem: Problem, config: Config | None = None) -> Callable[..., Any]:
    """The product of two operands, to a result."""
    if problem.sums:
        return lambda a, b, out, ends: grouped_gemm_k(a.T, b, ends, out, config=config)
    return lambda a, b, out, ends: grouped_gemm(a, b, ends, out, config=config)


def library(problem: Problem) -> Callable[..., Any]:
    """The same by PyTorch."""
    if problem.sums:
        return lambda a, b, out, ends: torch._grouped_mm(a.T, b, offs=ends)
    return lambda a, b, out, ends: torch._grouped_mm(a, b.mT, offs=ends)


def error_of(problem: Problem, a: Any, b: Any, out: Any, ends: torch.Tensor) -> float:
    """The largest relative error of a group; infinite where an element was not written."""
    if bool(out.isnan().any()):
        return float("inf")
    worst, begin = 0.0, 0
    for group, end in enumerate(ends.tolist()):
        part, begin = slice(begin, end), end
        x = a[part][:512].double()
        if problem.sums:
            found, exact = out[group, :512], a[part, :512].double().T @ b[part].double()
        else:
            found, exact = out[part][:512], x @ b[group].double().T
        norm = float(exact.norm())
        error = float((found.double() - exact).norm())
        worst = max(worst, error / norm if norm else error)
    return worst


def every_config(problem: Problem) -> dict[str, Config]:
    """Configurations to compare, those that fit."""
    limits = limits_of(torch.empty(0, device="cuda"))
    shape = GemmShape(problem.tokens, problem.n, problem.k, may_swap=False)
    made = [
        Config(rows, cols, consumers=consumers, band=band, out_stages=out_stages)
        for rows, cols, consumers in ((64, 128, 1), (64, 256, 1), (128, 128, 2), (128, 256, 2))
        for band in (8, 16)
        for out_stages in (1, 2)
    ]
    found = {c: fitted(c, shape, limits) for c in made}
    return {
        f"{c.rows}x{c.cols}, band {c.band}, {c.out_stages} out": f
        for c, f in found.items()
        if f is not None
    }


def measured(
    problem: Problem,
    rounds: int,
    measure: Measure = burst,
    every: bool = False,
    device: str = "cuda",
    count: Callable[[Sequence[torch.Tensor]], int] = buffer_count,
) -> list[Row]:
    """A row a configuration, all taken in turn with PyTorch."""
    shapes = problem.shapes()
    buffers = count([torch.empty(s, dtype=BF16, device="meta") for s in shapes])

    def made(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=BF16)

    sets = [
        (made(shapes[0]), made(shapes[1]), torch.empty(shapes[2], device=device, dtype=BF16))
        for _ in range(buffers)
    ]
    ends = offsets_of(problem, device)
    ways = {"pykittens": ours(problem)}
    if every:
        ways |= {name: ours(problem, config) for name, config in every_config(problem).items()}
    errors = {}
    for name, way in ways.items():
        sets[0][2].fill_(torch.nan)
        way(*sets[0], ends)
        errors[name] = error_of(problem, *sets[0], ends)
        if not errors[name] <= ALLOWED:
            raise AssertionError(f"{name}, {problem.name}: relative error {errors[name]}")
    contenders = {
        name: lambda i, way=way: way(*sets[i], ends)
        for name, way in {**ways, LIBRARY: library(problem)}.items()
    }
    *figures, theirs = measure(contenders, buffers, rounds)
    return [row(problem, figure, theirs, errors[figure.name]) for figure in figures]


def row(problem: Problem, figure: Figure, library: Figure, error: float) -> Row:
    """One line of the table, in the form of benchmarks/run.py; TFLOP/s."""
    work = 2.0 * problem.tokens * problem.n * problem.k * 1e-9  # ms to TFLOP/s
    kind = "grouped_gemm_k" if problem.sums else "grouped_gemm"
    return {
        "kernel": f"{kind} bf16" + f", {figure.name}" * (figure.name != "pykittens"),
        "shape": problem.name,
        "ours": work / figure.median,
        "library": work / library.median,
        "against": library.name,
        "unit": "TFLOP/s",
        "ratio": library.median / figure.median,
        "error": error,
        "rounds": {f.name: f.rounds for f in (figure, library)},
    }


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| Kernel | Groups, tokens | Protocol | pykittens | Library | Ratio | Relative error |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['kernel']} | {r['shape']} | {r['protocol']} | {r['ours']:,.1f} {r['unit']} | "
            f"{r['against']} {r['library']:,.1f} | {r['ratio']:.3f} | {r['error']:.1e} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Check, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", default="burst", choices=("burst", "isolated"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="+", default=range(len(PROBLEMS)))
    parser.add_argument("--every", action="store_true", help="several configurations, too")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--label", default="")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("grouped: no CUDA device")
    torch.manual_seed(0)
    measure = burst if options.protocol == "burst" else isolated
    rows: list[Row] = []
    for number in options.only:
        found = measured(PROBLEMS[number], options.rounds, measure, options.every)
        rows += [{**r, "protocol": options.protocol} for r in found]
        print(table(rows[-len(found) :]), flush=True)
        torch.cuda.empty_cache()
    save(rows, options.out, f"{options.protocol}-grouped{options.label}")


def save(rows: Sequence[Row], folder: Path, ending: str) -> None:
    """Write the table and the figures."""
    about = {
        "card": torch.cuda.get_device_properties(0).name,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    heading = ", ".join(f"{k} {v}" for k, v in about.items())
    print(heading, "\n", table(rows), sep="\n")
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{about['card'].replace(' ', '-').lower()}-{about['date']}-{ending}"
    (folder / f"{stem}.md").write_text(f"# {heading}\n\n{table(rows)}\n")
    (folder / f"{stem}.json").write_text(
        json.dumps({"about": about, "rows": list(rows)}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
