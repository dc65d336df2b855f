"""Right kernels that resemble faulty ones: partial updates, single warps, flags, tiles handed over, work in place."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int32
from tests.emulate.races.right import Made, nothing, right, whole


def _appending(rng: np.random.Generator) -> Made:
    x, cache, lengths = whole(rng, 4, 64), whole(rng, 4, 9, 64), np.array([0, 8, 3, 5], np.int32)
    after = cache.copy()
    after[np.arange(4), lengths] = x
    return (x, lengths, cache), {2: after}


@right(_appending)
@pk.kernel(warps=1)
def appended_to_caches_of_many_lengths(x, lengths, cache):
    (row,) = pk.grid(x.rows)
    pk.store(cache[row, pk.load(lengths[row]), 0], pk.load(x[row], cols=64))


def _counting(rng: np.random.Generator) -> Made:
    places = rng.integers(0, 5, 192).astype(np.int32)
    counts = np.full((9, 16), 7, np.int32)
    after = counts.copy()
    np.add.at(after, places, 1)
    return (places, counts), {1: after}


@right(_counting)
@pk.kernel
def histogram_over_counts_of_before(places, counts):
    (block,) = pk.grid(3)
    index = pk.load(places[block], cols=64, spread=pk.per_row)
    pk.scatter(counts, index, pk.full(int32, 1, 64, 16), op="add")


def _rotating(rng: np.random.Generator) -> Made:
    x = whole(rng, 100, 128)
    after = x.copy()
    after[:, :64] *= -1
    return (x,), {0: after}


@right(_rotating)
@pk.kernel(inplace=True)
def half_of_the_columns_in_place(x):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(x[row, 0], -pk.load(x[row, 0], rows=64, cols=64))


def _squaring(rng: np.random.Generator) -> Made:
    x = whole(rng, 16, 192, dtype=bf16)
    return (x, nothing(16, 16)), {1: x.astype(np.float32) @ x.astype(np.float32).T}


@right(_squaring)
@pk.kernel(warps=1)
def steps_of_a_single_warp_by_hand(x, y):
    tile = pk.shared(pk.st(bf16, 16, 64))
    pk.grid(1)
    acc = pk.zeros(f32, 16, 16)
    for k in pk.range(pk.cdiv(x.cols, 64)):
        pk.store(tile, pk.load(x[0, k], rows=16, cols=64))
        pk.sync()
        acc = pk.mma_ABt(tile, tile, acc, managed=False)
        pk.sync()
    pk.mma_wait()
    pk.store(y, acc)


def _by_groups(rng: np.random.Generator) -> Made:
    x = whole(rng, 64, 64, dtype=bf16)
    parts = x.astype(np.float32).reshape(4, 16, 64)
    return (x, nothing(64, 16)), {1: (parts @ parts.transpose(0, 2, 1)).reshape(64, 16)}


@right(_by_groups)
@pk.kernel
def products_of_four_single_warps(x, y):
    tile = pk.shared(pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.warps(4) as w:
        own = tile.tiles(16, 64)[w]
        pk.store(own, pk.load(x[w], rows=16, cols=64))
        pk.sync()
        pk.store(y[w], pk.mma_ABt(own, own))


def _chained(rng: np.random.Generator) -> Made:
    x = whole(rng, 192, 64)
    sums = x.reshape(3, 64, 64).cumsum(0).reshape(192, 64)
    return (x, nothing(192, 64), np.zeros(3, np.int32)), {1: sums}


@right(_chained)
@pk.kernel
def blocks_in_a_chain_of_flags(x, y, flags):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    if row > 0:
        pk.wait(flags[row - 1], 1)
        t = t + pk.load(y[row - 1], rows=64, cols=64)
    pk.store(y[row], t)
    pk.signal(flags[row], 1)


def _handed(rng: np.random.Generator) -> Made:
    x = whole(rng, 192, 64)
    return (x, nothing(192, 64)), {1: 2 * x + 1}


@right(_handed)
@pk.kernel
def tile_handed_over_by_semaphores(x, y):
    tile, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.warpgroups(1):
        for i in pk.range(steps):
            t = pk.load(x[i], rows=64, cols=64)
            free.wait(i + 1)
            pk.store(tile, 2 * t)
            full.arrive()
    with pk.warpgroups(1):
        for i in pk.range(steps):
            full.wait(i)
            t = pk.load(tile)
            free.arrive()
            pk.store(y[i], t + 1)


def _wrapping(rng: np.random.Generator) -> Made:
    x = rng.integers(2**30, 2**31 - 1, (64, 64)).astype(np.int32)
    return (x, np.zeros((64, 64), np.int32)), {1: (x.astype(np.int64) * 5).astype(np.int32)}


@right(_wrapping)
@pk.kernel
def hash_that_wraps(x, y):
    pk.grid(1)
    t = pk.load(x, rows=64, cols=64)
    pk.store(y, t * 5)


def _masking(rng: np.random.Generator) -> Made:
    x, active = whole(rng, 256, 64), np.array([1, 0, 0, 1], np.int32)
    y = whole(rng, 256, 64)
    return (x, active, y), {2: np.where(np.repeat(active, 64)[:, None] > 0, x, y)}


@right(_masking)
@pk.kernel
def rows_behind_a_mask(x, active, y):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    if pk.load(active[row]) > 0:
        pk.store(y[row], pk.load(x[row], rows=64, cols=64))


def _merging(rng: np.random.Generator) -> Made:
    x = whole(rng, 128, 64, dtype=int32)
    return (x, np.full((64, 64), -9, np.int32)), {1: x.reshape(2, 64, 64).max(0)}


@right(_merging)
@pk.kernel
def largest_of_all_blocks(x, y):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(y, pk.load(x[row], rows=64, cols=64), op="max")


def _sharing(rng: np.random.Generator) -> Made:
    x, b = whole(rng, 64, 128), whole(rng, 64, 64)
    return (x, b, nothing(64, 128)), {2: x + np.tile(b, 2)}


@right(_sharing)
@pk.kernel(cluster=2)
def one_bias_for_a_cluster(x, bias, y):
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    row, col = pk.grid(*y.tiles(64, 64))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, bias[row, 0], multicast=True)
    with pk.warpgroups(1):
        with ring.drain() as t:
            b = pk.load(t)
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) + b)


def _doubling(rng: np.random.Generator) -> Made:
    x = whole(rng, 100, 64)
    return (x,), {0: 2 * x}


@right(_doubling)
@pk.kernel(inplace=True)
def tiles_through_a_ring_in_place(x):
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[row])
    with pk.warpgroups(1):
        with ring.drain() as t:
            r = pk.load(t)
        pk.store(x[row], 2 * r)


def _gathering(rng: np.random.Generator) -> Made:
    x, order = whole(rng, 64, 16), rng.permutation(64).astype(np.int32)
    after = np.empty_like(x)
    after[order] = x
    return (x, order, nothing(64, 16)), {2: after}


@right(_gathering)
@pk.kernel
def permutation_scattered_without_op(x, order, y):
    pk.grid(1)
    index = pk.load(order[0], cols=64, spread=pk.per_row)
    pk.scatter(y, index, pk.load(x, rows=64, cols=16))


def _inserting(rng: np.random.Generator) -> Made:
    x, y = whole(rng, 64, 64), whole(rng, 200, 64)
    after = y.copy()
    after[70:134] = x
    return (x, 70, y), {2: after}


@right(_inserting)
@pk.kernel
def rows_inserted_at_an_argument(x, start, y):
    pk.grid(1)
    pk.store(y.window(0, start, start + 64)[0], pk.load(x, rows=64, cols=64))


def _summing(rng: np.random.Generator) -> Made:
    x = whole(rng, 128, 64)
    return (x, nothing(64, 64)), {1: x[:64] + x[64:]}


@right(_summing)
@pk.kernel
def halves_that_meet_at_a_semaphore(x, y):
    part, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.warpgroups(2) as w:
        t = pk.load(x[w], rows=64, cols=64)
        if w == 1:
            pk.store(part, t)
            full.arrive()
        else:
            full.wait(0)
            pk.store(y, t + pk.load(part))
