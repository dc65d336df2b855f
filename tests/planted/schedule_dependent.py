"""Results that depend on the schedule: sums of floats in any order, and slots that are drawn as blocks come."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.emulate.finding import Kind, Level
from tests import tolerance
from tests.planted.core import Array, empty, planted, product, whole


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    return rng.standard_normal(shape).astype(dtype.numpy)


def _sum_of_products(exact: Array, left: Array, right: Array) -> Array:
    """The error of left @ right summed in f32 in any order."""
    magnitude = product(np.abs(left), np.abs(right))
    return tolerance.product(np.float32, exact, magnitude, left.shape[1])


@planted(
    Kind.SCHEDULE_DEPENDENT,
    'pk.store(C[0], acc, op="add")',
    arguments=lambda rng: (
        _normal(rng, (64, 256), bf16),
        _normal(rng, (64, 256), bf16),
        np.zeros((64, 64), np.float32),
        np.zeros(1, np.int32),
    ),
    expected=lambda A, B, C, turn: {"C": product(A, B.T)},
    level=Level.WARNING,
    bound=lambda exact, A, B, C, turn: _sum_of_products(exact, A, B.T),
)
@pk.kernel
def split_k_added_as_it_comes(A, B, C, turn, *, broken: bool):
    """Broken: the blocks of a split sum add their parts to the result in f32 in the order in which they end."""
    a, b, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    (part,) = pk.grid(pk.cdiv(A.cols, 64))
    full.expect(a, b)
    pk.load_async(a, A[0, part], signal=full)
    pk.load_async(b, B[0, part], signal=full)
    full.wait(0)
    acc = pk.mma_ABt(a, b)
    if broken:
        pk.store(C[0], acc, op="add")
    else:
        pk.wait(turn[0], part)
        pk.store(C[0], pk.load(C[0], rows=64, cols=64) + acc)
        pk.signal(turn[0], part + 1)


def _bias_bound(exact: Array, dy: Array, *_: Array) -> Array:
    """The error of sums in f32 that are rounded to bf16 once."""
    magnitude = np.abs(dy.astype(np.float64)).sum(axis=0)
    return tolerance.product(bf16.numpy, exact, magnitude, len(dy))


@planted(
    Kind.SCHEDULE_DEPENDENT,
    'pk.store(bias, sums.to(bf16), op="add")',
    arguments=lambda rng: (
        _normal(rng, (256, 64), bf16),
        empty((4, 64), f32),
        np.zeros(64, bf16.numpy),
        np.zeros(1, np.int32),
    ),
    expected=lambda dy, parts, bias, count: {"bias": dy.astype(np.float64).sum(axis=0)},
    level=Level.WARNING,
    also=(Kind.UNWRITTEN_MEMORY,),
    bound=_bias_bound,
)
@pk.kernel
def bias_gradient_added_in_bf16(dy, parts, bias, count, *, broken: bool):
    """Broken: each block adds the sums of its rows to the gradient of the bias, which is rounded at each addition."""
    (block,) = pk.grid(pk.cdiv(dy.rows, 64))
    sums = pk.col_sum(pk.load(dy[block], rows=64, cols=64).to(f32))
    if broken:
        pk.store(bias, sums.to(bf16), op="add")
    else:
        pk.store(parts[block], sums)
        pk.signal(count[0], 1, op="add")
        if block == 0:
            pk.wait(count[0], pk.cdiv(dy.rows, 64))
            total = pk.load(parts[0], cols=64, spread=pk.per_column)
            for i in pk.range(1, pk.cdiv(dy.rows, 64)):
                total = total + pk.load(parts[i], cols=64, spread=pk.per_column)
            pk.store(bias, total.to(bf16))


@planted(
    Kind.SCHEDULE_DEPENDENT,
    'pk.store_async(dQ[i], tile, op="add")',
    arguments=lambda rng: (
        _normal(rng, (192, 192), bf16),
        _normal(rng, (192, 64), bf16),
        np.zeros((192, 64), np.float32),
        np.zeros(3, np.int32),
    ),
    expected=lambda dS, K, dQ, turn: {"dQ": product(dS, K)},
    level=Level.WARNING,
    bound=lambda exact, dS, K, dQ, turn: _sum_of_products(exact, dS, K),
)
@pk.kernel
def query_gradient_of_all_keys(dS, K, dQ, turn, *, broken: bool):
    """Broken: the blocks of keys add their parts to the gradient of each query unordered."""
    ds, k, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    tile = pk.shared(pk.st(f32, 64, 64))
    (block,) = pk.grid(pk.cdiv(K.rows, 64))
    for i in pk.range(pk.cdiv(dS.rows, 64)):
        full.expect(ds, k)
        pk.load_async(ds, dS[i, block], signal=full)
        pk.load_async(k, K[block], signal=full)
        full.wait(i)
        dq = pk.mma_AB(ds, k, managed=False)
        pk.mma_wait()
        pk.publish(tile, dq)
        if not broken:
            pk.wait(turn[i], block)
        pk.store_async(dQ[i], tile, op="add")
        pk.store_wait()
        pk.signal(turn[i], block + 1)


@planted(
    Kind.SCHEDULE_DEPENDENT,
    'pk.signal(done[0], 1, op="add")',
    "count = pk.load(done[0])",
    arguments=lambda rng: (
        whole(rng, (256, 64), f32),
        empty((256, 64), f32),
        np.zeros(1, np.int32),
    ),
    expected=lambda x, y, done: {"y": 4 * x},
)
@pk.kernel
def count_read_while_it_grows(x, y, done, *, broken: bool):
    """Broken: each block scales its rows by the number of blocks that have arrived, but waits for only one."""
    (row,) = pk.grid(4)
    pk.signal(done[0], 1, op="add")
    pk.wait(done[0], 1 if broken else 4)
    count = pk.load(done[0])
    pk.store(y[row], pk.load(x[row], rows=64, cols=64) * count.to(f32))


@planted(
    Kind.SCHEDULE_DEPENDENT,
    'pk.scatter(table, place, t, op=None if broken else "max")',
    arguments=lambda rng: (
        whole(rng, (64, 16), int32),
        (np.arange(64) % 8).astype(np.int32),
        np.full((8, 16), -9, np.int32),
    ),
    expected=lambda x, places, table: {"table": x.reshape(8, 8, 16).max(0)},
    level=Level.WARNING,
)
@pk.kernel
def largest_of_equal_places(x, places, table, *, broken: bool):
    """Broken: several rows of a tile go to one row of the table, and any of them may stay."""
    pk.grid(1)
    place = pk.load(places[0], cols=64, spread=pk.per_row)
    t = pk.load(x[0], rows=64, cols=16)
    pk.scatter(table, place, t, op=None if broken else "max")


def _kept(x: Array, keeps: Array) -> Array:
    """The kept rows in their order, then zeros."""
    kept = x[keeps > 0]
    return np.concatenate([kept, np.zeros((len(x) - len(kept), 64))])


@planted(
    Kind.SCHEDULE_DEPENDENT,
    "pk.store(y[slot], pk.load(x[row], cols=64))",
    "slot = pk.atomic_add(count[0], 1)",
    arguments=lambda rng: (
        whole(rng, (24, 64), f32),
        rng.integers(0, 2, 24).astype(np.int32),
        np.zeros(1, np.int32),
        np.zeros((24, 64), np.float32),
    ),
    expected=lambda x, keeps, count, y: {"y": _kept(x, keeps)},
    level=Level.NOTE,
)
@pk.kernel
def rows_kept_as_their_blocks_come(x, keeps, count, y, *, broken: bool):
    """Broken: the rows that are kept should stay in order, but each block draws the next slot from a counter."""
    (row,) = pk.grid(x.rows)
    if pk.load(keeps[row]) > 0:
        if broken:
            slot = pk.atomic_add(count[0], 1)
        else:
            slot = 0
            for before in pk.range(row):
                slot = slot + pk.load(keeps[before])
        pk.store(y[slot], pk.load(x[row], cols=64))
