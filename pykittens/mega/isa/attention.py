"""Instructions for one token that attend to a cache: of some heads that share keys, of a part of the cache.

The producer of pages of weights fills its ring with keys and values. Tensor cores multiply them with up to 8 queries at
a time: 16 columns have the queries rounded to bf16, and what is left of them, so that products have the accuracy of
f32. isa: the machine.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.products import fetchers, in_two, producer
from pykittens.mega.isa.vectors import LEAST, load_tagged, store_tagged
from pykittens.types.dtypes import bf16, f32

PAGE_KEYS = 64  # keys of a page
HALF = 8  # the queries of a group of consumers; their parts that bf16 leaves are in as many columns behind
MERGED = 16  # parts that are loaded at a time


def attend(  # type: ignore[no-untyped-def]
    isa, of, V, cache, *, layer, head, q, keys, values, n, out, sums, part, parts, position, tag
):
    """V[out + i] = softmax(V[q + i] K^T) V of `n` heads i that share keys, of a part of the pages of the cache.

    of: "all" if this is all keys, or "part"; then V[sums + i] is the logarithm to base 2 of the sum of the weights of
    head i, in each element.
    """
    heads, ring, before = isa.heads_ring(), isa.keys(), position[layer % isa.batch]
    pages = (before + PAGE_KEYS - 1) // PAGE_KEYS
    first, stop = pages * part // parts, pages * (part + 1) // parts
    with producer():
        for page in pk.range(first, stop):
            produce_keys(ring, isa.panels, cache, layer, head, page)
    with fetchers(isa) as f, heads.fill() as s:
        fetch_heads(s, V, q, n * isa.panels, keys, values, isa.panels, f, tag)
    with pk.consumers(2) as g:
        y, log = attended(heads, ring, isa, part == 0, first, stop, before, g)
        col = pk.col_index(UNIT)
        # Of both groups the heads in turn, or the halves of each.
        for i in pk.range(g, n * isa.panels, 2):
            mine = pk.row_sum(pk.where(col % HALF == i // 2, y, 0.0))
            store_tagged(V[isa.panels * out + i], mine, tag)
            if of == "part":
                of_head = pk.zeros(f32, 64) + pk.sum(pk.where(col == i // 2, log, 0.0))
                store_tagged(V[isa.panels * sums + i], of_head, tag)


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
    s: Any, V: Any, q: Any, parts: Any, k: Any, v: Any, panels: int, f: Any, tag: Any
) -> None:
    """Fetch queries in parts of 64 columns, and of the key of the position: their products, its values.

    Part i has row i // 2 of the tiles i % 2, of which one has the parts that bf16 leaves in the rows behind, the other
    in front: the sum of both products is in both columns of a query.
    """
    tiles, nothing = s.x.tiles(UNIT, 64), pk.zeros(f32, 64)
    for i in pk.range(parts + f, 2 * HALF, 4):
        store_parts(tiles, s.scores, i, nothing, nothing, 0.0)
    for i in pk.range(f, parts, 4):
        x = load_tagged(V[panels * q + i], tag, cols=64)
        key, value = (load_tagged(V[panels * j + i % panels], tag, cols=64) for j in (k, v))
        high, low = in_two(x)
        store_parts(tiles, s.scores, i, high, low, pk.sum(x * key.to(bf16).to(f32)))
        if i < panels:
            pk.store(s.values.parts(64)[i], value.to(bf16).to(f32))


@pk.function
def store_parts(tiles: Any, scores: Any, i: Any, high: Any, low: Any, score: Any) -> None:
    """Store a part of a query, and its product with the part of the key of the position."""
    row = i // 2
    for k, (front, behind) in enumerate(((high, low), (low, high))):
        tile = tiles[2 * (i % 2) + k, 0]
        pk.store(tile.row(row), front.to(bf16))
        pk.store(tile.row(HALF + row), behind.to(bf16))
    col = pk.col_index(UNIT)
    pk.scatter(scores, pk.where(col % HALF == row, UNIT * (i % 2) + col, -1), score)


@pk.function
def attended(
    heads: Any, ring: Any, isa: Any, own_key: Any, first: Any, stop: Any, position: Any, g: Any
) -> Any:
    """Of group g of the consumers: what its queries find, in columns, and the logarithms of the sums of their weights.

    Each group has half of the queries of 64 elements, or one half of the values for all of those of 128. Of the keys
    from 64 * first to 64 * stop those before the position, and that of the position if `own_key`. Scores are in powers
    of 2.
    """
    scale, rows, col = isa.scale * pk.log2e, pk.row_index(64), pk.col_index(UNIT)
    half, pairs = (0, [g]) if isa.panels == 1 else (g, [0, 1])
    with heads.drain() as own:
        tiles, weights = own.x.tiles(UNIT, 64), own.weights.tiles(64, UNIT)[g, 0]
        queries = [[tiles[2 * pair + k, 0] for k in range(2)] for pair in pairs]
        score = sum(pk.load(own.scores.parts(UNIT)[i], spread=pk.per_column) for i in pairs)
        count = own_key.to(f32)
        top: Any = pk.where(own_key, score * scale, LEAST)
        total = pk.where(rows == 0, count, pk.zeros(f32, 64, UNIT))
        value = pk.load(own.values.parts(64)[half], spread=pk.per_row)
        acc = pk.where(col < HALF, value * count, pk.zeros(f32, 64, UNIT))
        for page in pk.range(first, stop):
            seen = rows + PAGE_KEYS * page < position
            if isa.panels == 1:
                with ring.drain() as s:
                    sums = weigh(multiplied(s.k, queries) * scale, seen, weights, total, top)
                    old, total, top = sums
                    acc = pk.mma_AtB(s.v, weights, acc * old)
            else:
                with ring.drain() as s:
                    sums = weigh(multiplied(s, queries) * scale, seen, weights, total, top)
                    old, total, top = sums
                with ring.drain() as s:
                    acc = pk.mma_AtB(s.tiles(64, 64)[0, half], weights, acc * old)
        total = pk.maximum(pk.col_sum(total), 1e-30)
    return acc / total, top + pk.log2(total)


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
    pk.store(weights, pk.where(pk.col_index(UNIT) < HALF, high, low).to(bf16))
    pk.fence_async()
    pk.sync()
    return old, total * old + p, new


def merge(isa, V, *, x, sums, heads, count, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out + i] = the parts V[x + i + k * heads] of attention by their sums V[sums + i + k * heads], of a head i."""
    with pk.consumers(2) as g:
        for i in pk.range(first + g, last, 2):
            top, total = pk.full(f32, LEAST, isa.head), pk.zeros(f32, isa.head)
            acc = pk.zeros(f32, isa.head)
            for start in pk.range(0, count, MERGED):
                parts = [pk.minimum(start + k, count - 1) * heads + i for k in range(MERGED)]
                logs = [load_tagged(V[sums + part], tag, cols=isa.head) for part in parts]
                found = [load_tagged(V[x + part], tag, cols=isa.head) for part in parts]
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
            store_tagged(V[out + i], acc / total, tag)
