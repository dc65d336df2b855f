"""Instructions on matrices in bf16: what a model does with many tokens at once.

M is the memory of matrices that instructions write, of pages of 128 rows and 64 columns; W has pages of weights of the
same size. The pages of a row of pages follow one another. isa: the machine.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.products import COPYING, producer
from pykittens.types.dtypes import bf16, f32


@pk.function
def fetch_pages(ring: Any, M: Any, first: Any, panels: int, f: Any) -> None:
    """Fill the ring with neighbouring pages, of which each of four warps has a quarter of the rows."""
    for i in range(panels):
        with ring.fill() as p:
            pk.load_async(p.tiles(32, 64)[f, 0], M[4 * (first + i) + f, 0])


def matmul(isa, M, W, *, a, b, out, depth, width):  # type: ignore[no-untyped-def]
    """Up to four pages of M from `out`, 128 x 256 of A B^T: a row of pages of A from M[a], two of B from W[b]."""
    pages, inputs = isa.weights_ring(), isa.inputs()
    with producer(COPYING):
        for k in pk.range(depth):
            for i in range(2):
                with pages.fill() as p:
                    pk.load_async(p, W[b + i * depth + k, 0])
    with pk.warps(4, registers=COPYING) as f:
        for k in pk.range(depth):
            fetch_pages(inputs, M, a + k, 1, f)
    with pk.consumers(2) as g:
        left, right = pk.zeros(f32, 64, 128), pk.zeros(f32, 64, 128)
        for _ in pk.range(depth):
            with inputs.drain() as x:
                with pages.drain() as p:
                    left = pk.mma_ABt(x.tiles(64, 64)[g, 0], p, left)
                with pages.drain() as p:
                    right = pk.mma_ABt(x.tiles(64, 64)[g, 0], p, right)
        for i in range(4):
            part = (left, right)[i // 2][:, 64 * (i % 2) : 64 * (i % 2 + 1)]
            if i < width:
                pk.store(M[2 * (out + i) + g, 0], part.to(bf16))


@pk.function
def scores(ring: Any, queries: Any) -> Any:
    """The products of 64 queries with 128 keys."""
    s = None
    for i in range(queries.cols // 64):
        with ring.drain() as p:
            s = pk.mma_ABt(queries.tiles(64, 64)[0, i], p, s)
    return s


@pk.function
def add_values(ring: Any, p: Any, acc: Any) -> Any:
    """The sums of values with these weights."""
    for i in range(len(acc)):
        with ring.drain() as v:
            acc[i] = pk.mma_AB(p, v, acc[i])
    return acc


@pk.function
def next_block(ring: Any, queries: Any, scale: float, carried: Any, **mask: Any) -> Any:
    """The weights of the next 128 keys, the largest scores, and the sums, to which the values before are added."""
    p, m, l, acc = carried  # noqa: E741
    s, acc = scores(ring, queries), add_values(ring, p, acc)
    if mask:
        s = pk.mask(s, causal=True, **mask)
    p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=bf16)  # noqa: E741
    return p, m, l, [x * alpha for x in acc]


def attention(isa, M, *, q, k, v, step, last, masked, row, keys, out):  # type: ignore[no-untyped-def]
    """Pages of M from `out`: softmax(Q K^T) V of 128 queries from page q, and of keys and values in blocks of 128.

    k, v: the first pages; step: pages from a block to the next. row: of the first query; it sees no keys after its row,
    and none from `keys` on. masked: of the blocks from the last down, those in which some are not seen, at least one.
    """
    panels, scale = isa.panels, isa.scale * pk.log2e
    queries, ring = isa.queries(), isa.inputs()
    with pk.warps(4, registers=COPYING) as f:
        with queries.fill() as p:
            for i in range(panels):
                pk.load_async(p.tiles(32, 64)[f, i], M[4 * (q + i) + f, 0])
        fetch_pages(ring, M, k + last * step, panels, f)
        for block in pk.range(last, 0, -1):
            fetch_pages(ring, M, k + (block - 1) * step, panels, f)
            fetch_pages(ring, M, v + block * step, panels, f)
        fetch_pages(ring, M, v, panels, f)
    with pk.consumers(2) as g, queries.drain() as both:
        mine, row = both.tiles(64, isa.head)[g, 0], row + 64 * g
        s = pk.mask(scores(ring, mine), row=row, col=128 * last, cols=keys, causal=True)
        p, m, l, _ = pk.online_softmax(s, scale, to=bf16)  # noqa: E741
        carried = p, m, l, [pk.zeros(f32, 64, 64) for _ in range(panels)]
        for block in pk.range(last - 1, last - masked, -1):
            carried = next_block(ring, mine, scale, carried, row=row, col=128 * block, cols=keys)
        for _ in pk.range(last - masked + 1):
            carried = next_block(ring, mine, scale, carried)
        p, m, l, acc = carried  # noqa: E741
        for i, y in enumerate(add_values(ring, p, acc)):
            pk.store(M[2 * (out + i) + g, 0], pk.normalize(y, l).to(bf16))
