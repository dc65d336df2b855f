"""Grouped products beside torch._grouped_mm, in one run on this machine's GPU: experts with unequal numbers of tokens.

Checks every product against float64, prints a table and writes it with card, date and versions to benchmarks/results/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import Bench, bench_of, normal  # noqa: E402
from record import Row, row, table  # noqa: E402

from pykittens.kernels.gemm.choose import fitted  # noqa: E402
from pykittens.kernels.gemm.config import Config, GemmShape  # noqa: E402
from pykittens.kernels.grouped_gemm import grouped_gemm  # noqa: E402
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k  # noqa: E402
from pykittens.kernels.limits import limits_of  # noqa: E402

BF16 = torch.bfloat16
ALLOWED = 4e-3  # of the norm: results are rounded to bf16
LIBRARY = "torch._grouped_mm"
SHAPE = "Groups, tokens"


@dataclass(frozen=True)
class Problem:
    """Groups that divide `tokens` rows, each times an n x k matrix; with `sums`, each group's sum is n x k.

    skewed: sizes from a heavy-tailed distribution, some of them 0; otherwise equal sizes.
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
        """The shapes of both operands and of the result, as the kernels take them."""
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
    """The end of each group."""
    weights = torch.ones(problem.groups)
    if problem.skewed:
        weights = torch.distributions.Exponential(1.0).sample((problem.groups,)) ** 1.5
        weights[:: max(problem.groups // 4, 2)] = 0
    ends = (weights.cumsum(0) / weights.sum() * problem.tokens).round()
    ends[-1] = problem.tokens
    return ends.to(device=device, dtype=torch.int32)


def ours(problem: Problem, config: Config | None = None) -> Callable[..., Any]:
    """The product of two operands, written to a result."""
    if problem.sums:
        return lambda a, b, out, ends: grouped_gemm_k(a.T, b, ends, out, config=config)
    return lambda a, b, out, ends: grouped_gemm(a, b, ends, out, config=config)


def library(problem: Problem) -> Callable[..., Any]:
    """The same by PyTorch."""
    if problem.sums:
        return lambda a, b, out, ends: torch._grouped_mm(a.T, b, offs=ends)
    return lambda a, b, out, ends: torch._grouped_mm(a, b.mT, offs=ends)


def error_of(problem: Problem, a: Any, b: Any, out: Any, ends: torch.Tensor) -> float:
    """The largest relative error of a group; infinite if an element was not written."""
    if bool(out.isnan().any()):
        return float("inf")
    worst, begin = 0.0, 0
    for group, end in enumerate(ends.tolist()):
        rows, begin = slice(begin, end), end
        x = a[rows][:512].double()
        if problem.sums:
            found, exact = out[group, :512], a[rows, :512].double().T @ b[rows].double()
        else:
            found, exact = out[rows][:512], x @ b[group].double().T
        norm = float(exact.norm())
        error = float((found.double() - exact).norm())
        worst = max(worst, error / norm if norm else error)
    return worst


def every_config(problem: Problem) -> dict[str, Config]:
    """The configurations to compare that fit."""
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


def measured(problem: Problem, bench: Bench, every: bool = False) -> list[Row]:
    """A row per configuration, all measured in turn with PyTorch."""
    *operands, result = problem.shapes()
    empty = [torch.empty(s, dtype=BF16, device="meta") for s in problem.shapes()]
    sets = [
        [
            *(normal(*s, device=bench.device) for s in operands),
            torch.empty(result, device=bench.device, dtype=BF16),
        ]
        for _ in range(bench.count(empty))
    ]
    ends = offsets_of(problem, bench.device)
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
    *figures, theirs = bench.measure(contenders, len(sets))
    kernel = "grouped_gemm_k bf16" if problem.sums else "grouped_gemm bf16"
    work = 2.0 * problem.tokens * problem.n * problem.k
    return [
        row(
            kernel + f", {f.name}" * (f.name != "pykittens"),
            *(problem.name, bench.protocol, f, theirs, work, errors[f.name]),
        )
        for f in figures
    ]


def main() -> None:
    """Check, measure and write."""
    parser = record.parser(__doc__)
    parser.add_argument("--protocol", default="burst", choices=("burst", "isolated"))
    parser.add_argument("--only", type=int, nargs="+", default=range(len(PROBLEMS)))
    parser.add_argument("--every", action="store_true", help="also measure other configurations")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("grouped: no CUDA device")
    torch.manual_seed(0)
    bench = bench_of(options.protocol, options.rounds)
    rows: list[Row] = []
    for number in options.only:
        found = measured(PROBLEMS[number], bench, options.every)
        rows += found
        print(table(found, SHAPE), flush=True)
        torch.cuda.empty_cache()
    where = record.about()
    text = f"# {record.heading(where)}\n\n{table(rows, SHAPE)}\n"
    print(text)
    name = f"{options.protocol}-grouped{options.label}"
    record.save({"about": where, "rows": rows}, options.out, name, text)


if __name__ == "__main__":
    main()
