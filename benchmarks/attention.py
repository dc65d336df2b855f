"""Attention beside PyTorch's backends: forward, backward, few queries, random shapes and masks by bounds.

Checks every result, prints a table, and writes it and a picture to benchmarks/results/. A rival is the faster of cuDNN
and PyTorch's FlashAttention, of those that take the call.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from attention_bounds import bounds_row, documents_of, window_of  # noqa: E402
from attention_plot import plot  # noqa: E402
from protocol import REST, Bench, bench_of, normal  # noqa: E402
from record import Row, about, row, table  # noqa: E402
from run import check  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

from pykittens.kernels.attention import attention, attention_backward  # noqa: E402

RIVALS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
LENGTHS = ((16, 16, 768), (16, 16, 1536), (16, 16, 3072), (16, 16, 6144), (4, 16, 12288))
CHECKED = 2**21  # scores of the part that is checked


@dataclass(frozen=True)
class Problem:
    """A call: batch, heads, heads of keys, queries, keys, widths of heads and of values, and whether it is causal."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d: int
    width: int
    causal: bool

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        lengths = (
            f"{self.queries}" if self.queries == self.keys else f"{self.queries} x {self.keys}"
        )
        widths = f"{self.d}" if self.d == self.width else f"{self.d}, {self.width}"
        return f"{self.batch}, {heads}, {lengths}, {widths}{' causal' * self.causal}"

    @property
    def flops(self) -> float:
        """Those of the two products of the forward pass; half of them if causal."""
        scores = self.batch * self.heads * self.queries * self.keys * (0.5 if self.causal else 1.0)
        return 2.0 * scores * (self.d + self.width)

    def tensors(self, device: str) -> list[torch.Tensor]:
        """Random normal q, k, v and a gradient."""
        q, kv = (self.batch, self.heads, self.queries), (self.batch, self.kv_heads, self.keys)
        shapes = ((*q, self.d), (*kv, self.d), (*kv, self.width), (*q, self.width))
        return [normal(*shape, device=device) for shape in shapes]


def library(backend: SDPBackend, problem: Problem, *qkv: torch.Tensor) -> torch.Tensor:
    """The attention of a backend of PyTorch."""
    with sdpa_kernel(backend):
        grouped = problem.heads != problem.kv_heads
        return sdpa(*qkv, is_causal=problem.causal, enable_gqa=grouped)


def rivals(problem: Problem, *qkv: torch.Tensor) -> dict[str, SDPBackend]:
    """The backends that take a problem."""
    found = {}
    for name, backend in RIVALS.items():
        try:
            library(backend, problem, *qkv)
        except RuntimeError:
            continue
        found[name] = backend
    return found


