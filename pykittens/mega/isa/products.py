"""Parts of the roles of instructions that multiply a matrix with a vector of each sequence.

A page has 16 rows of a matrix and four of the eight slices of a chunk of columns: row 16 q + r of the page is slice q
of row r. The tile of vectors has a slice in each row: of all sequences the first four slices, rounded to bf16, and what
is left of them, so that products have the accuracy of f32; then the other four. A product of a page and its half of the
tile has each row by all slices there; those of the row itself are taken. For one sequence, of which half a tile is too
little for tensor cores, both pages multiply all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pykittens as pk
from pykittens.lang.loops import for_loop
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.vectors import load_tagged
from pykittens.types.dtypes import bf16, f32

# Pages that are brought to the L2 cache while the ring of pages is full, and the cycles of the clock between two: as
# many as the memory takes for a page, so that nothing queues in front of what other warps load.
AHEAD, PACE = 8, 800

# 16 elements that each eight lanes of a warp hold: no lane has a branch of its own when they move.
UNIT_OF_LANES: dict[str, Any] = {"spread": pk.per_column}

Load = Callable[[Any, Any], Any]  # of a row and a sequence

# Registers of a thread of warps that only start copies, that store, and that fetch vectors; and what the latter two get
# more for some kinds, and for several sequences. The others are for those that multiply.
COPYING, STORING, FETCHING, MORE = 40, 64, 96, 8


def producer(registers: int = STORING) -> Any:
    """The role that fills pages of weights, ahead of all waits; a storer has the registers of the same warpgroup."""
    return pk.producer(registers=registers)


def fetchers(isa: Any, more: bool = False) -> Any:
    """The role of four warps that fetch what other instructions write."""
    return pk.warps(4, registers=FETCHING + MORE * (more or isa.batch > 1))


def storer(isa: Any, more: bool = False) -> Any:
    """The role that stores results of products."""
    return pk.storer(registers=STORING + MORE * (more or isa.batch > 1))


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
def halves_of(slices: list[Any]) -> list[tuple[Any, Any]]:
    """The slices rounded to bf16, and what is left of them."""
    return [(high.to(bf16), low.to(bf16)) for high, low in map(in_two, slices)]


@pk.function
def fill_rows(isa: Any, tile: Any, halves: list[tuple[Any, Any]], part: Any, row: Any) -> None:
    """The rows of the tile of a chunk that one of four warps has, of two slices of a sequence."""
    at = 8 * isa.batch * (part // 2) + 8 * row + 2 * (part % 2)
    for i, half in enumerate(halves):
        for k in range(2):
            pk.store(tile.row(at + 4 * k + i), half[k])


def chunks_of(wide: int) -> Any:
    """A loop over the chunks of a tile, which is none for one."""
    return range(1) if wide == 1 else pk.range(wide)


def at_once(isa: Any) -> int:
    """The sequences whose parts of a chunk the registers hold at a time."""
    batch: int = isa.batch
    return min(4096 // int(isa.chunk), batch)


def sequences(isa: Any) -> Any:
    """A loop over the first of those sequences that are at once, which is none if these are all."""
    return range(1) if at_once(isa) == isa.batch else pk.range(0, isa.batch, at_once(isa))


@pk.function
def chunk_of(isa: Any, V: Any, x: Any, step: Any, row: Any, tag: Any) -> list[Any]:
    """The part of a chunk that one of four warps has, of some sequences from `row` on."""
    rows = [row + k for k in range(at_once(isa))]
    found = [slices_of(V, x + i * step, isa.quarter, tag) for i in rows]
    return [halves_of(slices) for slices in found]


@pk.function
def fill_chunk(isa: Any, tile: Any, halves: list[Any], f: Any, row: Any) -> None:
    """Store what `chunk_of` has found."""
    for k, some in enumerate(halves):
        fill_rows(isa, tile, some, f, row + k)


@pk.function
def fetch_vector(isa: Any, ring: Any, V: Any, x: Any, step: Any, wide: int, tag: Any) -> None:
    """The fetchers of a vector of `wide` chunks, in one tile."""
    with fetchers(isa) as f, ring.fill() as tile:
        for i in chunks_of(wide):
            part = tile.tiles(16 * isa.batch, tile.cols // wide)[0, i]
            for row in sequences(isa):
                halves = chunk_of(isa, V, x + 4 * i + f, step, row, tag)
                fill_chunk(isa, part, halves, f, row)


@pk.function
def fetch_chunks(
    isa: Any, rings: Any, V: Any, x: Any, step: Any, chunks: Any, times: Any, tag: Any
) -> None:
    """The fetchers of the tiles of all chunks of a vector, so many times."""
    with fetchers(isa) as f:
        for _ in pk.range(times):
            for chunk in pk.range(chunks):
                at = x + 4 * chunk + f
                halves = chunk_of(isa, V, at, step, 0, tag)  # before the stage is free
                with rings.vectors.fill() as tile:
                    fill_chunk(isa, tile, halves, f, 0)
                    if at_once(isa) < isa.batch:
                        for row in pk.range(at_once(isa), isa.batch, at_once(isa)):
                            halves = chunk_of(isa, V, at, step, row, tag)
                            fill_chunk(isa, tile, halves, f, row)


@pk.function
def fetch_normed(
    isa: Any, rings: Any, V: Any, x: Any, step: Any, C: Any, gain: Any, wide: int, tag: Any
) -> None:
    """The fetchers of a vector times its gains, of `wide` chunks in one tile, and of the sums of its squares."""
    with fetchers(isa) as f:
        if isa.batch == 1:
            with rings.vectors.fill() as tile:
                squares = fill_normed(isa, tile, V, x, step, C, gain, wide, 0, f, tag)
            with rings.norms.fill() as s:
                store_squares(s, squares, 0, f)
        else:
            with rings.vectors.fill() as tile, rings.norms.fill() as s:
                for row in sequences(isa):
                    squares = fill_normed(isa, tile, V, x, step, C, gain, wide, row, f, tag)
                    store_squares(s, squares, row, f)


@pk.function
def fill_normed(  # type: ignore[no-untyped-def]
    isa, tile, V, x, step, C, gain, wide, row, f, tag
) -> list[Any]:
    """The part of a tile that one of four warps has, of some sequences from `row` on; returns the squares to add."""
    rows = [row + k for k in range(at_once(isa))]
    squares = [pk.zeros(f32, isa.quarter // 2) for _ in rows]
    for i in chunks_of(wide):
        at = 4 * i + f
        gains = [pk.load(C[2 * (gain + at) + k], cols=isa.quarter // 2) for k in range(2)]
        found = [slices_of(V, x + j * step + at, isa.quarter, tag) for j in rows]
        part = tile.tiles(16 * isa.batch, tile.cols // wide)[0, i]
        for k, slices in enumerate(found):
            scaled = [v * g for v, g in zip(slices, gains, strict=True)]
            fill_rows(isa, part, halves_of(scaled), f, rows[k])
            squares[k] = squares[k] + sum(v * v for v in slices)
    return squares


@pk.function
def store_squares(norms: Any, squares: list[Any], row: Any, f: Any) -> None:
    """Store the sums of one of four warps, of sequences from `row` on."""
    for k, some in enumerate(squares):
        total = pk.zeros(f32, UNIT, **UNIT_OF_LANES) + pk.sum(some)
        pk.store(norms.parts(UNIT)[4 * (row + k) + f], total)


@pk.function
def add_products(isa: Any, pages: Any, tile: Any, group: Any, acc: Any = ()) -> Any:
    """The sums of 16 rows with a chunk: for one sequence those of the first four slices and of the others.

    Two pages for every 128 columns of the tile.
    """
    single = isa.batch == 1
    found = [*acc] or [None] * (1 + single)
    for i in range(tile.cols // 128):
        for half in range(2):
            side, to = (0, half) if single else (half, 0)
            part = tile.tiles(max(8 * isa.batch, 16), 64)[side, 2 * i + group]
            with pages.drain() as p:
                found[to] = pk.mma_ABt(p.tiles(64, 64)[group, 0], part, found[to])
    return found


@pk.function
def own_slices(isa: Any, acc: Any) -> list[Any]:
    """Of the products of four parts of 16 rows with all slices those with the slice of the part: 64 sums a sequence."""
    col = pk.col_index(16)
    mine, in_front = col % 4 == pk.row_index(64) // 16, col < 8
    if isa.batch == 1:
        first, second = acc
        return [pk.row_sum(pk.where(mine, pk.where(in_front, first, second), 0.0))]
    found = []
    for row in range(0, isa.batch, 2):
        of_two = pk.where(mine, acc[0][:, 8 * row : 8 * row + 16], 0.0)
        found += [pk.row_sum(pk.where(in_front, of_two, 0.0))]
        found += [pk.row_sum(pk.where(in_front, 0.0, of_two))]
    return found


@pk.function
def store_sums(isa: Any, sums: Any, acc: Any, group: Any) -> None:
    """Leave the sums of 16 rows to the storer."""
    with sums.fill() as s:
        for row, own in enumerate(own_slices(isa, acc)):
            pk.store(s.parts(64)[2 * row + group], own)


@pk.function
def multiply_rows(isa: Any, rings: Any, wide: int, count: Any) -> None:
    """The consumers that leave the sums of 16 rows after another with a vector that is one tile of `wide` chunks."""
    with pk.consumers(2) as g, rings.vectors.drain() as tile:
        parts = tile.tiles(16 * isa.batch, tile.cols // wide)
        for _ in pk.range(count):
            acc = add_products(isa, rings.pages, parts[0, 0], g)
            if wide > 1:
                for i in pk.range(1, wide):
                    acc = add_products(isa, rings.pages, parts[0, i], g, acc)
            store_sums(isa, rings.sums, acc, g)


@pk.function
def multiply_chunks(isa: Any, rings: Any, chunks: Any, count: Any) -> None:
    """The consumers that leave the sums of 16 rows after another with a vector of several chunks."""
    with pk.consumers(2) as g:
        for _ in pk.range(count):
            with rings.vectors.drain() as tile:
                acc = add_products(isa, rings.pages, tile, g)
            for _ in pk.range(chunks - 1):
                with rings.vectors.drain() as tile:
                    acc = add_products(isa, rings.pages, tile, g, acc)
            store_sums(isa, rings.sums, acc, g)


def each_sum(
    isa: Any, rings: Any, first: Any, last: Any, turns: int = 1, load: Load | None = None
) -> Iterator[Any]:
    """A loop of the storer over rows, 16 at a time, and sequences: the row, the sequence, and its sums of each turn.

    load: called before the sums of a row and a sequence are there; what it returns is behind them.
    """
    for row in for_loop(pk.range(first, last)):
        if isa.batch == 1:
            more = [load(row, 0)] if load else []
            yield row, 0, *(all_added_up(isa, rings.sums)[0] for _ in range(turns)), *more
            continue
        with ExitStack() as held:
            stages = [held.enter_context(rings.sums.drain()) for _ in range(turns)]
            for i in for_loop(pk.range(isa.batch)):
                more = [load(row, i)] if load else []
                yield row, i, *(added_up(s, i) for s in stages), *more


def each_normed(
    isa: Any,
    rings: Any,
    length: Any,
    first: Any,
    last: Any,
    turns: int = 1,
    load: Load | None = None,
) -> Iterator[Any]:
    """The same of normed vectors of this length."""
    with ExitStack() as held:
        norms = held.enter_context(rings.norms.drain())
        scale: Any = None
        if isa.batch == 1:
            scale = scale_of(isa, norms, 0, length)
            held.close()
        for row, i, *found in each_sum(isa, rings, first, last, turns, load):
            by = scale_of(isa, norms, i, length) if scale is None else scale
            yield row, i, *(x * by for x in found[:turns]), *found[turns:]


@pk.function
def all_added_up(isa: Any, ring: Any) -> list[Any]:
    """The sums of 16 rows of all sequences."""
    with ring.drain() as s:
        return [added_up(s, i) for i in range(isa.batch)]


@pk.function
def added_up(sums: Any, i: Any) -> Any:
    """The sums of 16 rows of a sequence, which are in eight parts."""
    first, second = (
        sum(pk.load(sums.parts(UNIT)[8 * i + k], **UNIT_OF_LANES) for k in range(j, 8, 2))
        for j in range(2)
    )
    return first + second


@pk.function
def scale_of(isa: Any, norms: Any, i: Any, length: Any) -> Any:
    """One over the root of the mean square of a vector of this length of a sequence, 16 times."""
    a, b, c, d = (pk.load(norms.parts(UNIT)[4 * i + k], **UNIT_OF_LANES) for k in range(4))
    return pk.rsqrt(((a + b) + (c + d)) / length.to(f32) + isa.eps)
