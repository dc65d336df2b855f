"""Host time of calls: repeated, with other tensors in rotation and with new numbers, beside those of PyTorch.

--beside names the checkout of another revision to compare with. Each tree has a process on the same core, and the
processes measure each call in alternation, because the speed of a host drifts more than revisions differ. A figure is
the median over the rounds, in microseconds.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import record
import torch
from protocol import call_cost, normal
from torch.nn import functional

import pykittens as pk
from pykittens.kernels.attention import attention
from pykittens.kernels.gemm import gemm
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.rms_norm import rms_norm
from pykittens.torch import linear, matmul

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


def beside_torch(device: str) -> dict[str, Callable[[], Any]]:
    """Calls that make their result, each after PyTorch's own of the same arguments."""
    x, weight, bias = (normal(*s, device=device) for s in ((128, 128), (128, 128), (128,)))
    right, leaf = weight.mT, weight.clone().requires_grad_()
    # As in a model: results live for a while, so that the next have other addresses.
    kept: dict[str, deque[Any]] = {name: deque(maxlen=ROTATING) for name in ("mm", "gemm")}
    return {
        "torch.mm": lambda: torch.mm(x, right),
        "gemm": lambda: gemm(x, weight),
        "torch.mm, results kept": lambda: kept["mm"].append(torch.mm(x, right)),
        "gemm, results kept": lambda: kept["gemm"].append(gemm(x, weight)),
        "torch.matmul": lambda: torch.matmul(x, right),
        "pykittens.torch.matmul": lambda: matmul(x, right),
        "F.linear": lambda: functional.linear(x, weight),
        "pykittens.torch.linear": lambda: linear(x, weight),
        "F.linear, bias": lambda: functional.linear(x, weight, bias),
        "pykittens.torch.linear, bias": lambda: linear(x, weight, bias),
        "F.linear, a gradient": lambda: functional.linear(x, leaf),
        "pykittens.torch.linear, a gradient": lambda: linear(x, leaf),
    }


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
        "gemm, out": lambda: gemm(a, b, out),
        "gemm, out, with a keyword": lambda: gemm(a, b, out, transpose_b=False),
        "gemm, out, in turn": rotating([lambda s=s: gemm(*s) for s in sets]),  # type: ignore[misc]
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
        **beside_torch("cuda"),
    }


def serve() -> None:
    """Measure each call that is named on standard input."""
    calls = contenders()
    print(json.dumps(list(calls)), flush=True)
    for name in sys.stdin:
        print(call_cost(calls[name.strip()], calls=200, rounds=1), flush=True)


class Server:
    """A process that imports the package of a tree and measures calls."""

    def __init__(self, tree: Path) -> None:
        paths = os.pathsep.join((str(tree), os.environ.get("PYTHONPATH", "")))
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"], env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.calls: list[str] = json.loads(self._line())

    def measured(self, call: str) -> float:
        """Microseconds of a call."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{call}\n")
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def main() -> None:
    """Measure the trees in alternation, print the table and write it."""
    parser = record.parser(__doc__, rounds=41)
    parser.add_argument("--beside", type=Path, help="the checkout of another revision")
    parser.add_argument(
        "--serve", action="store_true", help="measure the calls named on standard input"
    )
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # of the processes, too
    trees = [ROOT, *([options.beside] if options.beside else [])]
    servers = [Server(tree) for tree in trees]
    rows: dict[str, list[list[float]]] = {}
    for call in servers[0].calls:
        rounds = [[server.measured(call) for server in servers] for _ in range(options.rounds)]
        rows[call] = [list(times) for times in zip(*rounds, strict=True)]
    heads = ["Call", "us", *(f"{options.beside.name}, us" for _ in servers[1:])]
    medians = {call: [statistics.median(t) for t in times] for call, times in rows.items()}
    table = record.markdown(heads, ((c, *(f"{m:.2f}" for m in ms)) for c, ms in medians.items()))
    print(table)
    about = record.about()
    text = f"# {record.heading(about)}\n\n{table}\n"
    record.save({"about": about, "rounds": rows}, options.out, f"calls{options.label}", text)


if __name__ == "__main__":
    main()
