"""Memory that is written while a product or a copy still reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, signs, whole

# A group that runs ahead of another shows in more ways than one.
RUNS_AHEAD = (
    Kind.UNLANDED_COPY,
    Kind.RACE,
    Kind.DEADLOCK,
    Kind.BARRIER_COUNT,
    Kind.FAULT,
)


def _matrix(rng: np.random.Generator) -> tuple[Array, Array]:
    """64 rows of five steps, and the output of their products with each other."""
    return whole(rng, (64, 320), bf16), empty((64, 64), f32)


def gram_matrix(X: Array, G: Array) -> dict[str, Any]:
    """X X^T."""
    return {"G": product(X, X.T)}


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.load_async(x[i % 2], X[0, i], signal=full[i % 2])",
    "acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)",
    arguments=_matrix,
    expected=gram_matrix,
)
@pk.kernel
def stage_free_before_its_product_is_done(X, G, *, broken: bool):
    """Broken: the consumer releases a stage before it waits for the product that reads the stage."""
    x = pk.shared(pk.st(bf16, 64, 64), count=2)
    full, free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            free[i % 2].wait(i // 2 + 1)
            full[i % 2].expect(x[i % 2])
            pk.load_async(x[i % 2], X[0, i], signal=full[i % 2])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)
            if not broken:
                pk.mma_wait()
            free[i % 2].arrive()
            if broken:
                pk.mma_wait()
        pk.store(G[0], acc)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.load_async(x[i % 3], X[0, i], signal=full[i % 3])",
    "acc = pk.mma_ABt(x[i % 3], x[i % 3], acc, managed=False)",
    arguments=_matrix,
    expected=gram_matrix,
)
@pk.kernel
def stage_of_the_product_that_is_left(X, G, *, broken: bool):
    """Broken: after the wait, the newer of two products may still run, and its stage is released."""
    x = pk.shared(pk.st(bf16, 64, 64), count=3)
    full, free = pk.semaphore(1, count=3), pk.semaphore(1, count=3)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            free[i % 3].wait(i // 3 + 1)
            full[i % 3].expect(x[i % 3])
            pk.load_async(x[i % 3], X[0, i], signal=full[i % 3])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % 3].wait(i // 3)
            acc = pk.mma_ABt(x[i % 3], x[i % 3], acc, managed=False)
            pk.mma_wait(1)
            if broken:
                free[i % 3].arrive()
            elif i > 0:
                free[(i - 1) % 3].arrive()
        pk.mma_wait()
        pk.store(G[0], acc)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.load_async(x[i % 2], X[0, i], signal=full[i % 2])",
    "acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)",
    arguments=_matrix,
    expected=gram_matrix,
    also=RUNS_AHEAD,
)
@pk.kernel
def producer_a_lap_ahead(X, G, *, broken: bool):
    """Broken: after the first round the producer waits for the wrong phase, which lets it pass a round too early."""
    x = pk.shared(pk.st(bf16, 64, 64), count=2)
    full, free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            if i >= 2:
                free[i % 2].wait(i // 2 if broken else i // 2 - 1)
            full[i % 2].expect(x[i % 2])
            pk.load_async(x[i % 2], X[0, i], signal=full[i % 2])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)
            pk.mma_wait()
            free[i % 2].arrive()
        pk.store(G[0], acc)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.store(x[i % 2], half)",
    "acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)",
    arguments=lambda rng: (whole(rng, (64, 192), f32), empty((64, 64), f32)),
    expected=gram_matrix,
    also=(Kind.RACE, Kind.BARRIER_COUNT, Kind.DEADLOCK),
)
@pk.kernel
def converter_a_pass_ahead(X, G, *, broken: bool):
    """Broken: the group that converts to bf16 waits for the product three passes before, but there are two stages."""
    back = 3 if broken else 2
    raw, raw_full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    x = pk.shared(pk.st(bf16, 64, 64), count=2)
    full, free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    with pk.warpgroups(1):
        for i in pk.range(steps):
            raw_full.expect(raw)
            pk.load_async(raw, X[0, i], signal=raw_full)
            raw_full.wait(i)
            half = pk.load(raw).to(bf16)
            if i >= back:
                free[(i - back) % 2].wait((i - back) // 2)
            pk.store(x[i % 2], half)
            pk.fence_async()
            full[i % 2].arrive()
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)
            pk.mma_wait()
            free[i % 2].arrive()
        pk.store(G[0], acc)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.load_async(x[(i + 1) % 2], X[0, i + 1], signal=full[(i + 1) % 2])",
    "acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)",
    arguments=_matrix,
    expected=gram_matrix,
)
@pk.kernel
def prefetch_over_the_product_before(X, G, *, broken: bool):
    """Broken: the next step is copied into the tile that the product of the previous step still reads."""
    x, full = pk.shared(pk.st(bf16, 64, 64), count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    acc = pk.zeros(f32, 64, 64)
    full[0].expect(x[0])
    pk.load_async(x[0], X[0, 0], signal=full[0])
    for i in pk.range(steps):
        full[i % 2].wait(i // 2)
        acc = pk.mma_ABt(x[i % 2], x[i % 2], acc, managed=False)
        if not broken:
            pk.mma_wait(1)
        if i + 1 < steps:
            full[(i + 1) % 2].expect(x[(i + 1) % 2])
            pk.load_async(x[(i + 1) % 2], X[0, i + 1], signal=full[(i + 1) % 2])
        if broken:
            pk.mma_wait(1)
    pk.mma_wait()
    pk.store(G[0], acc)


def _column(rng: np.random.Generator) -> tuple[Array, Array]:
    """A column of tiles and an output of its shape."""
    return whole(rng, (320, 64), f32), empty((320, 64), f32)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.store(out, t * t)",
    "pk.store_async(y[i], out)",
    arguments=_column,
    expected=lambda x, y: {"y": x * x},
)
@pk.kernel
def output_free_while_it_is_stored(x, y, *, broken: bool):
    """Broken: the storer releases the output tile after it has started the store, which still has to read the tile."""
    out, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.consumers(1):
        for i in pk.range(steps):
            t = pk.load(x[i], rows=64, cols=64)
            free.wait(i + 1)
            pk.store(out, t * t)
            pk.fence_async()
            full.arrive()
    with pk.storer():
        for i in pk.range(steps):
            full.wait(i)
            pk.store_async(y[i], out)
            if not broken:
                pk.store_wait(read=True)
            free.arrive()


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.store(tile, pk.relu(t))",
    "pk.store_async(y[i], tile)",
    arguments=_column,
    expected=lambda x, y: {"y": np.maximum(x, 0)},
)
@pk.kernel
def next_result_over_the_one_before(x, y, *, broken: bool):
    """Broken: the next result overwrites the tile that the asynchronous store of the previous result still reads."""
    tile = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        t = pk.load(x[i], rows=64, cols=64)
        if not broken:
            pk.store_wait(read=True)
        pk.store(tile, pk.relu(t))
        pk.fence_async()
        pk.sync()
        pk.store_async(y[i], tile)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.store(tiles[i % 2], t + 1)",
    "pk.store_async(y[i], tiles[i % 2])",
    arguments=_column,
    expected=lambda x, y: {"y": x + 1},
)
@pk.kernel
def one_store_too_many_pending(x, y, *, broken: bool):
    """Broken: two stores may still read their tiles when one of the tiles is written again."""
    tiles = pk.shared(pk.st(f32, 64, 64), count=2)
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        t = pk.load(x[i], rows=64, cols=64)
        pk.store_wait(2 if broken else 1, read=True)
        pk.store(tiles[i % 2], t + 1)
        pk.fence_async()
        pk.sync()
        pk.store_async(y[i], tiles[i % 2])


def _attention(rng: np.random.Generator) -> tuple[Array, ...]:
    """Scores of four blocks of keys, the values, and the output."""
    return signs(rng, (64, 256), bf16), signs(rng, (256, 64), bf16), empty((64, 64), f32)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "pk.store(p, weights)",
    "o = pk.mma_AB(p, v, o, managed=False)",
    arguments=_attention,
    expected=lambda S, V, O: {"O": product(np.maximum(S.astype(np.float64), 0), V)},
)
@pk.kernel
def weights_over_those_in_use(S, V, O, *, broken: bool):
    """Broken: the weights of the next block of keys overwrite those that the product in flight still reads."""
    p, values = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64), count=2)
    pk.grid(1)
    o = pk.zeros(f32, 64, 64)
    for j in pk.range(pk.cdiv(S.cols, 64)):
        weights = pk.relu(pk.load(S[0, j], rows=64, cols=64))
        v = values[j % 2]
        pk.store(
            v, pk.load(V[j], rows=64, cols=64)
        )  # the other product's values lie in the other tile
        if not broken:
            pk.mma_wait()
            pk.sync()
        pk.store(p, weights)
        if broken:
            pk.mma_wait()
        pk.fence_async()
        pk.sync()
        o = pk.mma_AB(p, v, o, managed=False)
    pk.mma_wait()
    pk.store(O[0], o)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "acc = pk.mma_ABt(s.a.tiles(64, 64)[group], s.b)",
    "pk.store(t.tiles(64, 64)[group], acc)",
    arguments=lambda rng: (
        whole(rng, (128, 64), bf16),
        whole(rng, (64, 64), bf16),
        empty((128, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=(Kind.RACE,),
)
@pk.kernel
def output_over_the_operand_of_both(A, B, C, *, broken: bool):
    """Broken: the output reuses the operands' memory after one group's product; the other group still reads B."""
    inputs = pk.pipeline(1, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 64, 64))
    outputs = pk.pipeline(1, pk.st(f32, 128, 64), reuse=inputs if broken else None)
    pk.grid(1)
    with pk.producer(), inputs.fill() as s:
        pk.load_async(s.a, A)
        pk.load_async(s.b, B)
    with pk.consumers(2) as group:
        with inputs.drain() as s:
            acc = pk.mma_ABt(s.a.tiles(64, 64)[group], s.b)
        with outputs.fill() as t:
            pk.store(t.tiles(64, 64)[group], acc)
    with pk.storer(), outputs.drain() as t:
        pk.store_async(C, t)


@planted(
    Kind.OVERWRITTEN_IN_USE,
    "acc = pk.mma_ABt(a, a, acc, managed=False)",
    "pk.store(a, pk.load(X[0, k], rows=64, cols=64))",
    arguments=_matrix,
    expected=gram_matrix,
)
@pk.kernel
def next_step_stored_over_the_operand(X, G, *, broken: bool):
    """Broken: the group stores the next step after a sync, but a sync does not wait for the product."""
    a = pk.shared(pk.st(bf16, 64, 64))
    pk.grid(1)
    acc = pk.zeros(f32, 64, 64)
    for k in pk.range(pk.cdiv(X.cols, 64)):
        pk.store(a, pk.load(X[0, k], rows=64, cols=64))
        pk.fence_async()
        pk.sync()
        acc = pk.mma_ABt(a, a, acc, managed=False)
        if not broken:
            pk.mma_wait()
        pk.sync()
    pk.mma_wait()
    pk.store(G[0], acc)
