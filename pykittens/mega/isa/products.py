"""Parts of the roles of instructions that multiply a matrix with a vector.

A page has 16 rows of a matrix and four of the eight slices of a chunk of columns: row 16 q + r of the page is slice q
of row r. The tile of a vector has a slice in each row, rounded to bf16 in rows 0 to 7, and what is left of it in rows 8
to 15, so that products have the accuracy of f32. A product of both has each row by all slices; its own are taken.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.vectors import load_tagged
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
