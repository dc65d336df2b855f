"""Kernels whose fills and drains, or arrivals and the counts that phases expect, do not match."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import empty, planted, product, whole


@planted(
    Kind.BARRIER_COUNT,
    "with ring.fill() as t:",
    "with ring.drain() as t:",
    arguments=lambda rng: (
        whole(rng, (128, 192), bf16),
        whole(rng, (64, 192), bf16),
        empty((128, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=(Kind.UNLANDED_COPY,),
)
@pk.kernel
def one_tile_beyond_the_end(A, B, C, *, broken):
    """Broken: the producer copies one tile more than there are steps, and it lands after the block has ended."""
    ring = pk.pipeline(3, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    row, col = pk.grid(A.rows // 64, B.rows // 64)
    steps = A.cols // 64
    with pk.producer():
        for k in pk.range(steps + 1 if broken else steps):
            with ring.fill() as t:
                pk.load_async(t.a, A[row, k])
                pk.load_async(t.b, B[col, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as t:
                acc = pk.mma_ABt(t.a, t.b, acc)
        pk.store(C[row, col], acc)


@planted(
    Kind.BARRIER_COUNT,
    "with out.fill() as t:",
    "with out.drain() as t:",
    arguments=lambda rng: (whole(rng, (64, 100), f32), empty((64, 100), f32)),
    expected=lambda x, y: {"y": x * x},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def last_tile_left_in_the_ring(x, y, *, broken):
    """Broken: the storer counts only whole tiles, and the ragged last tile stays in the ring."""
    out = pk.pipeline(2, pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    with pk.consumers(1):
        for col in pk.range(pk.cdiv(x.cols, 64)):
            t = pk.load(x[row, col], rows=64, cols=64)
            squared = t * t
            with out.fill() as t:
                pk.store(t, squared)
    with pk.storer():
        for col in pk.range(x.cols // 64 if broken else pk.cdiv(x.cols, 64)):
            with out.drain() as t:
                pk.store_async(y[row, col], t)


@planted(
    Kind.BARRIER_COUNT,
    "empty[i % 2].arrive()",
    arguments=lambda rng: (whole(rng, (128, 384), f32), empty((128,), f32)),
    expected=lambda x, y: {"y": x.sum(1)},
    also=(Kind.OVERWRITTEN_IN_USE, Kind.RACE, Kind.DEADLOCK, Kind.UNLANDED_COPY),
)
@pk.kernel
def two_consumers_counted_as_one(x, y, *, broken):
    """Broken: two groups release each stage, but its semaphore expects only one arrival."""
    tiles = pk.shared(pk.st(f32, 128, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(1 if broken else 2, count=2)
    (block,) = pk.grid(x.rows // 128)
    steps = x.cols // 64
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(i // 2 + 1)
            full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[block, i], signal=full[i % 2])
    with pk.consumers(2) as w:
        total = pk.row_sum(pk.zeros(f32, 64, 64))
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            total = total + pk.row_sum(pk.load(tiles[i % 2].tiles(64, 64)[w, 0]))
            empty[i % 2].arrive()
        pk.store(y[block * 2 + w], total)


@planted(
    Kind.BARRIER_COUNT,
    "full[i % stages].wait(i // stages)",
    arguments=lambda rng: (whole(rng, (128, 640), f32), empty((128, 640), f32)),
    expected=lambda x, y: {"y": np.maximum(x, 0)},
    also=(Kind.RACE, Kind.OVERWRITTEN_IN_USE, Kind.DEADLOCK, Kind.UNLANDED_COPY),
)
@pk.kernel
def stages_in_turn_in_a_ring_of_three(x, y, *, broken):
    """Broken: two groups take the stages of a ring of three in turn, so each sees every other phase of a stage."""
    stages = 3 if broken else 4
    tiles = pk.shared(pk.st(f32, 64, 64), count=stages)
    full, empty = pk.semaphore(1, count=stages), pk.semaphore(1, count=stages)
    (block,) = pk.grid(x.rows // 64)
    steps = x.cols // 64
    with pk.producer():
        for i in pk.range(steps):
            empty[i % stages].wait(i // stages + 1)
            full[i % stages].expect(tiles[i % stages])
            pk.load_async(tiles[i % stages], x[block, i], signal=full[i % stages])
    with pk.consumers(2) as w:
        for i in pk.range(w, steps, 2):
            full[i % stages].wait(i // stages)
            pk.store(y[block, i], pk.relu(pk.load(tiles[i % stages])))
            empty[i % stages].arrive()


@planted(
    Kind.BARRIER_COUNT,
    "empty = pk.semaphore(2)",
    arguments=lambda rng: (whole(rng, (192, 64), bf16), empty((192, 64), bf16)),
    expected=lambda x, y: {"y": np.maximum(x, 0)},
    also=(Kind.DEADLOCK,),
)
@pk.kernel
def idle_group_that_does_not_arrive(x, y, *, broken):
    """Broken: a group whose rows are outside skips its arrival, which the semaphore of the stage counts."""
    tile = pk.shared(pk.st(bf16, 128, 64))
    full = pk.semaphore(1)
    empty = pk.semaphore(2)
    (block,) = pk.grid(pk.cdiv(x.rows, 128))
    steps = x.cols // 64
    with pk.producer():
        for i in pk.range(steps):
            empty.wait(i + 1)
            full.expect(tile)
            pk.load_async(tile, x[block, i], signal=full)
    with pk.consumers(2) as w:
        row = block * 2 + w
        for i in pk.range(steps):
            if not broken or row * 64 < x.rows:
                full.wait(i)
                pk.store(y[row, i], pk.relu(pk.load(tile.tiles(64, 64)[w, 0])))
                empty.arrive()


@planted(
    Kind.BARRIER_COUNT,
    "loaded[0 if broken else i].expect(tiles[i])",
    arguments=lambda rng: (whole(rng, (64, 256), f32), empty((64, 256), f32)),
    expected=lambda x, y: {"y": x + 1},
    also=(Kind.DEADLOCK, Kind.UNLANDED_COPY, Kind.BYTE_COUNT),
)
@pk.kernel
def one_semaphore_for_all_copies(x, y, *, broken):
    """Broken: each copy has its own memory, but all signal one semaphore, whose phases run ahead of the waits."""
    tiles, loaded = pk.shared(pk.st(f32, 64, 64), count=4), pk.semaphore(1, count=4)
    (row,) = pk.grid(x.rows // 64)
    with pk.producer():
        for i in pk.range(4):
            loaded[0 if broken else i].expect(tiles[i])
            pk.load_async(tiles[i], x[row, i], signal=loaded[0 if broken else i])
    with pk.warpgroups(1):
        for i in pk.range(4):
            loaded[0 if broken else i].wait(i if broken else 0)
            pk.store(y[row, i], pk.load(tiles[i]) + 1)


@planted(
    Kind.BARRIER_COUNT,
    "ready.wait(i)",
    arguments=lambda rng: (whole(rng, (64, 256), f32), empty((64,), f32)),
    expected=lambda x, y: {"y": x.sum(1)},
    also=(Kind.DEADLOCK, Kind.RACE, Kind.OVERWRITTEN_IN_USE),
)
@pk.kernel
def sums_sent_without_an_answer(x, y, *, broken):
    """Broken: each partial sum has its own memory, so the sender waits for no group and may be two phases ahead."""
    parts, ready, taken = pk.shared(pk.sv(f32, 64), count=4), pk.semaphore(1), pk.semaphore(1)
    (row,) = pk.grid(x.rows // 64)
    with pk.warpgroups(1):
        for i in pk.range(x.cols // 64):
            part = pk.row_sum(pk.load(x[row, i], rows=64, cols=64))
            if not broken:
                taken.wait(i + 1)
            pk.store(parts[i], pk.spread(part, pk.plain))
            ready.arrive()
    with pk.warpgroups(1):
        total = pk.zeros(f32, 64)
        for i in pk.range(x.cols // 64):
            ready.wait(i)
            total = total + pk.load(parts[i])
            taken.arrive()
        pk.store(y[row], total)


@planted(
    Kind.BARRIER_COUNT,
    "met = pk.semaphore(4 if broken else 3)",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((128, 64), f32)),
    expected=lambda x, y: {"y": x - x.reshape(2, 64, 64)[::-1].reshape(128, 64)},
)
@pk.kernel
def arrivals_left_over(x, y, *, broken):
    """Broken: the last semaphore counts a group that the block does not have, and its phase never completes."""
    tile, stored = pk.shared(pk.st(f32, 128, 64)), pk.semaphore(2)
    met = pk.semaphore(4 if broken else 3)
    (block,) = pk.grid(x.rows // 128)
    with pk.warpgroups(2) as w:
        mine = pk.load(x[block * 2 + w], rows=64, cols=64)
        pk.store(tile.tiles(64, 64)[w, 0], mine)
        stored.arrive()
        stored.wait(0)
        pk.store(y[block * 2 + w], mine - pk.load(tile.tiles(64, 64)[1 - w, 0]))
        met.arrive()
    with pk.warps(1):
        met.arrive()
        if not broken:
            met.wait(0)


@planted(
    Kind.BARRIER_COUNT,
    "done = pk.semaphore(3 if broken else 2)",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((128, 64), f32)),
    expected=lambda x, y: {"y": 3 * x},
    also=(Kind.DEADLOCK,),
)
@pk.kernel
def producer_counted_among_the_groups(x, y, *, broken):
    """Broken: the semaphore counts the storer among the groups that arrive, and its phase never completes."""
    out = pk.shared(pk.st(f32, 128, 64))
    done = pk.semaphore(3 if broken else 2)
    pk.grid(1)
    with pk.consumers(2) as w:
        pk.store(out.tiles(64, 64)[w], 3 * pk.load(x[w], rows=64, cols=64))
        pk.fence_async()
        done.arrive()
    with pk.storer():
        done.wait(0)
        pk.store_async(y[0], out)
