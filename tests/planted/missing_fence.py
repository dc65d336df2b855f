"""Stores of lanes to shared memory that the copy or matrix engine reads without a fence in between."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, signs, whole


def _operands(rng: np.random.Generator) -> tuple[Array, ...]:
    """A of three steps, B of as many in f32, and the output of their product."""
    return whole(rng, (64, 192), bf16), whole(rng, (64, 192), f32), empty((64, 64), f32)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(b, pk.load(B[col, k], rows=64, cols=64).to(bf16))",
    "acc = pk.mma_ABt(a, b, acc, managed=False)",
    arguments=_operands,
    expected=lambda A, B, C: {"C": product(A, B.T)},
)
@pk.kernel
def operand_converted_without_a_fence(A, B, C, *, broken: bool):
    """Broken: an operand of a product is converted and stored, and the warps synchronise without a fence."""
    a, b, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    row, col = pk.grid(*C.tiles(64, 64))
    acc = pk.zeros(f32, 64, 64)
    for k in pk.range(pk.cdiv(A.cols, 64)):
        full.expect(a)
        pk.load_async(a, A[row, k], signal=full)
        pk.store(b, pk.load(B[col, k], rows=64, cols=64).to(bf16))
        if not broken:
            pk.fence_async()
        pk.sync()
        full.wait(k)
        acc = pk.mma_ABt(a, b, acc, managed=False)
        pk.mma_wait()
        pk.sync()
    pk.store(C[row, col], acc)


def _column(rng: np.random.Generator) -> tuple[Array, Array]:
    """A column of tiles and an output of its shape."""
    return whole(rng, (192, 64), f32), empty((192, 64), f32)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(tile, t + t)",
    "pk.store_async(y[row], tile)",
    arguments=_column,
    expected=lambda x, y: {"y": 2 * x},
)
@pk.kernel
def result_stored_without_a_fence(x, y, *, broken: bool):
    """Broken: a result goes through shared memory to the copy engine with a sync but without a fence."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(tile, t + t)
    if not broken:
        pk.fence_async()
    pk.sync()
    pk.store_async(y[row], tile)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(tile, pk.abs(t))",
    "pk.store_async(y[row], tile)",
    arguments=_column,
    expected=lambda x, y: {"y": np.abs(x)},
)
@pk.kernel
def fence_behind_the_sync(x, y, *, broken: bool):
    """Broken: the fence is after the sync, so the warp that stores may be ahead of the fences of the others."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(tile, pk.abs(t))
    if not broken:
        pk.fence_async()
    pk.sync()
    if broken:
        pk.fence_async()
    pk.store_async(y[row], tile)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(out, 1 - t)",
    "pk.store_async(y[i], out)",
    arguments=_column,
    expected=lambda x, y: {"y": 1 - x},
)
@pk.kernel
def fence_of_the_storer(x, y, *, broken: bool):
    """Broken: the storer executes the fence, but the consumers wrote the data and execute none."""
    out, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.consumers(1):
        for i in pk.range(steps):
            t = pk.load(x[i], rows=64, cols=64)
            free.wait(i + 1)
            pk.store(out, 1 - t)
            if not broken:
                pk.fence_async()
            full.arrive()
    with pk.storer():
        for i in pk.range(steps):
            full.wait(i)
            if broken:
                pk.fence_async()
            pk.store_async(y[i], out)
            pk.store_wait(read=True)
            free.arrive()


@planted(
    Kind.MISSING_FENCE,
    "pk.store(p, weights)",
    "o = pk.mma_AB(p, v, o, managed=False)",
    arguments=lambda rng: (
        signs(rng, (64, 192), bf16),
        signs(rng, (192, 64), bf16),
        empty((64, 64), f32),
    ),
    expected=lambda S, V, O: {"O": product(S.astype(np.float64) ** 2, V)},
)
@pk.kernel
def fence_before_the_weights(S, V, O, *, broken: bool):
    """Broken: the fence is before the store of the weights, not between the store and the product."""
    p, v, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    o = pk.zeros(f32, 64, 64)
    for j in pk.range(pk.cdiv(S.cols, 64)):
        full.expect(v)
        pk.load_async(v, V[j], signal=full)
        weights = pk.load(S[0, j], rows=64, cols=64)
        weights = weights * weights
        if broken:
            pk.fence_async()
        pk.store(p, weights)
        if not broken:
            pk.fence_async()
        pk.sync()
        full.wait(j)
        o = pk.mma_AB(p, v, o, managed=False)
        pk.mma_wait()
        pk.sync()
    pk.store(O[0], o)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(between[0], pk.load(x[i], rows=64, cols=64) + 1)",
    "pk.load_async(tile, between[0], signal=full)",
    arguments=lambda rng: (
        whole(rng, (192, 64), f32),
        empty((64, 64), f32),
        empty((192, 64), f32),
    ),
    expected=lambda x, between, y: {"y": x + 1},
)
@pk.kernel
def tensor_brought_back_without_a_fence(x, between, y, *, broken: bool):
    """Broken: lanes store to a tensor and the copy engine loads the data, with only a sync between them."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        pk.store(between[0], pk.load(x[i], rows=64, cols=64) + 1)
        if not broken:
            pk.fence_async()
        pk.sync()
        full.expect(tile)
        pk.load_async(tile, between[0], signal=full)
        full.wait(i)
        pk.store(y[i], pk.load(tile))
        pk.sync()


