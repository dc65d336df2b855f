"""Instructions for one token that attend to a cache: of some heads that share keys, of a part of the cache.

The producer of pages of weights fills its ring with keys and values. Tensor cores multiply them with up to 8 queries at
a time: 16 columns have the queries rounded to bf16, and what is left of them, so that products have the accuracy of
f32. Two groups take pages in turn. isa: the machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.products import UNIT_OF_LANES, fetchers, in_two, producer, storer
from pykittens.mega.isa.vectors import LEAST, load_squares, load_tagged, scale_of_head, store_tagged
from pykittens.types.dtypes import bf16, f32

PAGE_KEYS = 64  # keys of a page
QUERIES = 8  # of an instruction; what bf16 leaves of them is in as many columns behind
MERGED = 6  # parts that are loaded at a time, whose loads wait together


def attend(  # type: ignore[no-untyped-def]
    isa,
    of,
    V,
    cache,
    *,
    layer,
    head,
    q,
    keys,
    values,
    squares,
    of_keys,
    n,
    out,
    sums,
    part,
    parts,
    position,
    tag,
):
    """V[out + i] = softmax(V[q + i] K^T) V of `n` heads i that share keys, of a part of the pages of the cache.

    of: "all" if this is all keys, or "part"; then V[sums + i] is the logarithm to base 2 of the sum of the weights of
    head i, in each element. With "_scaled" behind it the queries, and the key of the position, are divided by the roots
    of the mean squares of heads, whose sums are V[squares + i] and V[of_keys].
    """
    is_all, is_scaled = of.startswith("all"), of.endswith("scaled")
    heads, ring, before = isa.heads_ring(), isa.keys(), position[layer % isa.batch]
    halves = isa.halves_ring()
    pages = (before + PAGE_KEYS - 1) // PAGE_KEYS
    first, stop = pages * part // parts, pages * (part + 1) // parts
    with producer():
        for page in pk.range(first, stop):
            produce_keys(ring, isa.panels, cache, layer, head, page)
    with fetchers(isa) as f, heads.fill() as s:
        scales = (squares, of_keys) if is_scaled else None
        fetch_heads(s, V, isa, q, keys, values, scales, n, f, tag)
    with pk.consumers(2) as g:
        # Of all keys both groups find the same, and store every other query; of parts they take pages in turn.
        turns = 1 if is_all else 2
        found, log = attended(heads, ring, isa, part == 0, first, stop, before, turns, g)
        if is_all:
            for i in pk.range(g, n, 2):
                for k, y in enumerate(found):
                    store_tagged(V[isa.panels * (out + i) + k], of_query(y, i), tag)
        else:
            fill_halves(halves, found, log, n, g)
    if not is_all:
        with storer(isa):
            for i in pk.range(n * isa.panels):
                y, log = drained_halves(halves)
                store_tagged(V[isa.panels * out + i], y, tag)
                store_tagged(V[isa.panels * sums + i], log, tag)


@pk.function
def produce_keys(ring: Any, panels: int, cache: Any, layer: Any, head: Any, page: Any) -> None:
    """Fill the ring of pages with 64 keys and values."""
    k, v = cache[2 * layer, page, head], cache[2 * layer + 1, page, head]
    if panels == 1:
        with ring.fill() as s:
            pk.load_async(s.k, k, evict_first=True)
            pk.load_async(s.v, v, evict_first=True)
    else:
        for x in (k, v):
            with ring.fill() as s:
                pk.load_async(s, x, evict_first=True)


@pk.function
def fetch_heads(
    s: Any, V: Any, isa: Any, q: Any, k: Any, v: Any, squares: Any, n: Any, f: Any, tag: Any
) -> None:
    """Fetch queries in parts of 64 columns, and of the key of the position: their products, its values.

    Each part of the columns has two tiles, a query a row: one has what bf16 leaves of the queries in the rows behind,
    the other in front: the sum of both products is in both columns of a query. squares: of queries and of the key, if
    they are to be scaled by them.
    """
    tiles, nothing, panels = s.x.tiles(UNIT, 64), pk.zeros(f32, 64), isa.panels
    for i in pk.range(n * panels + f, panels * QUERIES, 4):
        store_parts(tiles, s.scores, i // panels, i % panels, nothing, nothing, 0.0)
    for i in pk.range(f, n * panels, 4):
        panel = i % panels
        x = load_tagged(V[panels * q + i], tag, cols=64)
        key, value = (load_tagged(V[panels * j + panel], tag, cols=64) for j in (k, v))
        if squares is not None:
            of_q, of_k = (
                load_squares(V, isa, squares[j] + at, tag) for j, at in enumerate((i // panels, 0))
            )
            x, key = x * scale_of_head(of_q, isa), key * scale_of_head(of_k, isa)
        high, low = in_two(x)
        score = pk.sum(x * key.to(bf16).to(f32))
        store_parts(tiles, s.scores, i // panels, panel, high, low, score)
        if i < panels:
            pk.store(s.values.parts(64)[i], value.to(bf16).to(f32))


@pk.function
def store_parts(
    tiles: Any, scores: Any, row: Any, panel: Any, high: Any, low: Any, score: Any
) -> None:
    """Store a part of a query, and its product with the part of the key of the position."""
    for k, (front, behind) in enumerate(((high, low), (low, high))):
        tile = tiles[2 * panel + k, 0]
        pk.store(tile.row(row), front.to(bf16))
        pk.store(tile.row(QUERIES + row), behind.to(bf16))
    col = pk.col_index(UNIT)
    pk.scatter(scores, pk.where(col % QUERIES == row, UNIT * panel + col, -1), score)


@pk.function
def attended(
    heads: Any,
    ring: Any,
    isa: Any,
    own_key: Any,
    first: Any,
    stop: Any,
    position: Any,
    turns: int,
    g: Any,
) -> tuple[list[Any], Any]:
    """What the queries find of 64 columns each, in columns, and the logarithms of the sums of their weights.

    Of the keys from 64 * first to 64 * stop those before the position, and that of the position if `own_key`; of two
    turns, group g of the consumers has one. Scores are in powers of 2.
    """
    scale, rows, col = isa.scale * pk.log2e, pk.row_index(64), pk.col_index(UNIT)
    panels = range(isa.panels)
    with heads.drain() as own:
        tiles, weights = own.x.tiles(UNIT, 64), own.weights.tiles(64, UNIT)[g, 0]
        queries = [[tiles[2 * panel + k, 0] for k in range(2)] for panel in panels]
        score = sum(pk.load(own.scores.parts(UNIT)[i], spread=pk.per_column) for i in panels)
        own_key = own_key if turns == 1 else own_key & (g == 0)
        count = own_key.to(f32)
        top: Any = pk.where(own_key, score * scale, LEAST)
        total = pk.where(rows == 0, count, pk.zeros(f32, 64, UNIT))
        found = []
        for i in panels:
            value = pk.load(own.values.parts(64)[i], spread=pk.per_row)
            found += [pk.where(col < QUERIES, value * count, pk.zeros(f32, 64, UNIT))]
        for page in pk.range(first, stop):
            with ExitStack() as held:
                k, v = drained_keys(ring, isa.panels, held)
                if turns == 1 or page % turns == g:
                    seen = rows + PAGE_KEYS * page < position
                    scores = multiplied(k, queries) * scale
                    old, total, top = weigh(scores, seen, weights, total, top)
                    for i in panels:
                        found[i] = pk.mma_AtB(v.tiles(64, 64)[0, i], weights, found[i] * old)
        total = pk.maximum(pk.col_sum(total), 1e-30)
        scale = 1.0 / total
    return [x * scale for x in found], top + pk.log2(total)


def drained_keys(ring: Any, panels: int, held: ExitStack) -> list[Any]:
    """The stages of 64 keys and values, until `held` is closed."""
    if panels == 2:
        return [held.enter_context(ring.drain()) for _ in range(2)]
    stage = held.enter_context(ring.drain())
    return [stage.k, stage.v]


@pk.function
def multiplied(keys: Any, queries: list[list[Any]]) -> Any:
    """The products of 64 keys with queries, each in two columns."""
    product: Any = None
    for i, pair in enumerate(queries):
        for tile in pair:
            product = pk.mma_ABt(keys.tiles(64, 64)[0, i], tile, product)
    return product


@pk.function
def weigh(scores: Any, seen: Any, weights: Any, total: Any, top: Any) -> tuple[Any, Any, Any]:
    """Store the weights of 64 keys, as bf16 and what it leaves; returns the factor of the sums before, and the sums."""
    scores = pk.where(seen, scores, LEAST)
    new = pk.maximum(top, pk.col_max(scores))
    old, p = pk.exp2(top - new), pk.exp2(scores - new)
    high, low = in_two(p)
    pk.sync()  # the products of the last page have read them
    pk.store(weights, pk.where(pk.col_index(UNIT) < QUERIES, high, low).to(bf16))
    pk.fence_async()
    pk.sync()
    return old, total * old + p, new


@pk.function
def of_query(y: Any, i: Any) -> Any:
    """What a query has found, of the two columns that have its parts."""
    return pk.row_sum(pk.where(pk.col_index(UNIT) % QUERIES == i, y, 0.0))


@pk.function
def fill_halves(halves: Any, found: list[Any], log: Any, n: Any, g: Any) -> None:
    """Leave to the storer what a group has found for each query, and the logarithms of the sums of its weights."""
    nothing = pk.zeros(f32, UNIT, **UNIT_OF_LANES)
    for i in pk.range(n):
        of_head = pk.sum(pk.where(pk.col_index(UNIT) == i, log, 0.0))
        for y in found:
            with halves.fill() as s:
                pk.store(s.x.parts(64)[g], of_query(y, i))
                pk.store(s.logs.parts(UNIT)[g], nothing + of_head)


@pk.function
def drained_halves(halves: Any) -> tuple[Any, Any]:
    """What both groups have found, and the logarithm of the sum of their weights, 64 times."""
    with halves.drain() as s:
        logs = [pk.max(pk.load(s.logs.parts(UNIT)[k], **UNIT_OF_LANES)) for k in range(2)]
        top = pk.maximum(*logs)
        weights = [pk.exp2(log - top) for log in logs]
        x, y = (pk.load(s.x.parts(64)[k]) * weights[k] for k in range(2))
    total = weights[0] + weights[1]
    return (x + y) / total, pk.zeros(f32, 64) + (top + pk.log2(total))


def merge(isa, V, *, x, sums, heads, count, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out + i] = the parts V[x + i + k * heads] of attention by their sums V[sums + i + k * heads], of a head i.

    Each of four warps takes 64 elements of a head.
    """
    panels = isa.panels
    with fetchers(isa, more=True) as f:
        for i in pk.range(first * panels + f, last * panels, 4):
            top, total = pk.full(f32, LEAST, 64), pk.zeros(f32, 64)
            acc = pk.zeros(f32, 64)
            for start in pk.range(0, count, MERGED):
                parts = [pk.minimum(start + k, count - 1) * heads for k in range(MERGED)]
                logs, found = (
                    [load_tagged(V[(v + part) * panels + i], tag, cols=64) for part in parts]
                    for v in (sums, x)
                )
                for k in range(MERGED):
                    logs[k] = pk.where(start + k < count, logs[k], LEAST)
                most: Any = top
                for log in logs:
                    most = pk.maximum(most, log)
                old = pk.exp2(top - most)
                acc, total, top = acc * old, total * old, most
                for log, y in zip(logs, found, strict=True):
                    p = pk.exp2(log - most)
                    acc, total = acc + y * p, total + p
            store_tagged(V[out * panels + i], acc / total, tag)