def exact(problem: Problem, *qkv: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The part of a problem that is checked, q, k and v in float64 that need gradients, and its result."""
    heads = max(1, min(problem.kv_heads, CHECKED // (problem.queries * problem.keys)))
    group = problem.heads // problem.kv_heads
    q, k, v = (
        x[:1, : heads * n].double().requires_grad_()
        for x, n in zip(qkv, (group, 1, 1), strict=True)
    )
    part = replace(problem, heads=heads * group, kv_heads=heads)
    return [q, k, v], library(SDPBackend.MATH, part, q, k, v)


def measured(
    bench: Bench,
    name: str,
    problem: Problem,
    ways: dict[str, Callable[[int], Any]],
    count: int,
    work: float,
    error: float,
) -> Row:
    """A row: the first way beside the fastest of the others."""
    ours, *others = bench.measure(ways, count)
    torch.cuda.empty_cache()
    best = min(others, key=lambda figure: figure.median)
    return row(name, str(problem), bench.protocol, ours, best, work, error)


def forward_row(bench: Bench, problem: Problem) -> Row | None:
    """The forward pass; None without a rival."""
    sets = [problem.tensors(bench.device)[:3] for _ in range(3)]
    backends = rivals(problem, *sets[0])
    if not backends:
        return None
    found = attention(*sets[0], causal=problem.causal)
    error = check(str(problem), found, exact(problem, *sets[0])[1].detach(), 8e-3)
    ways = {"pykittens": lambda i: attention(*sets[i], causal=problem.causal)}
    ways |= {n: lambda i, b=b: library(b, problem, *sets[i]) for n, b in backends.items()}
    return measured(bench, "forward", problem, ways, len(sets), problem.flops, error)


def backward_row(bench: Bench, problem: Problem, deterministic: bool) -> Row | None:
    """The backward pass; None without a rival."""
    sets, kept = [problem.tensors(bench.device) for _ in range(2)], []
    backends = rivals(problem, *sets[0][:3])
    if not backends:
        return None
    for q, k, v, gradient in sets:
        out, lse = attention(q, k, v, causal=problem.causal, return_lse=True)
        kept.append((q, k, v, out, lse, gradient))
    back = partial(attention_backward, causal=problem.causal, deterministic=deterministic)
    leaves, result = exact(problem, *sets[0][:3])
    part = sets[0][3][: result.shape[0], : result.shape[1]].double()
    expected = torch.autograd.grad(result, leaves, part)
    errors = [
        check(f"{problem} {n}", x, e, 1.5e-2)
        for n, x, e in zip(("dq", "dk", "dv"), back(*kept[0]), expected, strict=True)
    ]
    ways: dict[str, Callable[[int], Any]] = {"pykittens": lambda i: back(*kept[i])}
    for name, backend in backends.items():
        graphs = []
        for q, k, v, _ in sets:
            tensors = [x.detach().requires_grad_() for x in (q, k, v)]
            graphs.append((tensors, library(backend, problem, *tensors)))
        ways[name] = lambda i, graphs=graphs: torch.autograd.grad(
            graphs[i][1], graphs[i][0], sets[i][3], retain_graph=True
        )
    name = "backward" if deterministic else "backward, free order"
    return measured(bench, name, problem, ways, len(sets), 2.5 * problem.flops, max(errors))


def named() -> list[Problem]:
    """The shapes that attention is usually measured on, and batches of one."""
    made = []
    for d in (64, 128):
        for causal in (False, True):
            made += [Problem(b, h, h, n, n, d, d, causal) for b, h, n in LENGTHS]
            made += [Problem(1, 16, 16, n, n, d, d, causal) for n in (1000, 4096, 16384)]
    wide = ((256, 256), (192, 128))
    return made + [Problem(4, 16, 16, 4096, 4096, *w, c) for w in wide for c in (False, True)]


def few() -> list[Problem]:
    """Few queries against many keys, as in decoding."""
    return [
        Problem(batch, 32, 8, queries, keys, 128, 128, False)
        for batch in (1, 8, 64)
        for queries in (1, 8)
        for keys in (1000, 8192, 65536 // batch * 2)
    ]


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems of 2^31 to 2^39 FLOP."""
    draw, made = random.Random(seed), []
    while len(made) < count:
        kv_heads, group = draw.choice([1, 2, 4, 8, 16, 32]), draw.choice([1, 1, 2, 4, 8])
        n, (d, width) = int(2 ** draw.uniform(6, 14)), draw.choice(WIDTHS)
        batch = int(2 ** draw.uniform(0, 6))
        problem = Problem(batch, kv_heads * group, kv_heads, n, n, d, width, draw.random() < 0.5)
        if problem.heads <= 64 and 2**31 <= problem.flops <= 2**39:
            made.append(problem)
    return made


WIDTHS = ((64, 64), (64, 64), (96, 96), (128, 128), (128, 128), (256, 256), (192, 128))


def main() -> None:
    """Check, measure, print and write."""
    parser = record.parser(__doc__)
    parts = ("forward", "backward", "free", "few", "random", "window", "documents")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--protocol", choices=("burst", "isolated", "graphs"), default="burst")
    parser.add_argument("--rest", type=float, default=REST, help="seconds between measurements")
    parser.add_argument("--count", type=int, default=40, help="the number of random problems")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("attention: no CUDA device")
    torch.manual_seed(0)
    bench = bench_of(options.protocol, options.rounds, options.rest)
    rows: list[Row] = []
    work: dict[str, list[Callable[[], Row | None]]] = {
        "forward": [partial(forward_row, bench, p) for p in named()],
        "backward": [partial(backward_row, bench, p, True) for p in named()],
        "free": [partial(backward_row, bench, p, False) for p in named()],
        "few": [partial(forward_row, bench, p) for p in few()],
        "random": [partial(forward_row, bench, p) for p in drawn(options.count, options.seed)],
        "window": [partial(bounds_row, bench, window_of(16384, 1024), d) for d in (64, 128)],
        "documents": [
            partial(bounds_row, bench, documents_of(16384, causal), d)
            for d in (64, 128)
            for causal in (False, True)
        ],
    }
    for part in options.parts:
        for make in work[part]:
            found = make()
            if found is not None:
                rows.append(found)
                print(table(rows[-1:]).splitlines()[-1], flush=True)
    text = table(rows, "Batch, heads, length, width")
    results = {"about": about(), "rows": rows}
    path = record.save(results, options.out, f"attention{options.label}", text)
    print(path)
    print(plot(path))


if __name__ == "__main__":
    main()
