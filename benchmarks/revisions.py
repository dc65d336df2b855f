"""Split products of two revisions of this package beside cuBLAS, in one process, on shapes drawn at random.

The other revision is a checkout, for example of `git worktree add build/before main`: `--before build/before`. Both
add partial sums in the same order, so their results must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import protocol  # noqa: E402
import torch  # noqa: E402

BEFORE, AFTER, LIBRARY = "before", "after", "cuBLAS"
KERNEL, CHOOSE, CONFIG, LIMITS = (
    f"pykittens.kernels.{name}" for name in ("gemm.kernel", "gemm.choose", "gemm.config", "limits")
)
Modules = dict[str, ModuleType]
Shape = tuple[int, int, int]


def modules_of(checkout: Path) -> Modules:
    """The modules of a checkout that this program calls, imported apart from those of other checkouts."""
    own = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "pykittens"}
    for name in own:
        del sys.modules[name]
    sys.path.insert(0, str(checkout))
    found = {name: importlib.import_module(name) for name in (KERNEL, CHOOSE, CONFIG, LIMITS)}
    sys.path.remove(str(checkout))
    for name in [n for n in sys.modules if n.partition(".")[0] == "pykittens"]:
        del sys.modules[name]
    sys.modules.update(own)
    where = Path(found[KERNEL].__file__ or "").resolve()
    assert checkout.resolve() in where.parents, f"{where} is not a file of {checkout}"
    return found


def config_of(modules: Modules, shape: Shape, like: Any) -> Any:
    """The configuration that a revision picks for a @ b.T in bf16."""
    asked = modules[CONFIG].GemmShape(*shape)
    limits = modules[LIMITS].limits_of(like)
    return modules[CONFIG].together(
        modules[CHOOSE].pick(asked, limits), asked, limits.multiprocessors
    )


def shapes(seed: int, count: int, modules: Modules, like: Any) -> list[Shape]:
    """Random shapes whose products a revision splits: few rows, a long sum, extents not always round."""
    draw, found = random.Random(seed), list[Shape]()
    while len(found) < count:
        m = round(2 ** draw.uniform(0, 9.5))
        n = round(2 ** draw.uniform(6, 12))
        k = round(2 ** draw.uniform(10, 15))
        unit = draw.choice((8, 64, 512))
        shape = m, -(-n // unit) * unit, -(-k // unit) * unit
        if config_of(modules, shape, like).splits > 1:
            found.append(shape)
    return found


def measured(shape: Shape, both: dict[str, Modules], bench: protocol.Bench) -> dict[str, float]:
    """Microseconds of each revision and of the library; raises if the revisions differ in a bit."""
    m, n, k = shape
    count = max(2, -(-(2**28) // (2 * (m * k + n * k))))  # more than the L2 cache holds
    count = min(count, 64)
    a, b = (
        [torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        for rows in (m, n)
    )
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    calls: dict[str, Any] = {
        name: lambda i, gemm=modules[KERNEL].gemm: gemm(a[i], b[i], out)
        for name, modules in both.items()
    }
    calls[LIBRARY] = lambda i: torch.mm(a[i], b[i].mT, out=out)
    results = {}
    for name, call in calls.items():
        for i in 2 * [*range(count)]:  # a second call prepares the later ones
            call(i)
        call(0)
        results[name] = out.clone()
    if not torch.equal(results[BEFORE], results[AFTER]):
        raise SystemExit(f"{shape}: the revisions differ")
    figures = bench.measure(calls, count)
    return {f.name: 1e3 * f.median for f in figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of another revision")
    parser.add_argument("--seed", type=int, default=0, help="of the shapes")
    parser.add_argument("--count", type=int, default=40, help="the number of shapes")
    parser.add_argument("--protocol", default="burst", choices=("burst", "graphs", "isolated"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rest", type=float, default=protocol.REST)
    options = parser.parse_args()
    bench = protocol.bench_of(options.protocol, options.rounds, options.rest)
    both = {BEFORE: modules_of(options.before), AFTER: modules_of(ROOT)}
    like = torch.empty(1, device="cuda")
    ratios: dict[str, list[float]] = {BEFORE: [], LIBRARY: []}
    print(f"{'m x n x k':>20}  before   after  cuBLAS  before/after  cuBLAS/after  configuration")
    for shape in shapes(options.seed, options.count, both[BEFORE], like):
        times = measured(shape, both, bench)
        for name, found in ratios.items():
            found.append(times[name] / times[AFTER])
        configs = [config_of(modules, shape, like) for modules in both.values()]
        words = [f"{c.rows}x{c.cols}/{c.splits} of {c.stages}" for c in configs]
        print(
            f"{'x'.join(map(str, shape)):>20}"
            + "".join(f"{times[name]:8.2f}" for name in (BEFORE, AFTER, LIBRARY))
            + "".join(f"{found[-1]:14.3f}" for found in ratios.values())
            + "  "
            + ", ".join(dict.fromkeys(words)),
            flush=True,
        )
    for name, found in ratios.items():
        print(f"{name}/{AFTER}: geometric mean {statistics.geometric_mean(found):.3f}, ", end="")
        print(f"least {min(found):.3f}, most {max(found):.3f}")


if __name__ == "__main__":
    main()