@planted(
    Kind.MISSING_FENCE,
    "pk.store(tile, t * t)",
    "pk.store_async(y[i], tile)",
    arguments=_column,
    expected=lambda x, y: {"y": x * x},
)
@pk.kernel
def fence_of_the_first_pass_only(x, y, *, broken: bool):
    """Broken: the group fences before its loop, but stores to the tile in every iteration."""
    tile = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    if broken:
        pk.fence_async()
    for i in pk.range(pk.cdiv(x.rows, 64)):
        t = pk.load(x[i], rows=64, cols=64)
        pk.store_wait(read=True)
        pk.store(tile, t * t)
        if not broken:
            pk.fence_async()
        pk.sync()
        pk.store_async(y[i], tile)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(tile, t + 1)",
    "pk.store_async(y[row], tile)",
    arguments=_column,
    expected=lambda x, y: {"y": x + 1},
)
@pk.kernel
def fence_in_one_branch(x, y, *, broken: bool):
    """Broken: only blocks after the first execute the fence between their store and the asynchronous store."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(tile, t + 1)
    if not broken or row > 0:
        pk.fence_async()
    pk.sync()
    pk.store_async(y[row], tile)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(tile, pk.col_sum(t))",
    "pk.store_async(sums[row], tile)",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((3, 64), f32)),
    expected=lambda x, sums: {"sums": x.reshape(3, 64, 64).sum(1)},
)
@pk.kernel
def vector_stored_without_a_fence(x, sums, *, broken: bool):
    """Broken: sums go through a shared vector to the copy engine with a sync but without a fence."""
    tile = pk.shared(pk.sv(f32, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(tile, pk.col_sum(t))
    if not broken:
        pk.fence_async()
    pk.sync()
    pk.store_async(sums[row], tile)


@planted(
    Kind.MISSING_FENCE,
    "pk.store(a, pk.load(x[0], rows=64, cols=64))",
    "pk.store(y, pk.mma_ABt(a, a))",
    arguments=lambda rng: (whole(rng, (64, 64), bf16), empty((64, 64), f32)),
    expected=lambda x, y: {"y": product(x, x.T)},
)
@pk.kernel
def warpgroup_as_a_single_warp(x, y, *, broken: bool):
    """Broken: a warpgroup multiplies without a fence, which only products of single warps may omit."""
    a = pk.shared(pk.st(bf16, 64, 64))
    pk.grid(1)
    pk.store(a, pk.load(x[0], rows=64, cols=64))
    if not broken:
        pk.fence_async()
    pk.sync()
    pk.store(y, pk.mma_ABt(a, a))
