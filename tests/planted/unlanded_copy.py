"""Memory that is read before the copy into it is known to have landed."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, signs, whole

# A phase that is passed too early lets its group run ahead of the others, with what follows from that.
RUNS_AHEAD = (
    Kind.OVERWRITTEN_IN_USE,
    Kind.RACE,
    Kind.DEADLOCK,
    Kind.BARRIER_COUNT,
    Kind.FAULT,
)


def _column(rng: np.random.Generator) -> tuple[Array, Array]:
    """A column of tiles and an output of its shape."""
    return whole(rng, (320, 64), f32), empty((320, 64), f32)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(tile, x[row], signal=full)",
    "t = pk.load(tile)",
    arguments=_column,
    expected=lambda x, y: {"y": 2 * x},
    also=(Kind.BARRIER_COUNT,),
)
@pk.kernel
def copy_nobody_waits_for(x, y, *, broken: bool):
    """Broken: no group waits for the copy whose tile is doubled."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    full.expect(tile)
    pk.load_async(tile, x[row], signal=full)
    if not broken:
        full.wait(0)
    t = pk.load(tile)
    pk.store(y[row], t + t)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(tile, x[row, i], signal=full)",
    "total = total + pk.load(tile)",
    arguments=lambda rng: (whole(rng, (128, 192), f32), empty((128,), f32)),
    expected=lambda x, sums: {"sums": x.sum(axis=1)},
)
@pk.kernel
def sum_before_its_wait(x, sums, *, broken: bool):
    """Broken: the sum of a row reads a tile before it waits for the tile."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    total = pk.zeros(f32, 64, 64)
    for i in pk.range(pk.cdiv(x.cols, 64)):
        full.expect(tile)
        pk.load_async(tile, x[row, i], signal=full)
        if not broken:
            full.wait(i)
        total = total + pk.load(tile)
        if broken:
            full.wait(i)
    pk.store(sums[row], pk.row_sum(total))


def _attention(rng: np.random.Generator) -> tuple[Array, ...]:
    """Queries, keys and values of one head, and the output."""
    q, k, v = (signs(rng, (rows, 64), bf16) for rows in (128, 192, 192))
    return q, k, v, empty((128, 64), f32)


def linear_attention(Q: Array, K: Array, V: Array, O: Array) -> dict[str, Any]:
    """relu(Q K^T) V."""
    return {"O": product(np.maximum(product(Q, K.T), 0), V)}


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(v, V[j], signal=v_full)",
    "o = pk.mma_AB(p, v, o, managed=False)",
    arguments=_attention,
    expected=linear_attention,
    also=(
        Kind.BARRIER_COUNT,
        Kind.OVERWRITTEN_IN_USE,
        Kind.UNWRITTEN_MEMORY,
        Kind.FAULT,
    ),
)
@pk.kernel
def values_behind_the_wait_for_keys(Q, K, V, O, *, broken: bool):
    """Broken: the product with the values waits for the semaphore of the keys, not of the values."""
    tile = pk.st(bf16, 64, 64)
    q, k, v = pk.shared(tile), pk.shared(tile), pk.shared(tile)
    q_full, k_full = pk.semaphore(1), pk.semaphore(1)
    v_full, free = pk.semaphore(1), pk.semaphore(1)
    (row,) = pk.grid(pk.cdiv(Q.rows, 64))
    steps = pk.cdiv(K.rows, 64)
    with pk.producer():
        q_full.expect(q)
        pk.load_async(q, Q[row], signal=q_full)
        for j in pk.range(steps):
            free.wait(j + 1)
            k_full.expect(k)
            pk.load_async(k, K[j], signal=k_full)
            v_full.expect(v)
            pk.load_async(v, V[j], signal=v_full)
    with pk.consumers(1):
        o = pk.zeros(f32, 64, 64)
        q_full.wait(0)
        for j in pk.range(steps):
            k_full.wait(j)
            s = pk.mma_ABt(q, k, managed=False)
            pk.mma_wait()
            p = pk.relu(s).to(bf16)
            (k_full if broken else v_full).wait(j)
            o = pk.mma_AB(p, v, o, managed=False)
            pk.mma_wait()
            free.arrive()
        pk.store(O[row], o)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(tiles[i % 2], x[i], signal=full[i % 2])",
    "t = pk.load(tiles[i % 2])",
    arguments=_column,
    expected=lambda x, y: {"y": -x},
    also=(*RUNS_AHEAD, Kind.UNWRITTEN_MEMORY),
)
@pk.kernel
def phase_of_the_pass(x, y, *, broken: bool):
    """Broken: the reader of a ring of two waits for phase i instead of i // 2."""
    tiles = pk.shared(pk.st(f32, 64, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(i // 2 + 1)
            full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[i], signal=full[i % 2])
    with pk.consumers(1):
        for i in pk.range(steps):
            full[i % 2].wait(i if broken else i // 2)
            t = pk.load(tiles[i % 2])
            empty[i % 2].arrive()
            pk.store(y[i], -t)


def _operands(rng: np.random.Generator) -> tuple[Array, ...]:
    """A of 64 x 448, B of 64 x 448 and the output of their product."""
    return whole(rng, (64, 448), bf16), whole(rng, (64, 448), bf16), empty((64, 64), f32)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(a[k % 3], A[row, k], signal=full[k % 3])",
    "acc = pk.mma_ABt(a[k % 3], b[k % 3], acc, managed=False)",
    arguments=_operands,
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=RUNS_AHEAD,
)
@pk.kernel
def phase_that_does_not_turn(A, B, C, *, broken: bool):
    """Broken: the consumer waits for phase 0 even after the ring of three has wrapped."""
    a, b = pk.shared(pk.st(bf16, 64, 64), count=3), pk.shared(pk.st(bf16, 64, 64), count=3)
    full, empty = pk.semaphore(1, count=3), pk.semaphore(1, count=3)
    row, col = pk.grid(*C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            empty[k % 3].wait(k // 3 + 1)
            full[k % 3].expect(a[k % 3], b[k % 3])
            pk.load_async(a[k % 3], A[row, k], signal=full[k % 3])
            pk.load_async(b[k % 3], B[col, k], signal=full[k % 3])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for k in pk.range(steps):
            full[k % 3].wait(0 if broken else k // 3)
            acc = pk.mma_ABt(a[k % 3], b[k % 3], acc, managed=False)
            pk.mma_wait()
            empty[k % 3].arrive()
        pk.store(C[row, col], acc)


def _persistent(rng: np.random.Generator) -> tuple[Array, ...]:
    """A and B of two steps each, and more tiles of C than there are blocks."""
    return whole(rng, (256, 128), bf16), whole(rng, (256, 128), bf16), empty((256, 256), f32)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(a[n % 2], A[row, k], signal=full[n % 2])",
    "acc = pk.mma_ABt(a[n % 2], b[n % 2], acc, managed=False)",
    arguments=_persistent,
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=RUNS_AHEAD,
)
@pk.kernel
def phase_begun_anew_for_each_task(A, B, C, *, broken: bool):
    """Broken: the consumers count their passes from 0 for each task, but the producer counts over all tasks."""
    a, b = pk.shared(pk.st(bf16, 64, 64), count=2), pk.shared(pk.st(bf16, 64, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    tasks = pk.persistent(C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        n = 0
        for row, col in tasks:
            for k in pk.range(steps):
                empty[n % 2].wait(n // 2 + 1)
                full[n % 2].expect(a[n % 2], b[n % 2])
                pk.load_async(a[n % 2], A[row, k], signal=full[n % 2])
                pk.load_async(b[n % 2], B[col, k], signal=full[n % 2])
                n = n + 1
    with pk.consumers(1):
        n = 0
        for row, col in tasks:
            if broken:
                n = 0
            acc = pk.zeros(f32, 64, 64)
            for _ in pk.range(steps):
                full[n % 2].wait(n // 2)
                acc = pk.mma_ABt(a[n % 2], b[n % 2], acc, managed=False)
                pk.mma_wait()
                empty[n % 2].arrive()
                n = n + 1
            pk.store(C[row, col], acc)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(scale, scales[row], signal=scale_full)",
    "factor = pk.load(scale, spread=pk.per_column)",
    arguments=lambda rng: (
        whole(rng, (192, 64), f32),
        whole(rng, (3, 64), f32),
        empty((192, 64), f32),
    ),
    expected=lambda x, scales, y: {"y": x * np.repeat(scales, 64, axis=0)},
    also=(Kind.BARRIER_COUNT,),
)
@pk.kernel
def scale_behind_the_wait_for_its_tile(x, scales, y, *, broken: bool):
    """Broken: the scales of a tile are read after the tile has landed, but they are copied separately."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    scale, scale_full = pk.shared(pk.sv(f32, 64)), pk.semaphore(1)
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    full.expect(tile)
    pk.load_async(tile, x[row], signal=full)
    scale_full.expect(scale)
    pk.load_async(scale, scales[row], signal=scale_full)
    full.wait(0)
    if not broken:
        scale_full.wait(0)
    factor = pk.load(scale, spread=pk.per_column)
    pk.store(y[row], pk.load(tile) * factor)


@planted(
    Kind.UNLANDED_COPY,
    "pk.load_async(tile, x[i], signal=full)",
    "t = pk.load(tile)",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {"y": x * 4},
    also=(Kind.BARRIER_COUNT, Kind.DEADLOCK, Kind.UNWRITTEN_MEMORY),
)
@pk.kernel
def waited_for_in_the_first_pass_only(x, y, *, broken: bool):
    """Broken: the group waits for the first copy, but not for those of later iterations."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        full.expect(tile)
        pk.load_async(tile, x[i], signal=full)
        full.wait(0 if broken else i)
        t = pk.load(tile)
        pk.sync()
        pk.store(y[i], t * 4)
