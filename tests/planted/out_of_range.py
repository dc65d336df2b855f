"""Kernels with a coordinate outside an axis without edges, or with tiles that are wholly outside their tensor."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind, Level
from tests.planted.core import empty, planted, product, whole


@planted(
    Kind.OUT_OF_RANGE,
    "after = pk.load(x[b + 1, row, 0], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (3, 64, 64), f32), empty((2, 64, 64), f32)),
    expected=lambda x, y: {"y": np.diff(x, axis=0)},
)
@pk.kernel
def frame_after_the_last(x, y, *, broken):
    """Broken: each block reads the frame after its own, even for the last frame."""
    b, row = pk.grid(x.shape[0] if broken else y.shape[0], pk.cdiv(x.rows, 64))
    after = pk.load(x[b + 1, row, 0], rows=64, cols=64)
    pk.store(y[b, row, 0], after - pk.load(x[b, row, 0], rows=64, cols=64))


def grouped(Q, K, O):
    """Scores of four heads of queries with two of keys."""
    return {"O": np.stack([[product(Q[0, h], K[0, h // 2].T) for h in range(4)]])}


@planted(
    Kind.OUT_OF_RANGE,
    "pk.load_async(t, K[b, h if broken else h // shared, col, 0])",
    arguments=lambda rng: (
        whole(rng, (1, 4, 64, 16), bf16),
        whole(rng, (1, 2, 64, 16), bf16),
        empty((1, 4, 64, 64), f32),
    ),
    expected=grouped,
)
@pk.kernel
def head_of_the_queries(Q, K, O, *, broken):
    """Broken: keys have fewer heads than queries, but are indexed by the head of the query."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 16))
    batch, heads, n, _ = Q.shape
    shared = heads // K.shape[1]
    b, h, row = pk.grid(batch, heads, n // 64)
    steps = K.rows // 64
    with pk.producer():
        for col in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t, K[b, h if broken else h // shared, col, 0])
    with pk.consumers(1):
        q = pk.load(Q[b, h, row, 0], rows=64, cols=16)
        for col in pk.range(steps):
            with ring.drain() as t:
                pk.store(O[b, h, row, col], pk.mma_ABt(q, t))


@planted(
    Kind.OUT_OF_RANGE,
    "rows = pk.load(cache[page, 0, 0], rows=64, cols=64)",
    arguments=lambda rng: (
        whole(rng, (4, 64, 64), f32),
        np.array([[2, 0, 3], [1, -1, -1]], np.int32),
        np.array([192, 64], np.int32),
        empty((2, 64), f32),
    ),
    expected=lambda cache, table, lengths, y: {
        "y": np.stack([cache[[2, 0, 3]].sum((0, 1)), cache[1].sum(0)])
    },
)
@pk.kernel
def page_that_is_not_there(cache, table, lengths, y, *, broken):
    """Broken: the loop covers the whole row of a page table, but a short sequence fills only a part of it."""
    (sequence,) = pk.grid(table.rows)
    pages = table.cols if broken else pk.cdiv(pk.load(lengths[sequence]), 64)
    total = pk.col_sum(pk.zeros(f32, 64, 64))
    for i in pk.range(pages):
        page = pk.load(table[sequence, i])
        rows = pk.load(cache[page, 0, 0], rows=64, cols=64)
        total = total + pk.col_sum(rows)
    pk.store(y[sequence], total)


@planted(
    Kind.OUT_OF_RANGE,
    "t = pk.load(x[row, col], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (128, 128), f32), empty((128, 128), f32)),
    expected=lambda x, y: {"y": -x},
    level=Level.NOTE,
)
@pk.kernel
def grid_of_smaller_tiles(x, y, *, broken):
    """Broken: the grid counts tiles with half the side of the tiles that a block moves."""
    side = 32 if broken else 64
    row, col = pk.grid(pk.cdiv(x.rows, side), pk.cdiv(x.cols, side))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], -t)


@planted(
    Kind.OUT_OF_RANGE,
    "pk.load_async(t, x[row, k])",
    arguments=lambda rng: (whole(rng, (64, 128), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": x[:, :64] + x[:, 64:]},
    level=Level.NOTE,
)
@pk.kernel
def steps_of_the_padded_length(x, y, *, broken):
    """Broken: the loop covers the padded length, and half of its tiles hold zeros."""
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    (row,) = pk.grid(x.rows // 64)
    steps = pk.cdiv(x.cols, 256) * 4 if broken else pk.cdiv(x.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t, x[row, k])
    with pk.consumers(1):
        total = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as t:
                total = total + pk.load(t)
        pk.store(y[row], total)


@planted(
    Kind.OUT_OF_RANGE,
    "t = pk.load(x[head, batch, 0, 0] if broken else x[batch, head, 0, 0], rows=64, cols=64)",
    arguments=lambda rng: (whole(rng, (2, 3, 64, 64), f32), empty((2, 3, 64, 64), f32)),
    expected=lambda x, y: {"y": -x},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def head_in_the_place_of_the_batch(x, y, *, broken):
    """Broken: the batch and the head are exchanged in the index, and there are more heads than batches."""
    batch, head = pk.grid(x.shape[0], x.shape[1])
    t = pk.load(x[head, batch, 0, 0] if broken else x[batch, head, 0, 0], rows=64, cols=64)
    pk.store(y[batch, head, 0, 0], -t)


@planted(
    Kind.OUT_OF_RANGE,
    "t = pk.load(pages[pk.load(table[block + 1 if broken else block]), 0, 0], rows=64, cols=64)",
    arguments=lambda rng: (
        whole(rng, (3, 64, 64), f32),
        np.array([2, 0, 1, -1], np.int32),
        empty((192, 64), f32),
    ),
    expected=lambda pages, table, y: {"y": pages[table[:3]].reshape(192, 64)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def page_after_its_own(pages, table, y, *, broken):
    """Broken: each block reads the entry after its own in a page table, which ends with an entry of no page."""
    (block,) = pk.grid(3)
    t = pk.load(pages[pk.load(table[block + 1 if broken else block]), 0, 0], rows=64, cols=64)
    pk.store(y[block], t)
