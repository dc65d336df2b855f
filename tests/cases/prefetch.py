"""Prefetches of tiles and vectors at any place, which change nothing, before the loads of what they bring nearer."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, f32, int8, int64
from tests.cases.convert import numbers
from tests.cases.core import Array, Case


def _case(
    name: str, kernel: Any, shape: tuple[int, ...], dtype: DType, *scalars: int, **constants: Any
) -> Case:
    """A kernel that copies a matrix to y."""

    def reference(x: Array, *_: Any, **__: Any) -> tuple[Array]:
        return (x,)

    def inputs(rng: np.random.Generator) -> list[Array]:
        return [numbers(rng, shape, dtype)]

    return Case(
        f"prefetch-{name}",
        ("prefetch", *(["is_full"] if kernel is while_full else [])),
        kernel,
        inputs,
        ((shape, dtype),),
        reference,
        constants=constants,
        scalars=scalars,
    )


@pk.kernel(warps=2)
def ahead(x, y, *, rows, cols):
    """Each block prefetches what is below and right of its tile, part of it outside the tensor, and one before it."""
    i, j = pk.grid(pk.cdiv(x.rows, 32), pk.cdiv(x.cols, 16))
    pk.prefetch(x[i + 1, j + 1], rows=rows, cols=cols)
    pk.prefetch(x[-1, 0], rows=rows, cols=cols)
    pk.prefetch(x[i, j - 1], cols=cols)
    pk.store(y[i, j], pk.load(x[i, j], rows=32, cols=16))


@pk.kernel(warps=1)
def planes(x, y, i):
    """Vectors along columns, tiles over any two axes, and windows, by one warp."""
    (k,) = pk.grid(x.shape[0])
    pk.prefetch(x[k, :, i], cols=30)
    pk.prefetch(x[:, :, i][0, 0], rows=7, cols=9)
    pk.prefetch(x[:, i][k, 0], rows=3, cols=100)
    pk.prefetch(x[k, :].window(0, 1, i + 9).window(1, i, 999)[0, 1], rows=5, cols=11)
    pk.prefetch(x[k, i, 0], cols=1)
    pk.store(y[k, 0, 0], pk.load(x[k, 0, 0], rows=48, cols=32))


@pk.kernel
def by_roles(x, y):
    """The producer prefetches tiles that it copies later, and each consumer the rows of its tile."""
    ring = pk.pipeline(2, pk.st(x.dtype, 64, 64))
    (i,) = pk.grid(x.rows // 64)
    with pk.producer():
        for k in pk.range(pk.cdiv(x.cols, 64)):
            with ring.fill() as t:
                pk.load_async(t, x[i, k])
                pk.prefetch(x[i, k + 2], rows=t.rows, cols=t.cols)
    with pk.consumers(1):
        pk.prefetch(y[i, 0], rows=64, cols=200)
        for k in pk.range(pk.cdiv(x.cols, 64)):
            with ring.drain() as t:
                pk.store(y[i, k], pk.load(t))


@pk.kernel
def while_full(x, y):
    """A producer that brings tiles nearer as long as its ring is full; they leave the L2 cache first once read."""
    ring, count = pk.pipeline(2, pk.st(x.dtype, 64, 64), flight=1), pk.cdiv(x.cols, 64)
    (i,) = pk.grid(x.rows // 64)
    with pk.producer():
        ahead = i * 0
        for k in pk.range(count):
            ahead, last = pk.maximum(ahead, k), pk.minimum(k + 3, count)
            while (ahead < last) & ring.is_full(100):
                pk.prefetch(x[i, ahead], rows=64, cols=64)
                ahead = ahead + 1
            with ring.fill() as t:
                pk.load_async(t, x[i, k], evict_first=True)
    with pk.consumers(1):
        for k in pk.range(count):
            with ring.drain() as t:
                pk.store(y[i, k], pk.load(t))


def _cases() -> Any:
    for dtype in DTYPES.values():
        yield _case(f"tile-{dtype}", ahead, (77, 53), dtype, rows=24, cols=40)
    yield _case("lines", ahead, (64, 64), bf16, rows=1, cols=64)
    yield _case("wide", ahead, (9, 1200), int8, rows=500, cols=3000)
    yield _case("column", ahead, (300, 1), f32, rows=256, cols=1)
    yield _case("nothing", ahead, (40, 24), int64, rows=3, cols=0)
    for dtype in (f32, bf16, int8):
        yield _case(f"planes-{dtype}", planes, (4, 33, 20), dtype, 2)
    for width in (192, 100):
        yield _case(f"roles-{width}", by_roles, (128, width), bf16)
        yield _case(f"full-{width}", while_full, (128, width), bf16)
    yield _case("full-f32", while_full, (64, 1088), f32)


CASES = list(_cases())
