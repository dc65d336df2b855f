"""Parts of the roles of instructions that multiply a matrix with a vector, or attend.

A page has 16 rows of a matrix and four of the eight slices of a chunk of columns: row 16 q + r of the page is slice q
of row r. The tile of a vector has a slice in each row, rounded to bf16 in rows 0 to 7, and what is left of it in rows 8
to 15, so that products have the accuracy of f32. A product of both has each row by all slices; its own are taken.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.vectors import LEAST, load_tagged
from pykittens.types.dtypes import bf16, f32

# Pages that are brought to the L2 cache while the ring of pages is full, and the cycles of the clock between two: as
# many as the memory takes for a page, so that nothing queues in front of what other warps load.
AHEAD, PACE = 8, 800

# Registers of a thread of warps that only start copies, that store, and that fetch vectors. The others are for those
# that multiply.
COPYING, STORING, FETCHING = 40, 64, 96


def producer(registers: int = STORING) -> Any:
    """The role that fills pages of weights, ahead of all waits; a storer has the registers of the same warpgroup."""
    return pk.producer(registers=registers)


def fetchers(registers: int = FETCHING) -> Any:
    """The role of four warps that fetch what other instructions write."""
    return pk.warps(4, registers=registers)


def storer() -> Any:
    """The role that stores results of products."""
    return pk.storer(registers=STORING)


@pk.function
def produce_pages(pages: Any, W: Any, first: Any, stop: Any) -> None:
    """The producer of pages, one after another."""
    with producer():
        ahead = first
        for page in pk.range(first, stop):
            ahead, last = pk.maximum(ahead, page), pk.minimum(page + AHEAD, stop)
            while (ahead < last) & pages.is_full(PACE):
                pk.prefetch(W[ahead, 0], rows=128, cols=64)
                ahead = ahead + 1
            with pages.fill() as p:
                pk.load_async(p, W[page, 0], evict_first=True)


@pk.function
def in_two(x: Any) -> tuple[Any, Any]:
    """x rounded to bf16, and what is left of it: products with both have the accuracy of f32."""
    high = x.to(bf16).to(f32)
    return high, x - high


@pk.function
def slices_of(V: Any, part: Any, length: int, tag: Any) -> list[Any]:
    """A part of a chunk that one of four warps has, in two slices."""
    return [load_tagged(V[2 * part + i], tag, cols=length // 2) for i in range(2)]


@pk.function
def fill_slices(tile: Any, slices: list[Any], part: Any) -> None:
    """The rows of the tile of a chunk that one of four warps has, of two slices."""
    for i, slice_ in enumerate(slices):
        high, low = in_two(slice_)
        pk.store(tile.row(2 * part + i), high.to(bf16))
        pk.store(tile.row(8 + 2 * part + i), low.to(bf16))


def chunks_of(wide: int) -> Any:
    """A loop over the chunks of a tile, which is none for one."""
    return range(1) if wide == 1 else pk.range(wide)


@pk.function
def fetch_vector(ring: Any, V: Any, x: Any, wide: int, length: int, tag: Any) -> None:
    """The fetchers of a vector of `wide` chunks, in one tile."""
    with fetchers() as f, ring.fill() as tile:
        for i in chunks_of(wide):
            part = tile.tiles(16, tile.cols // wide)[0, i]
            fill_slices(part, slices_of(V, x + 4 * i + f, length, tag), f)


@pk.function
def fetch_chunks(
    rings: Any, V: Any, x: Any, chunks: Any, times: Any, length: int, tag: Any
) -> None:
    """The fetchers of the tiles of all chunks of a vector, so many times."""
    with fetchers() as f:
        for _ in pk.range(times):
            for chunk in pk.range(chunks):
                slices = slices_of(V, x + 4 * chunk + f, length, tag)
                with rings.vectors.fill() as tile:
                    fill_slices(tile, slices, f)


@pk.function
def fetch_normed(
    rings: Any, V: Any, x: Any, C: Any, gain: Any, wide: int, length: int, tag: Any
) -> None:
    """The fetchers of a vector times its gains, of `wide` chunks in one tile, and of the sums of its squares."""
    with fetchers() as f:
        squares: Any = pk.zeros(f32, length // 2)
        with rings.vectors.fill() as tile:
            for i in chunks_of(wide):
                at = 4 * i + f
                gains = [pk.load(C[2 * (gain + at) + k], cols=length // 2) for k in range(2)]
                slices = slices_of(V, x + at, length, tag)
                part = tile.tiles(16, tile.cols // wide)[0, i]
                fill_slices(part, [v * g for v, g in zip(slices, gains, strict=True)], f)
                squares = squares + sum(v * v for v in slices)
        with rings.norms.fill() as s:
            pk.store(s.parts(UNIT)[f], pk.zeros(f32, UNIT) + pk.sum(squares))


@pk.function
def add_products(pages: Any, tile: Any, group: Any, acc: Any = (None, None)) -> Any:
    """The sums of 16 rows with a chunk, of the first four slices and of the others.

    Two pages for every 128 columns of the tile.
    """
    first, second = acc
    for i in range(tile.cols // 128):
        part = tile.tiles(16, 64)[0, 2 * i + group]
        with pages.drain() as p:
            first = pk.mma_ABt(p.tiles(64, 64)[group, 0], part, first)
        with pages.drain() as p:
            second = pk.mma_ABt(p.tiles(64, 64)[group, 0], part, second)
    return first, second


@pk.function
def own_slices(acc: Any) -> Any:
    """Of the products of four parts of 16 rows with all slices those with the slice of the part: 64 sums."""
    first, second = acc
    at = pk.col_index(16) % 8 - pk.row_index(64) // 16
    return pk.row_sum(pk.where(at == 0, first, 0.0) + pk.where(at == 4, second, 0.0))


@pk.function
def multiply_rows(rings: Any, wide: int, count: Any) -> None:
    """The consumers that leave the sums of 16 rows after another with a vector that is one tile of `wide` chunks."""
    with pk.consumers(2) as g, rings.vectors.drain() as tile:
        parts = tile.tiles(16, tile.cols // wide)
        for _ in pk.range(count):
            acc = add_products(rings.pages, parts[0, 0], g)
            if wide > 1:
                for i in pk.range(1, wide):
                    acc = add_products(rings.pages, parts[0, i], g, acc)
            with rings.sums.fill() as s:
                pk.store(s.parts(64)[g], own_slices(acc))


@pk.function
def multiply_chunks(rings: Any, chunks: Any, count: Any) -> None:
    """The consumers that leave the sums of 16 rows after another with a vector of several chunks."""
    with pk.consumers(2) as g:
        for _ in pk.range(count):
            with rings.vectors.drain() as tile:
                acc = add_products(rings.pages, tile, g)
            for _ in pk.range(chunks - 1):
                with rings.vectors.drain() as tile:
                    acc = add_products(rings.pages, tile, g, acc)
            with rings.sums.fill() as s:
                pk.store(s.parts(64)[g], own_slices(acc))


@pk.function
def added_up(sums: Any) -> Any:
    """The sums of 16 rows, which are in eight parts."""
    with sums.drain() as s:
        parts = [pk.load(s.parts(UNIT)[i]) for i in range(8)]
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@pk.function
def scale_of(norms: Any, length: Any, eps: float) -> Any:
    """One over the root of the mean square of a vector of this length, 16 times."""
    with norms.drain() as s:
        a, b, c, d = (pk.load(s.parts(UNIT)[i]) for i in range(4))
    return pk.rsqrt(((a + b) + (c + d)) / length.to(f32) + eps)


# -- attention -------------------------------------------------------------------------------------


@pk.function
def fetch_keys(ring: Any, cache: Any, layer: Any, head: Any, page: Any, f: Any) -> None:
    """Fetch 64 keys and values, of which each of four warps f has a quarter."""
    with ring.fill() as s:
        for tile, of in ((s.k, 2 * layer), (s.v, 2 * layer + 1)):
            pk.load_async(tile.tiles(16, tile.cols)[f, 0], cache[of, 4 * page + f, head])


@pk.function
def fetch_heads(
    ring: Any, V: Any, q: Any, count: Any, k: Any, v: Any, parts: int, f: Any, tag: Any
) -> None:
    """Fetch 128 columns of `count` queries, and of the key of the position: their products, its values.

    Each of four warps f has 32 columns, one of so many parts of a head. A query is in rows 0 and 1.
    """
    row, each = pk.row_index(16), {"tag": tag, "cols": 32, "spread": pk.per_column}
    with ring.fill() as s:
        at = pk.minimum(f, count * parts - 1)
        x = load_tagged(V[parts * q + at], **each)
        key, value = (load_tagged(V[parts * i + f % parts], **each) for i in (k, v))
        high, low = in_two(x)
        tile = pk.where(row == 0, high, pk.where(row == 1, low, 0.0))
        pk.store(s.x.tiles(16, 32)[0, f], tile.to(bf16))
        score = pk.sum(x * key.to(bf16).to(f32))
        pk.store(s.scores.parts(UNIT)[f], pk.zeros(f32, UNIT) + score)
        if f < parts:
            pk.store(s.values.parts(32)[f], value.to(bf16).to(f32))


@pk.function
def attended(
    isa: Any, heads: Any, ring: Any, own_key: Any, first: Any, stop: Any, position: Any, g: Any
) -> Any:
    """For one head, by group g of the consumers: the sum of the values, that of their weights, and the largest score.

    Each group has one of two heads of 64, or one half of the values of a head of 128. Of the keys from 64 * first to
    64 * stop those before the position, and that of the position if `own_key`. Scores are in powers of 2.
    """
    halves, scale, keys, col = isa.panels, isa.scale * pk.log2e, pk.row_index(64), pk.col_index(16)
    half, panels = (0, [g]) if halves == 1 else (g, [0, 1])
    with heads.drain() as own:
        queries = [own.x.tiles(16, 64)[0, i] for i in panels]
        weights = own.weights.tiles(64, 16)[g, 0]
        parts = [pk.load(own.scores.parts(1)[UNIT * (2 * i + k)]) for i in panels for k in range(2)]
        count = own_key.to(f32)
        top: Any = pk.where(own_key, sum(parts) * scale, LEAST)
        total = pk.where(keys == 0, count, 0.0)
        value = pk.load(own.values.parts(64)[half], spread=pk.per_row)
        acc = pk.where(col == 0, value * count, 0.0)
        for page in pk.range(first, stop):
            with ring.drain() as s:
                product: Any = None
                for i, query in enumerate(queries):
                    product = pk.mma_ABt(s.k.tiles(64, 64)[0, i], query, product)
                score = pk.where(keys + 64 * page < position, pk.row_sum(product) * scale, LEAST)
                new = pk.maximum(top, pk.max(score))
                old, p = pk.exp2(top - new), pk.exp2(score - new)
                high, low = in_two(p)
                pk.sync()  # the products of the last page have read them
                pk.store(weights, pk.where(col == 0, high, pk.where(col == 1, low, 0.0)).to(bf16))
                pk.fence_async()
                pk.sync()
                acc = pk.mma_AtB(s.v.tiles(64, 64)[0, half], weights, acc * old)
                total, top = total * old + p, new
    return pk.row_sum(acc), pk.maximum(pk.sum(total), 1e-30), top
