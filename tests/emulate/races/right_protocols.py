"""Right kernels that resemble faulty ones: rings of two producers, work counters, scans, tickets, turns."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int8, int32
from tests.emulate.races.right import Made, nothing, right, whole


def _dequantised(rng: np.random.Generator) -> Made:
    a, b = whole(rng, 64, 300, dtype=bf16), whole(rng, 64, 300, dtype=int8)
    product = a.astype(np.float32) @ b.astype(np.float32).T
    return (a, b, nothing(64, 64)), {2: product}


@right(_dequantised)
@pk.kernel
def stages_filled_by_lanes_and_by_the_copy_engine(a, b, y):
    """Both fill one stage: the copy engine brings a's tile, and a warpgroup converts b's tile to bf16."""
    left = pk.shared(pk.st(bf16, 64, 64), count=2)
    converted = pk.shared(pk.st(bf16, 64, 64), count=2)
    full, free = pk.semaphore(2, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = pk.cdiv(a.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            free[i % 2].wait(i // 2 + 1)
            full[i % 2].expect(left[i % 2])
            pk.load_async(left[i % 2], a[0, i], signal=full[i % 2])
    with pk.warpgroups(1):
        for i in pk.range(steps):
            t = pk.load(b[0, i], rows=64, cols=64)
            free[i % 2].wait(i // 2 + 1)
            pk.store(converted[i % 2], t.to(bf16))
            pk.fence_async()
            full[i % 2].arrive()
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            acc = pk.mma_ABt(left[i % 2], converted[i % 2], acc, managed=False)
            pk.mma_wait(1)
            if i > 0:
                free[(i - 1) % 2].arrive()
        pk.mma_wait()
        pk.store(y, acc)


def _ticketed(rng: np.random.Generator) -> Made:
    x = whole(rng, 64 * 7 - 20, 64)
    return (x, nothing(*x.shape), np.zeros(1, np.int32)), {1: 2 * x}


@right(_ticketed)
@pk.kernel
def tasks_handed_out_by_a_counter(x, y, counter):
    """The producer draws tasks and passes on their numbers; a number past the end stops the consumers."""
    numbers, tiles = pk.pipeline(2, pk.sv(int32, 16)), pk.pipeline(2, pk.st(f32, 64, 64))
    pk.grid(3)
    tasks = pk.cdiv(x.rows, 64)
    with pk.producer():
        task = 0
        while task < tasks:
            task = pk.atomic_add(counter[0], 1)
            with numbers.fill() as s:
                pk.store(s, pk.full(int32, task, 16))
            if task < tasks:
                with tiles.fill() as s:
                    pk.load_async(s, x[task])
    with pk.warpgroups(1):
        task = 0
        while task < tasks:
            with numbers.drain() as s:
                task = pk.max(pk.load(s))
            if task < tasks:
                with tiles.drain() as s:
                    t = pk.load(s)
                pk.store(y[task], 2 * t)


AGGREGATE, PREFIX = 1, 2


def _scanned(rng: np.random.Generator) -> Made:
    x = rng.integers(-9, 10, 64 * 6).astype(np.int32)
    sums, ticket, state = np.zeros((6, 2), np.int32), np.zeros(1, np.int32), np.zeros(6, np.int32)
    return (x, np.full(64 * 6, -77, np.int32), sums, state, ticket), {1: x.cumsum()}


@right(_scanned)
@pk.kernel
def scan_that_looks_back(x, y, sums, state, ticket):
    """A block adds the sums of the parts before its own until it finds one whose sum covers all parts before it."""
    pk.grid(pk.cdiv(x.cols, 64))
    part = pk.atomic_add(ticket[0], 1)  # those of smaller tickets have started
    t = pk.load(x[part], cols=64)
    own = pk.sum(t)
    pk.store(sums[part, 0], own)
    pk.signal(state[part], AGGREGATE)
    before, at = 0, part - 1
    while at >= 0:
        found = pk.atomic_load(state[at])
        if found == PREFIX:
            before = before + pk.load(sums[at, 1])
            at = -1
        elif found == AGGREGATE:
            before = before + pk.load(sums[at, 0])
            at = at - 1
    pk.store(sums[part, 1], before + own)
    pk.signal(state[part], PREFIX)
    pk.store(y[part], pk.cumsum(t) + before)


def _cached(rng: np.random.Generator) -> Made:
    new, cache = whole(rng, 16, 64, dtype=bf16), whole(rng, 3, 64, 64, dtype=bf16)
    lengths = np.array([0, 40, 9], np.int32)
    after = cache.copy()
    for b, n in enumerate(lengths):
        after[b, n] = new[b]
    q = whole(rng, 3, 64, 64, dtype=bf16)
    scores = q.astype(np.float32) @ after.astype(np.float32).transpose(0, 2, 1)
    return (new, lengths, q, cache, nothing(3, 64, 64)), {3: after, 4: scores}


@right(_cached)
@pk.kernel
def key_appended_and_fetched_with_the_others(new, lengths, q, cache, scores):
    """Lanes append a key to the cache of a sequence, and the copy engine then fetches it with the older keys."""
    keys, queries, full = (
        pk.shared(pk.st(bf16, 64, 64)),
        pk.shared(pk.st(bf16, 64, 64)),
        pk.semaphore(1),
    )
    (b,) = pk.grid(lengths.cols)
    pk.store(cache[b, pk.load(lengths[b]), 0], pk.load(new[b], cols=64))
    pk.fence_async()
    pk.sync()
    full.expect(keys, queries)
    pk.load_async(keys, cache[b, 0, 0], signal=full)
    pk.load_async(queries, q[b, 0, 0], signal=full)
    full.wait(0)
    pk.store(scores[b, 0, 0], pk.mma_ABt(queries, keys))


def _closed(rng: np.random.Generator) -> Made:
    x = whole(rng, 64, 64 * 5)
    total = x.reshape(64, 5, 64).sum(1)
    return (x, nothing(5 * 64, 64), nothing(64, 64), np.zeros(1, np.int32)), {
        2: total,
        3: np.zeros(1),
    }


@right(_closed)
@pk.kernel
def last_block_adds_what_the_copy_engine_stored(x, parts, y, count):
    """Parts leave by asynchronous stores; the last block to count itself adds them in order and clears the count."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (part,) = pk.grid(pk.cdiv(x.cols, 64))
    pk.publish(tile, pk.load(x[0, part], rows=64, cols=64))
    pk.store_async(parts[part], tile)
    pk.store_wait()
    if pk.atomic_add(count[0], 1) == pk.cdiv(x.cols, 64) - 1:
        total = pk.zeros(f32, 64, 64)
        for i in pk.range(pk.cdiv(x.cols, 64)):
            total = total + pk.load(parts[i], rows=64, cols=64)
        pk.store(y, total)
        pk.signal(count[0], 0)


def _turned(rng: np.random.Generator) -> Made:
    x = whole(rng, 64 * 6, 64, dtype=bf16)
    tiles = x.astype(np.float32).reshape(6, 64, 64)
    return (x, nothing(64 * 6, 64)), {1: (tiles @ tiles.transpose(0, 2, 1)).reshape(64 * 6, 64)}


@right(_turned)
@pk.kernel
def one_tile_that_two_groups_store_through_in_turn(x, y):
    """Two consumers share the tile through which results leave: a turn ends when the store has read the tile."""
    ring = pk.pipeline(2, pk.st(bf16, 128, 64))
    out = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pairs = pk.cdiv(x.rows, 128)
    with pk.producer():
        for i in pk.range(pairs):
            with ring.fill() as s:
                pk.load_async(s, x[i])
    with pk.consumers(2) as w:
        for i in pk.range(pairs):
            with ring.drain() as s:
                half = s.tiles(64, 64)[w]
                t = pk.mma_ABt(half, half)
            with pk.in_turn():
                pk.publish(out, t)
                pk.store_async(y[2 * i + w], out)
                pk.store_wait(read=True)
