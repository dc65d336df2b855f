"""Kernels that move tiles in every way a pipeline allows."""

import pykittens as pk
from pykittens import f32


@pk.kernel
def interleaved(a, b, out):
    """Alternating rows of tiles of a and b: copies under a run-time `if`."""
    ring = pk.pipeline(2, pk.st(f32, 64, 32))
    tasks = pk.persistent(out.tiles(64, 32))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                if row % 2 == 0:
                    pk.load_async(t, a[row, col])
                else:
                    pk.load_async(t, b[row, col])
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as t:
                pk.store_async(out[row, col], t)


@pk.kernel
def by_parts(x, out):
    """A stage filled by a run-time loop of copies into views, drained by two warps."""
    ring = pk.pipeline(3, pk.st(pk.bf16, 64, 128))
    tasks = pk.persistent(out.tiles(64, 128), order=pk.supergroup(2))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                for i in pk.range(4):
                    for j in range(2):
                        pk.load_async(t.tiles(16, 64)[i, j], x[row * 4 + i, col * 2 + j])
    with pk.warps(2) as w:
        for row, col in tasks:
            with ring.drain() as t:
                pk.store_async(out[row * 2 + w, col], t.tiles(32, 128)[w])


@pk.kernel
def two_fillers(x, out):
    """A stage filled by a copy of one role and by ordinary stores of another, 2x beside x."""
    ring = pk.pipeline(2, copied=pk.st(f32, 64, 64), stored=pk.st(f32, 64, 64))
    tasks = pk.persistent(x.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as s:
                pk.load_async(s.copied, x[row, col])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.fill() as s:
                t = pk.load(x[row, col], rows=64, cols=64)
                pk.store(s.stored, t + t)
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as s:
                pk.store_async(out[row, col * 2], s.copied)
                pk.store_async(out[row, col * 2 + 1], s.stored)


@pk.kernel
def mixed_fill(x, out):
    """One group fills a stage with a copy and with stores, another passes it on."""
    ring = pk.pipeline(2, copied=pk.st(pk.bf16, 64, 16), stored=pk.st(pk.bf16, 64, 16))
    tasks = pk.persistent(x.tiles(64, 16), order=pk.column_major)
    with pk.warpgroups(1):
        for row, col in tasks:
            with ring.fill() as s:
                pk.load_async(s.copied, x[row, col])
                pk.store(s.stored, -pk.load(x[row, col], rows=64, cols=16))
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as s:
                pk.store_async(out[row, col * 2], s.copied)
                pk.store_async(out[row, col * 2 + 1], s.stored)


@pk.kernel
def batched(x, out, *, order):
    """A tensor of rank 5 tile by tile, leading axes fixed by `at`."""
    ring = pk.pipeline(2, pk.st(pk.int32, 32, 16))
    p, q, r, n, m = out.shape
    tasks = pk.persistent((p, q, r, pk.cdiv(n, 32), pk.cdiv(m, 16)), order=order)
    with pk.producer():
        for i, j, k, row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x.at(i, j)[k, row, col])
    with pk.storer():
        for i, j, k, row, col in tasks:
            with ring.drain() as t:
                pk.store_async(out[i, j, k, row, col], t)


@pk.kernel
def taken_over(x, out):
    """Two phases: the second pipeline takes over the memory of the first, which is done with."""
    first = pk.pipeline(2, pk.st(pk.bf16, 64, 64))
    second = pk.pipeline(1, pk.st(pk.bf16, 64, 128), reuse=first)
    row, col = pk.grid(pk.cdiv(out.rows, 64), pk.cdiv(out.cols, 128))
    with pk.producer():
        for k in pk.range(4):
            with first.fill() as t:
                pk.load_async(t, x[row, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(4):
            with first.drain() as t:
                acc = pk.mma_ABt(t, t, acc)
        half = acc.to(pk.bf16)
        with second.fill() as t:
            for i in range(2):
                pk.store(t.tiles(64, 64)[0, i], half)
    with pk.storer(), second.drain() as t:
        pk.store_async(out[row, col], t)


ORDERS = {
    "row_major": pk.row_major,
    "column_major": pk.column_major,
    "supergroup": pk.supergroup(3),
    "longest_first": pk.longest_first,
    "longest_first_5": pk.longest_first(5),
}
