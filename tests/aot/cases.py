"""Kernels for C launchers: each compiled for some arguments and launched with others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.cli.arguments import load
from pykittens.kernels.rms_norm import rms_norm_rows
from tests.conftest import EXAMPLES
from tests.kernels_cluster import cluster_matmul

BF16 = np.dtype(ml_dtypes.bfloat16)
Array = np.ndarray[Any, Any]


def example(stem: str, name: str) -> Any:
    return getattr(load(EXAMPLES / f"{stem}.py"), name)


ADD, SOFTMAX = example("02_add", "add"), example("03_softmax", "softmax")
MATMUL, ATTENTION = example("06_matmul", "matmul"), example("07_attention", "attention")


def zeros(*shape: int, dtype: Any = BF16) -> Array:
    return np.zeros(shape, dtype)


def padded(*shape: int, dtype: Any = BF16, by: int = 16) -> Array:
    """Rows further apart than they are wide."""
    return np.zeros((*shape[:-1], shape[-1] + by), dtype)[..., : shape[-1]]


@pk.kernel
def scaled(x, y, factor, count, flag):
    """y = x * factor, `count` times or not at all."""
    pk.require(count >= 0, 'a "count" below 0? 100% wrong\\')
    pk.require(factor > 0.1 or flag, "a small factor must be flagged")
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    if flag:
        for _ in pk.range(count):
            t = t * factor
    pk.store(y[row, col], t)


@pk.kernel
def planes(x, y):
    """y = x, a 64x64 tile of a tensor of five axes a block, through shared memory; launches overlap."""
    pk.overlap()
    a, b, c, n, m = x.shape
    i, j, k, row, col = pk.grid(a, b, c, pk.cdiv(n, 64), pk.cdiv(m, 64))
    ring = pk.pipeline(1, pk.st(pk.bf16, 64, 64))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[i, j, k, row, col])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[i, j, k, row, col], t)


@pk.kernel
def heads(x, y, sums):
    """y = x, a 64x64 tile of a head a block, whose rows run along the second of four axes; and sums of its rows."""
    b, t, h, d = x.shape
    i, j, row, col = pk.grid(b, h, pk.cdiv(t, 64), pk.cdiv(d, 64))
    ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
    with pk.producer(), ring.fill() as tile:
        pk.load_async(tile, x[i, :, j][row, col])
    with pk.warpgroups(1), ring.drain() as tile:
        pk.store_async(y[i, :, j][row, col], tile)
        pk.store(sums[i, :, j][row], pk.row_sum(pk.load(tile)), op="add")


@pk.kernel
def narrow(x, y):
    """y = x, in tiles of 48 bytes a row, which have no swizzle."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 48))
    ring = pk.pipeline(1, pk.st(pk.int8, 64, 48))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[row, col])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[row, col], t)


