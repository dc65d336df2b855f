"""Clusters whose blocks copy different tiles to all blocks."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, whole


def _square(rng: np.random.Generator) -> tuple[Array, ...]:
    """A, B and an output for C = A @ B.T, two tiles on each side."""
    return whole(rng, (128, 128), bf16), whole(rng, (128, 128), bf16), empty((128, 128), f32)


@planted(
    Kind.MULTICAST,
    "pk.load_async(s.b, B[col, k], multicast=broken)",
    arguments=_square,
    expected=lambda A, B, C: {"C": product(A, B.T)},
)
@pk.kernel(cluster=2)
def weights_of_each_block_for_all(A, B, C, *, broken: bool):
    """Broken: the blocks of a cluster lie along the columns of C, but both operands are shared."""
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    row, col = pk.grid(*C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.a, A[row, k], multicast=True)
                pk.load_async(s.b, B[col, k], multicast=broken)
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        pk.store(C[row, col], acc)


@planted(
    Kind.MULTICAST,
    "pk.load_async(s.a, A[row, k], multicast=True)",
    arguments=_square,
    expected=lambda A, B, C: {"C": product(A, B.T)},
)
@pk.kernel
def cluster_along_the_other_axis(A, B, C, *, broken: bool):
    """Broken: the cluster lies along the rows of C, whose blocks share B, but A is shared."""
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    tasks = pk.persistent(C.tiles(64, 64), cluster=2, cluster_axis=0 if broken else 1)
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with ring.fill() as s:
                    pk.load_async(s.a, A[row, k], multicast=True)
                    pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        for row, col in tasks:
            acc = pk.zeros(f32, 64, 64)
            for _ in pk.range(steps):
                with ring.drain() as s:
                    acc = pk.mma_ABt(s.a, s.b, acc)
            pk.store(C[row, col], acc)


@planted(
    Kind.MULTICAST,
    "pk.load_async(t, bias[0, col if broken else 0], multicast=True)",
    arguments=lambda rng: (
        whole(rng, (64, 128), f32),
        whole(rng, (64, 128), f32),
        empty((64, 128), f32),
    ),
    expected=lambda x, bias, y: {"y": x + np.tile(bias[:, :64], 2)},
)
@pk.kernel(cluster=2)
def bias_by_the_block(x, bias, y, *, broken: bool):
    """Broken: the same bias is meant for all blocks of a cluster, but each block names its own columns."""
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    row, col = pk.grid(*y.tiles(64, 64))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, bias[0, col if broken else 0], multicast=True)
    with pk.warpgroups(1):
        with ring.drain() as t:
            b = pk.load(t)
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) + b)


@planted(
    Kind.MULTICAST,
    "pk.load_async(s.x, x[row if broken else 0, k], multicast=True)",
    arguments=lambda rng: (
        whole(rng, (128, 128), bf16),
        whole(rng, (64, 128), bf16),
        empty((64, 128), f32),
    ),
    expected=lambda x, w, y: {"y": np.tile(product(x[:64], w.T), 2)},
)
@pk.kernel(cluster=2)
def rows_of_the_rank(x, w, y, *, broken: bool):
    """Broken: the blocks of a cluster name the rows by their column, though all multiply the first rows."""
    ring = pk.pipeline(2, x=pk.st(bf16, 64, 64), w=pk.st(bf16, 64, 64))
    _, row = pk.grid(*y.tiles(64, 64))
    steps = pk.cdiv(x.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.x, x[row if broken else 0, k], multicast=True)
                pk.load_async(s.w, w[0, k], multicast=True)
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.x, s.w, acc)
        pk.store(y[0, row], acc)
