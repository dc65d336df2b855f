"""Two unordered accesses to the same memory, one of them a write: in shared memory and within a block."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, whole

UNWRITTEN = (Kind.UNWRITTEN_MEMORY,)


def _column(rng: np.random.Generator) -> tuple[Array, Array]:
    """A column of tiles and an output of its shape."""
    return whole(rng, (256, 64), f32), empty((256, 64), f32)


@planted(
    Kind.RACE,
    "pk.store(highest, pk.row_max(t))",
    "m = pk.load(highest, spread=pk.per_row)",
    arguments=lambda rng: (whole(rng, (64, 64), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": x - x.max(axis=1, keepdims=True)},
    also=UNWRITTEN,
)
@pk.kernel
def maxima_of_another_group(x, y, *, broken: bool):
    """Broken: one group computes the maxima of the rows, and another subtracts them without waiting for that group."""
    highest, found = pk.shared(pk.sv(f32, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.warpgroups(1):
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(highest, pk.row_max(t))
        found.arrive()
    with pk.warpgroups(1):
        u = pk.load(x[0], rows=64, cols=64)
        if not broken:
            found.wait(0)
        m = pk.load(highest, spread=pk.per_row)
        pk.store(y[0], u - m)


@planted(
    Kind.RACE,
    "pk.store(tile, t + t)",
    "u = pk.load(tile)",
    arguments=_column,
    expected=lambda x, y: {"y": 2 * x - 1},
)
@pk.kernel
def tile_free_before_it_is_read(x, y, *, broken: bool):
    """Broken: the group that reads a tile signals that the tile is free before it reads it."""
    tile, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.warpgroups(1):
        for i in pk.range(steps):
            t = pk.load(x[i], rows=64, cols=64)
            free.wait(i + 1)
            pk.store(tile, t + t)
            full.arrive()
    with pk.warpgroups(1):
        for i in pk.range(steps):
            full.wait(i)
            if broken:
                free.arrive()
            u = pk.load(tile)
            if not broken:
                free.arrive()
            pk.store(y[i], u - 1)


@planted(
    Kind.RACE,
    "pk.store(out.tiles(64, 64)[part], t * 3)",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((128, 64), f32)),
    expected=lambda x, y: {"y": 3 * x},
    also=UNWRITTEN,
)
@pk.kernel
def two_consumers_of_one_half(x, y, *, broken: bool):
    """Broken: both consumers store to the first half of the output tile."""
    out, full = pk.shared(pk.st(f32, 128, 64)), pk.semaphore(2)
    pk.grid(1)
    with pk.consumers(2) as w:
        t = pk.load(x[w], rows=64, cols=64)
        part = w // 2 if broken else w
        pk.store(out.tiles(64, 64)[part], t * 3)
        pk.fence_async()
        full.arrive()
    with pk.storer():
        full.wait(0)
        pk.store_async(y[0], out)


@planted(
    Kind.RACE,
    "pk.store(tile.tiles(32, 16)[0, 0], pk.load(x[0, 0], rows=32, cols=16))",
    "pk.store(tile.tiles(16, 32)[1, 0], pk.load(x[1, 0], rows=16, cols=32))",
    arguments=lambda rng: (whole(rng, (32, 32), bf16), empty((32, 32), bf16)),
    expected=lambda x, y: {"y": x},
    also=UNWRITTEN,
)
@pk.kernel
def halves_that_overlap(x, y, *, broken: bool):
    """Broken: one warp stores the left half of a tile and the other the lower half; the halves overlap."""
    tile, full = pk.shared(pk.st(bf16, 32, 32)), pk.semaphore(2)
    pk.grid(1)
    with pk.warps(1):
        pk.store(tile.tiles(32, 16)[0, 0], pk.load(x[0, 0], rows=32, cols=16))
        pk.fence_async()
        full.arrive()
    with pk.warps(1):
        if broken:
            pk.store(tile.tiles(16, 32)[1, 0], pk.load(x[1, 0], rows=16, cols=32))
        else:
            pk.store(tile.tiles(32, 16)[0, 1], pk.load(x[0, 1], rows=32, cols=16))
        pk.fence_async()
        full.arrive()
    with pk.storer():
        full.wait(0)
        pk.store_async(y[0], tile)


@planted(
    Kind.RACE,
    "before = pk.load(total)",
    "pk.store(total, before + part)",
    arguments=lambda rng: (whole(rng, (256, 64), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": x.reshape(4, 64, 64).sum(axis=0)},
    also=UNWRITTEN,
)
@pk.kernel
def accumulator_of_two_groups(x, y, *, broken: bool):
    """Broken: two consumers add to one tile of sums unordered, so one sum may be lost."""
    total, zero, done = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(2)
    pk.grid(1)
    with pk.consumers(2) as w:
        part = pk.load(x[w], rows=64, cols=64) + pk.load(x[2 + w], rows=64, cols=64)
        zero.wait(0)
        with nullcontext() if broken else pk.in_turn():
            before = pk.load(total)
            pk.store(total, before + part)
        done.arrive()
    with pk.warpgroups(1):
        pk.store(total, pk.zeros(f32, 64, 64))
        zero.arrive()
        done.wait(0)
        pk.store(y[0], pk.load(total))


@planted(
    Kind.RACE,
    "pk.store(tile, t)",
    "lower = pk.load(tile.tiles(64, 64)[1])",
    arguments=lambda rng: (whole(rng, (384, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {"y": x.reshape(3, 2, 64, 64).sum(axis=1).reshape(192, 64)},
    also=UNWRITTEN,
)
@pk.kernel
def halves_added_without_a_sync(x, y, *, broken: bool):
    """Broken: the warps store a tile and read halves of it, with rows of other warps, without a sync."""
    tile = pk.shared(pk.st(f32, 128, 64))
    (block,) = pk.grid(pk.cdiv(x.rows, 128))
    t = pk.load(x[block], rows=128, cols=64)
    pk.store(tile, t)
    if not broken:
        pk.sync()
    upper = pk.load(tile.tiles(64, 64)[0])
    lower = pk.load(tile.tiles(64, 64)[1])
    pk.store(y[block], upper + lower)


@planted(
    Kind.RACE,
    "pk.store(tile, t)",
    "lower = pk.load(tile.tiles(64, 64)[1])",
    arguments=lambda rng: (whole(rng, (384, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {
        "y": np.subtract(*np.moveaxis(x.reshape(3, 2, 64, 64), 1, 0)).reshape(192, 64)
    },
)
@pk.kernel
def next_tile_without_a_sync(x, y, *, broken: bool):
    """Broken: a warp stores its rows of the next tile while others may still read the rows of this tile."""
    tile = pk.shared(pk.st(f32, 128, 64))
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 128)):
        t = pk.load(x[i], rows=128, cols=64)
        pk.store(tile, t)
        pk.sync()
        upper = pk.load(tile.tiles(64, 64)[0])
        lower = pk.load(tile.tiles(64, 64)[1])
        if not broken:
            pk.sync()
        pk.store(y[i], upper - lower)


@planted(
    Kind.RACE,
    "pk.store(sums[row], pk.row_sum(t))",
    "norm = pk.load(sums[row], cols=64, spread=pk.per_row)",
    arguments=lambda rng: (
        whole(rng, (128, 64), f32),
        empty((128,), f32),
        empty((128, 64), f32),
    ),
    expected=lambda x, sums, y: {"y": x - x.sum(axis=1, keepdims=True), "sums": x.sum(axis=1)},
    also=UNWRITTEN,
)
@pk.kernel
def sums_through_global_memory(x, sums, y, *, broken: bool):
    """Broken: one role stores the sums of rows to global memory, and another role reads them unordered."""
    there = pk.semaphore(1)
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    with pk.warpgroups(1):
        t = pk.load(x[row], rows=64, cols=64)
        pk.store(sums[row], pk.row_sum(t))
        there.arrive()
    with pk.warpgroups(1):
        u = pk.load(x[row], rows=64, cols=64)
        if not broken:
            there.wait(0)
        norm = pk.load(sums[row], cols=64, spread=pk.per_row)
        pk.store(y[row], u - norm)


@planted(
    Kind.RACE,
    "pk.load_async(t, x[row, k])",
    "pk.store(t, half)",
    arguments=lambda rng: (whole(rng, (512, 128), bf16), empty((512, 64), bf16)),
    expected=lambda x, y: {"y": x[:, :64] + x[:, 64:]},
    also=(Kind.OVERWRITTEN_IN_USE, Kind.UNLANDED_COPY),
)
@pk.kernel
def output_over_the_next_inputs(x, y, *, broken: bool):
    """Broken: the output reuses the memory of the input ring, which is being filled for the next task."""
    inputs = pk.pipeline(2, pk.st(bf16, 64, 64))
    outputs = pk.pipeline(1, pk.st(bf16, 64, 64), reuse=inputs if broken else None)
    tasks = pk.persistent((pk.cdiv(x.rows, 64),))
    with pk.producer():
        for (row,) in tasks:
            for k in pk.range(2):
                with inputs.fill() as t:
                    pk.load_async(t, x[row, k])
    with pk.consumers(1):
        for (row,) in tasks:
            total = pk.zeros(f32, 64, 64)
            for _ in pk.range(2):
                with inputs.drain() as t:
                    total = total + pk.load(t).to(f32)
            half = total.to(bf16)
            with outputs.fill() as t:
                pk.store(t, half)
    with pk.storer():
        for (row,) in tasks:
            with outputs.drain() as t:
                pk.store_async(y[row], t)


@planted(
    Kind.RACE,
    "seen = pk.load(total)",
    "pk.store(total, seen + pk.load(x[group], rows=64, cols=64))",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": x[:64] + x[64:]},
)
@pk.kernel
def turns_for_the_read_alone(x, y, *, broken: bool):
    """Broken: the groups read the sum in turns, but store it after they have passed the turn on."""
    total, zero, done = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(2)
    pk.grid(1)
    with pk.consumers(2) as group:
        zero.wait(0)
        if broken:
            with pk.in_turn():
                seen = pk.load(total)
            pk.store(total, seen + pk.load(x[group], rows=64, cols=64))
        else:
            with pk.in_turn():
                pk.store(total, pk.load(total) + pk.load(x[group], rows=64, cols=64))
        done.arrive()
    with pk.warpgroups(1):
        pk.store(total, pk.zeros(f32, 64, 64))
        zero.arrive()
        done.wait(0)
        pk.store(y, pk.load(total))


@planted(
    Kind.RACE,
    "pk.store(tile, pk.load(x[0], rows=16, cols=64))",
    "pk.store(y, pk.mma_ABt(tile, tile))",
    arguments=lambda rng: (whole(rng, (16, 64), bf16), empty((16, 16), f32)),
    expected=lambda x, y: {"y": product(x, x.T)},
)
@pk.kernel(warps=1)
def operand_of_a_single_warp(x, y, *, broken: bool):
    """Broken: one warp multiplies a tile that its own lanes stored, but they have not synchronised."""
    tile = pk.shared(pk.st(bf16, 16, 64))
    pk.grid(1)
    pk.store(tile, pk.load(x[0], rows=16, cols=64))
    if not broken:
        pk.sync()
    pk.store(y, pk.mma_ABt(tile, tile))


@planted(
    Kind.RACE,
    "acc = pk.mma_ABt(tile, tile.tiles(16, 64)[0], acc)",
    "pk.store(tile, pk.load(x[0, k], rows=32, cols=64))",
    arguments=lambda rng: (whole(rng, (32, 192), bf16), empty((32, 16), f32)),
    expected=lambda x, y: {"y": product(x, x[:16].T)},
)
@pk.kernel(warps=2)
def operand_that_another_warp_still_reads(x, y, *, broken: bool):
    """Broken: a warp stores the next step while the other warp may still multiply the last one."""
    tile = pk.shared(pk.st(bf16, 32, 64))
    pk.grid(1)
    acc = pk.zeros(f32, 32, 16)
    for k in pk.range(pk.cdiv(x.cols, 64)):
        pk.store(tile, pk.load(x[0, k], rows=32, cols=64))
        pk.sync()
        acc = pk.mma_ABt(tile, tile.tiles(16, 64)[0], acc)
        if not broken:
            pk.sync()
    pk.store(y, acc)


@planted(
    Kind.RACE,
    "pk.store(tile, pk.load(x[row], rows=64, cols=64))",
    "pk.store(y[row], pk.load(tile, transposed=True))",
    arguments=lambda rng: (whole(rng, (128, 64), bf16), empty((128, 64), bf16)),
    expected=lambda x, y: {"y": x.reshape(2, 64, 64).transpose(0, 2, 1).reshape(128, 64)},
)
@pk.kernel
def transposed_before_the_warps_meet(x, y, *, broken: bool):
    """Broken: a tile is turned in shared memory, but the warps do not synchronise between store and load."""
    tile = pk.shared(pk.st(bf16, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(tile, pk.load(x[row], rows=64, cols=64))
    if not broken:
        pk.sync()
    pk.store(y[row], pk.load(tile, transposed=True))


@planted(
    Kind.RACE,
    "pk.store(tile.tiles(32, 64)[w], pk.load(x[w], rows=32, cols=64))",
    "t = pk.load(tile.tiles(32, 64)[1 - w])",
    arguments=lambda rng: (whole(rng, (64, 64), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": np.concatenate([x[32:], x[:32]])},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def halves_exchanged_in_one_phase(x, y, *, broken: bool):
    """Broken: two groups exchange halves of a tile, but each waits only for its own arrival."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1 if broken else 2, count=2)
    pk.grid(1)
    with pk.warps(2) as w:
        pk.store(tile.tiles(32, 64)[w], pk.load(x[w], rows=32, cols=64))
        full[w].arrive()
        if not broken:
            full[1 - w].arrive()
        full[w].wait(0)
        t = pk.load(tile.tiles(32, 64)[1 - w])
        pk.store(y[w], t)