@pk.kernel
def arithmetic(x, y, n, d):
    """A grid that takes all the arithmetic of the host."""
    rows = x.rows
    pk.require(-rows // 7 == -pk.cdiv(rows, 7), "-a // b is -cdiv(a, b)")
    pk.require(pk.cdiv(n, d) == -(-n // d), "cdiv(a, b) is -(-a // b)")
    pk.require(n % 3 == n - n // 3 * 3, "a % b is a - a // b * b")
    pk.require(not (n == 7 and d == 7) or rows - (n - d) > 0, "never seven")
    pk.require(n.to(pk.f32) / 2.0 <= pk.where(d > 0, d.to(pk.f32) * 1e9, -1.0) or d < 1, "floats")
    pk.require((n & 3) + (n & -4) == n and (n ^ d) == (n | d) - (n & d), "bits")
    first = pk.where(n > 4, pk.maximum(n, d), pk.minimum(rows, 100 // d))
    wide = n * n * n * n
    pk.require(wide * wide >= 0 or d > 1, "overflows")
    (i,) = pk.grid(first + n % d - (rows - d) * 0)
    pk.store(y[i], pk.load(x[0], cols=8) + pk.load(x[i], cols=8))


@pk.kernel(cluster=2)
def few(x, y, n):
    """y = x, by few blocks, in sections of rows that an argument decides."""
    for row, col in pk.persistent(
        y.tiles(64, 64), pk.longest_first(n), cluster_axis=0, blocks=n + pk.cdiv(x.rows, 1000)
    ):
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))


@pk.kernel
def eleven(x, y):
    """y = x, by at most eleven blocks."""
    for row, col in pk.persistent(y.tiles(64, 64), blocks=11):
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))


@pk.kernel(inplace=True)
def doubled(x, y):
    """y = x + x, in place if asked."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], t + t)


@pk.kernel
def class_(new, λ, kernel, double):
    """A kernel whose names are words of C */ or none of its letters. \\"""
    row, col = pk.grid(pk.cdiv(λ.rows, 64), pk.cdiv(λ.cols, 64))
    pk.require(kernel >= double, "start(refuse, larger(λ))")
    pk.store(λ[row, col], pk.load(new[row, col], rows=64, cols=64))


@pk.kernel
def gathered(out, *parts, weight):
    """out = the sum of any number of tensors and numbers."""
    row, col = pk.grid(pk.cdiv(out.rows, 64), pk.cdiv(out.cols, 64))
    acc = pk.zeros(out.dtype, 64, 64)
    for part in parts:
        if hasattr(part, "shape"):
            pk.require(part.shape == out.shape, "all parts must have the shape of out")
            acc = acc + pk.load(part[row, col], rows=64, cols=64)
        else:
            acc = acc + part * weight
    pk.store(out[row, col], acc)


@dataclass(frozen=True)
class Case:
    """A kernel, arguments it is compiled for, and others it is launched with."""

    kernel: Any
    compiled_for: tuple[Any, ...]
    launched_with: tuple[tuple[Any, ...], ...]
    constants: dict[str, Any] = field(default_factory=dict)


F32 = np.float32
CASES = {
    "few": Case(
        few,
        (zeros(64, 64), zeros(64, 64), 3),
        tuple((zeros(r, 640), zeros(r, 640), n) for r, n in ((2000, 9), (2000, 8), (64, 500))),
    ),
    "eleven": Case(
        eleven,
        (zeros(64, 64), zeros(64, 64)),
        tuple((zeros(r, 64), zeros(r, 64)) for r in (64, 640, 6400)),
    ),
    "add": Case(
        ADD,
        (zeros(64, 64, dtype=F32),) * 3,
        (
            tuple(zeros(300, 132, dtype=F32) for _ in range(3)),
            tuple(padded(1, 4, dtype=F32) for _ in range(3)),
        ),
    ),
    "add-unaligned": Case(
        ADD,
        (zeros(3, 3),) * 3,
        (tuple(zeros(100, 65) for _ in range(3)), tuple(zeros(64, 64) for _ in range(3))),
    ),
    "softmax": Case(SOFTMAX, (zeros(8, 1000),) * 2, ((zeros(77, 1000), padded(77, 1000)),)),
    "matmul": Case(
        MATMUL,
        (zeros(256, 256),) * 3,
        (
            (zeros(1024, 512), zeros(2048, 512), zeros(1024, 2048)),
            (padded(1, 64), padded(304, 64), padded(1, 304)),
            (
                zeros(1, 100),
                padded(304, 100, by=4),
                padded(1, 304),
            ),  # one row, of no whole 16 bytes
            (zeros(4096, 64), zeros(8192, 64), zeros(4096, 8192)),
        ),
    ),
    "attention": Case(
        ATTENTION,
        (zeros(1, 1, 128, 64),) * 4,
        (
            tuple(zeros(2, 3, 500, 64) for _ in range(4)),
            tuple(zeros(2, 300, 3, 64).transpose(0, 2, 1, 3) for _ in range(4)),
        ),
        {"causal": True},
    ),
    "rms_norm": Case(
        rms_norm_rows,
        (zeros(4, 2048), zeros(2048), zeros(4, 2048), 1e-6),
        ((zeros(99, 2048), zeros(2048), zeros(99, 2048), 1e-5),),
    ),
    "cluster_matmul": Case(
        cluster_matmul,
        (zeros(256, 256),) * 3,
        (
            (zeros(384, 512), zeros(512, 512), zeros(384, 512)),
            (zeros(8192, 64), zeros(8192, 64), zeros(8192, 8192)),
        ),
    ),
    "scaled": Case(
        scaled,
        (zeros(64, 64, dtype=F32), zeros(64, 64, dtype=F32), 1.0, 1, False),
        (
            (zeros(64, 68, dtype=F32), zeros(64, 68, dtype=F32), 0.3, 7, True),
            (zeros(64, 68, dtype=F32), zeros(64, 68, dtype=F32), -1e-20, 2**31 - 1, True),
        ),
    ),
    "planes": Case(
        planes,
        (zeros(1, 1, 1, 64, 64),) * 2,
        (
            (zeros(2, 3, 4, 70, 72), padded(2, 3, 4, 70, 72)),
            (zeros(4, 3, 2, 70, 72).transpose(2, 1, 0, 3, 4), zeros(2, 3, 4, 70, 72)),
            (zeros(1, 2, 1, 1, 8), padded(1, 2, 1, 1, 8)),
        ),
    ),
    "heads": Case(
        heads,
        (zeros(1, 64, 1, 64, dtype=F32),) * 2 + (zeros(1, 64, 1, dtype=F32),),
        (
            (
                zeros(2, 70, 3, 72, dtype=F32),
                padded(2, 70, 3, 72, dtype=F32),
                zeros(2, 70, 3, dtype=F32),
            ),
            (
                zeros(3, 70, 2, 72, dtype=F32).transpose(2, 1, 0, 3),
                zeros(2, 3, 70, 72, dtype=F32).transpose(0, 2, 1, 3),
                zeros(2, 70, 3, dtype=F32),
            ),
            (
                zeros(1, 1, 5, 8, dtype=F32),
                padded(1, 1, 5, 8, dtype=F32),
                zeros(1, 1, 5, dtype=F32),
            ),
        ),
    ),
    "narrow": Case(
        narrow,
        (zeros(64, 48, dtype=np.int8),) * 2,
        ((zeros(100, 96, dtype=np.int8), padded(100, 96, dtype=np.int8)),),
    ),
    "arithmetic": Case(
        arithmetic,
        (zeros(64, 8, dtype=F32), zeros(64, 8, dtype=F32), 1, 1),
        tuple(
            (zeros(rows, 8, dtype=F32), zeros(rows, 8, dtype=F32), n, d)
            for rows, n, d in ((50, 3, 2), (51, 5, 7), (52, 4, 30), (1, 17, -3))
        ),
    ),
    "gathered": Case(
        gathered,
        (*(zeros(64, 64, dtype=F32) for _ in range(3)), 0.5, zeros(64, 64, dtype=F32), 2.0),
        (
            (
                zeros(100, 68, dtype=F32),
                zeros(100, 68, dtype=F32),
                padded(100, 68, dtype=F32),
                0.25,
                zeros(100, 68, dtype=F32),
                -3.0,
            ),
        ),
        {"weight": 2.0},
    ),
    "class": Case(
        class_,
        (zeros(64, 64), zeros(64, 64), 1, 1),
        ((zeros(70, 72), zeros(70, 72), 5, 4),),
    ),
}
