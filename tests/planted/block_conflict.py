"""Blocks that write the same elements, or read elements that another block writes, unordered."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, whole


def flags(count: int) -> Array:
    """Flags that are not signalled."""
    return np.zeros(count, np.int32)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(C[row, 0], acc)",
    arguments=lambda rng: (
        whole(rng, (128, 64), bf16),
        whole(rng, (128, 64), bf16),
        empty((128, 128), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def tile_by_its_row_only(A, B, C, *, broken: bool):
    """Broken: all blocks of a row of tiles store to its first tile."""
    a, b, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    row, col = pk.grid(*C.tiles(64, 64))
    full.expect(a, b)
    pk.load_async(a, A[row], signal=full)
    pk.load_async(b, B[col], signal=full)
    full.wait(0)
    acc = pk.mma_ABt(a, b)
    if broken:
        pk.store(C[row, 0], acc)
    else:
        pk.store(C[row, col], acc)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(y[first + i], pk.exp2(t))",
    arguments=lambda rng: (whole(rng, (256, 64), f32), empty((256, 64), f32)),
    expected=lambda x, y: {"y": np.exp2(x)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def two_tiles_a_block(x, y, *, broken: bool):
    """Broken: each block takes two tiles, but begins one tile, not two, after the previous block."""
    (block,) = pk.grid(pk.cdiv(x.rows, 128))
    first = block if broken else 2 * block
    for i in range(2):
        t = pk.load(x[first + i], rows=64, cols=64)
        pk.store(y[first + i], pk.exp2(t))


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(sums[part], pk.row_sum(t))",
    arguments=lambda rng: (whole(rng, (64, 256), f32), empty((4, 64), f32)),
    expected=lambda x, sums: {"sums": x.reshape(64, 4, 64).sum(axis=2).T},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def more_parts_than_rows_for_them(x, sums, *, broken: bool):
    """Broken: the grid has twice as many parts as the sums have rows, so two parts share a row."""
    (block,) = pk.grid(pk.cdiv(x.cols, 64))
    part = block // 2 if broken else block
    t = pk.load(x[0, block], rows=64, cols=64)
    pk.store(sums[part], pk.row_sum(t))


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(y[block], t)",
    "t = t + pk.load(y[block - 1], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (256, 64), f32), empty((256, 64), f32), flags(4)),
    expected=lambda x, y, done: {"y": np.cumsum(x.reshape(4, 64, 64), axis=0).reshape(256, 64)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def sum_of_the_block_before(x, y, done, *, broken: bool):
    """Broken: each block adds its rows to those of the previous block, without waiting for the flag of that block."""
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[block], rows=64, cols=64)
    if block > 0:
        if not broken:
            pk.wait(done[block - 1], 1)
        t = t + pk.load(y[block - 1], rows=64, cols=64)
    pk.store(y[block], t)
    pk.signal(done[block], 1)


@planted(
    Kind.BLOCK_CONFLICT,
    "t = t + pk.load(x[block + 1], rows=64, cols=64)",
    "pk.store(target[block], t)",
    arguments=lambda rng: (whole(rng, (256, 64), f32), np.zeros((256, 64), np.float32)),
    expected=lambda x, y: {"y": x + np.concatenate([x[64:], np.zeros_like(x[:64])])},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def neighbours_summed_in_place(x, y, *, broken: bool):
    """Broken: each block adds the tile below to its own in place, while the block below changes that tile."""
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    target = x if broken else y
    t = pk.load(x[block], rows=64, cols=64)
    if block + 1 < pk.cdiv(x.rows, 64):
        t = t + pk.load(x[block + 1], rows=64, cols=64)
    pk.store(target[block], t)


@planted(
    Kind.BLOCK_CONFLICT,
    "before = pk.load(C[0], rows=64, cols=64)",
    "pk.store(C[0], before + acc)",
    arguments=lambda rng: (
        whole(rng, (64, 256), bf16),
        whole(rng, (64, 256), bf16),
        np.zeros((64, 64), np.float32),
        flags(1),
    ),
    expected=lambda A, B, C, turn: {"C": product(A, B.T)},
)
@pk.kernel
def split_k_that_reads_and_writes(A, B, C, turn, *, broken: bool):
    """Broken: the blocks of a split sum load the result, add their part and store it, unordered."""
    a, b, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    (part,) = pk.grid(pk.cdiv(A.cols, 64))
    full.expect(a, b)
    pk.load_async(a, A[0, part], signal=full)
    pk.load_async(b, B[0, part], signal=full)
    full.wait(0)
    acc = pk.mma_ABt(a, b)
    if not broken:
        pk.wait(turn[0], part)
    before = pk.load(C[0], rows=64, cols=64)
    pk.store(C[0], before + acc)
    pk.signal(turn[0], part + 1)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store_async(y[block], tile)",
    "before = pk.load(y[block - 1], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32), flags(3)),
    expected=lambda x, y, done: {"y": np.cumsum(x.reshape(3, 64, 64), axis=0).reshape(192, 64)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def signal_before_the_store_is_done(x, y, done, *, broken: bool):
    """Broken: a block signals after its asynchronous store has started, not after it has written."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[block], rows=64, cols=64)
    if block > 0:
        pk.wait(done[block - 1], 1)
        before = pk.load(y[block - 1], rows=64, cols=64)
        t = t + before
    pk.store(tile, t)
    pk.fence_async()
    pk.sync()
    pk.store_async(y[block], tile)
    pk.store_wait(read=broken)
    pk.signal(done[block], 1)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(y[block, i], t)",
    "t = t + pk.load(y[block - 1, i], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (192, 192), f32), empty((192, 192), f32), flags(3)),
    expected=lambda x, y, done: {"y": np.cumsum(x.reshape(3, 64, 192), axis=0).reshape(192, 192)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def flag_one_step_behind(x, y, done, *, broken: bool):
    """Broken: a block waits until the previous block has done i steps, but reads step i of that block, the next one."""
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    for i in pk.range(pk.cdiv(x.cols, 64)):
        t = pk.load(x[block, i], rows=64, cols=64)
        if block > 0:
            pk.wait(done[block - 1], i if broken else i + 1)
            t = t + pk.load(y[block - 1, i], rows=64, cols=64)
        pk.store(y[block, i], t)
        pk.signal(done[block], i + 1)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(parts[block], t)",
    "total = total + pk.load(parts[i], cols=64)",
    arguments=lambda rng: (
        whole(rng, (4, 64), int32),
        empty((4, 64), int32),
        empty((64,), int32),
        flags(1),
    ),
    expected=lambda x, parts, y, count: {"y": (x * x).sum(axis=0)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def own_part_counted_among_the_others(x, parts, y, count, *, broken: bool):
    """Broken: block 0 waits for as many parts as there are other blocks, but its own part is counted, too."""
    (block,) = pk.grid(x.rows)
    t = pk.load(x[block], cols=64)
    t = t * t
    pk.store(parts[block], t)
    pk.signal(count[0], 1, op="add")
    if block == 0:
        pk.wait(count[0], x.rows - 1 if broken else x.rows)
        total = pk.zeros(int32, 64)
        for i in pk.range(x.rows):
            total = total + pk.load(parts[i], cols=64)
        pk.store(y, total)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(ready[0], 1)",
    "pk.wait(ready[0], 1)",
    arguments=lambda rng: (
        whole(rng, (64, 64), f32),
        empty((64, 64), f32),
        empty((64, 64), f32),
        np.zeros(1, np.int32),
    ),
    expected=lambda x, between, y, ready: {"y": 2 * x},
)
@pk.kernel
def flag_stored_like_data(x, between, y, ready, *, broken: bool):
    """Broken: an ordinary store sets a flag, and may be visible before the stores that precede it."""
    (block,) = pk.grid(2)
    if block == 0:
        pk.wait(ready[0], 1)
        pk.store(y[0], pk.load(between[0], rows=64, cols=64))
    else:
        pk.store(between[0], pk.load(x[0], rows=64, cols=64) * 2)
        if broken:
            pk.store(ready[0], 1)
        else:
            pk.signal(ready[0], 1)


@planted(
    Kind.BLOCK_CONFLICT,
    'pk.store(counts, pk.col_sum(t), op=None if broken else "add")',
    arguments=lambda rng: (whole(rng, (192, 64), int32), np.zeros((64,), np.int32)),
    expected=lambda x, counts: {"counts": x.sum(0)},
)
@pk.kernel
def total_stored_by_every_block(x, counts, *, broken: bool):
    """Broken: every block stores the sums of its rows to the same vector, and none adds to it."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(counts, pk.col_sum(t), op=None if broken else "add")


@planted(
    Kind.BLOCK_CONFLICT,
    'pk.scatter(sums, expert, t, op=None if broken else "add")',
    arguments=lambda rng: (
        whole(rng, (128, 16), int32),
        (np.arange(128) // 16 % 4).astype(np.int32),
        np.zeros((4, 16), np.int32),
    ),
    expected=lambda x, experts, sums: {
        "sums": np.stack([x[experts == e].sum(0) for e in range(4)])
    },
    also=(Kind.SCHEDULE_DEPENDENT,),
)
@pk.kernel
def tokens_scattered_over_each_other(x, experts, sums, *, broken: bool):
    """Broken: the tokens of an expert are in several blocks, whose rows overwrite each other."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    expert = pk.load(experts[row], cols=64, spread=pk.per_row)
    t = pk.load(x[row], rows=64, cols=16)
    pk.scatter(sums, expert, t, op=None if broken else "add")


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(y.window(0, first, x.rows)[0], t)",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {"y": x * 3},
)
@pk.kernel
def windows_that_overlap(x, y, *, broken: bool):
    """Broken: each block stores 64 rows, but its window begins only 32 rows after that of the previous block."""
    step = 32 if broken else 64
    (block,) = pk.grid(pk.cdiv(x.rows, step))
    first = block * step
    t = 3 * pk.load(x.window(0, first, x.rows)[0], rows=64, cols=64)
    pk.store(y.window(0, first, x.rows)[0], t)


@planted(
    Kind.BLOCK_CONFLICT,
    "pk.store(cache[pk.load(places[0 if broken else row])], pk.load(x[row], cols=64))",
    arguments=lambda rng: (
        whole(rng, (4, 64), f32),
        np.array([6, 1, 3, 7], np.int32),
        np.zeros((8, 64), np.float32),
    ),
    expected=lambda x, places, cache: {"cache": _appended(x, places, cache)},
)
@pk.kernel(warps=1)
def tokens_appended_to_one_place(x, places, cache, *, broken: bool):
    """Broken: every token is stored to the place of the first."""
    (row,) = pk.grid(x.rows)
    pk.store(cache[pk.load(places[0 if broken else row])], pk.load(x[row], cols=64))


def _appended(x: Array, places: Array, cache: Array) -> Array:
    """The cache with the rows of x at their places."""
    after = cache.copy()
    after[places] = x
    return after
