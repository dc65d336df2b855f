"""Host time of calls: repeated, with other tensors in rotation and with new numbers, beside torch.mm.

Each round is a process per tree, so a revision can be compared with another one: --beside names its checkout. A figure
is the least over the rounds, in microseconds.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import record
import torch
from protocol import call_cost, normal

import pykittens as pk
from pykittens.kernels.attention import attention
from pykittens.kernels.gemm import gemm
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.rms_norm import rms_norm

ROOT = Path(__file__).resolve().parents[1]
ROTATING = 7


@pk.kernel
def scaled(x, y, factor):  # type: ignore[no-untyped-def]
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


@pk.kernel(inplace=True)
def halved(x, y):  # type: ignore[no-untyped-def]
    """y = x / 2, which may be x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * 0.5)


@pk.kernel
def some_rows(x, y, count):  # type: ignore[no-untyped-def]
    """The first rows of x; the grid and a requirement depend on their number."""
    pk.require(count <= 10**6, "there are too many rows")
    (row,) = pk.grid(pk.cdiv(count, 2))
    pk.store(y[row], pk.load(x[row], cols=64))


def rotating(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """A call that makes the next of these calls each time."""
    each = itertools.cycle(calls)
    return lambda: next(each)()


def contenders() -> dict[str, Callable[[], Any]]:
    """The calls by name; tensors are small, so that the GPU finishes before the host."""
    sets = [[normal(128, 128) for _ in range(3)] for _ in range(ROTATING)]
    pairs = [[normal(64, 64, dtype=torch.float32) for _ in range(2)] for _ in range(ROTATING)]
    (a, b, out), (x, y) = sets[0], pairs[0]
    bias, heads = normal(128), [normal(1, 2, 128, 64) for _ in range(4)]
    few, weights, narrow = normal(16, 8192), normal(512, 8192), normal(16, 512)
    groups, ends = normal(2, 128, 128), torch.tensor([100, 128], dtype=torch.int32, device="cuda")
    tall = [normal(200_000, 64, dtype=torch.float32) for _ in range(2)]
    numbers, counts = itertools.count(1.0), itertools.count(2)
    return {
        "torch.mm, out": lambda: torch.mm(a, b, out=out),
        "gemm, out": lambda: gemm(a, b, out, transpose_b=False),
        "gemm, out, in turn": rotating([lambda s=s: gemm(*s) for s in sets]),  # type: ignore[misc]
        "gemm": lambda: gemm(a, b),
        "gemm, bias and gelu": lambda: gemm(a, b, out, bias=bias, activation="gelu"),
        "gemm, split": lambda: gemm(few, weights, narrow),
        "gemm, a new alpha": lambda: gemm(a, b, out, alpha=next(numbers)),
        "grouped_gemm": lambda: grouped_gemm(a, groups, ends, out),
        "attention": lambda: attention(*heads),
        "rms_norm": lambda: rms_norm(a, bias, 1e-6, out),
        "a kernel": lambda: scaled(x, y, 2.0),
        "a kernel, in turn": rotating([lambda s=s: scaled(*s, 2.0) for s in pairs]),  # type: ignore[misc]
        "a kernel, a new number": lambda: scaled(x, y, next(numbers)),
        "in place": lambda: halved(x, x),
        "in place, two in turn": rotating([lambda: halved(x, x), lambda: halved(y, y)]),
        "a grid of a number": lambda: some_rows(*tall, 7),
        "a grid of a new number": lambda: some_rows(*tall, next(counts)),
    }


def in_process(tree: Path) -> dict[str, float]:
    """The microseconds of each call, measured by a process that imports the package of a tree."""
    paths = os.pathsep.join((str(tree), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, __file__, "--once"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure the trees in alternation, print the table and write it."""
    parser = record.parser(__doc__)
    parser.add_argument("--beside", type=Path, help="the checkout of another revision")
    parser.add_argument("--once", action="store_true", help="measure once and print JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps({name: call_cost(call) for name, call in contenders().items()}))
        return
    trees = {"this tree": ROOT}
    if options.beside is not None:
        trees[options.beside.name] = options.beside
    rounds = {name: [] for name in trees}  # type: dict[str, list[dict[str, float]]]
    for i in range(options.rounds):
        for name in list(trees)[:: 1 if i % 2 else -1]:
            rounds[name].append(in_process(trees[name]))
    best = {
        name: {call: min(figures[call] for figures in of_tree) for call in of_tree[0]}
        for name, of_tree in rounds.items()
    }
    table = record.markdown(
        ("Call", *(f"{name}, us" for name in best)),
        (
            (call, *(f"{figures[call]:.2f}" for figures in best.values()))
            for call in best["this tree"]
        ),
    )
    print(table)
    about = record.about()
    text = f"# {record.heading(about)}\n\n{table}\n"
    record.save({"about": about, "rounds": rounds}, options.out, "calls" + options.label, text)


if __name__ == "__main__":
    main()
