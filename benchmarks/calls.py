"""Host time of repeated calls, with rotating tensors and with new numbers, beside torch.mm.

PYTHONPATH names the package that is measured, so that revisions can be compared. Prints JSON, in microseconds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from protocol import call_cost, normal

import pykittens as pk
from pykittens.kernels.attention import attention
from pykittens.kernels.gemm import gemm
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.rms_norm import rms_norm

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


if __name__ == "__main__":
    print(json.dumps({name: round(call_cost(call), 2) for name, call in contenders().items()}))
