"""Instructions for one token that multiply a vector with a matrix, or attend to a cache.

The elements of vectors are f32 and have tags. V is the memory of the vectors, W that of pages of weights, C of
constants; indices count the parts that are moved. isa: the machine.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.products import (
    added_up,
    fetch_chunks,
    fetch_keys,
    fetch_normed,
    fetchers,
    fill_slices,
    multiply_chunks,
    multiply_rows,
    produce_pages,
    scale_of,
    storer,
)
from pykittens.mega.isa.vectors import ACTIVATIONS, LEAST
from pykittens.types.dtypes import bf16, f32

# -- a matrix by a vector: rows 16 * first to 16 * last --------------------------------------------


def matvec(isa, V, W, *, x, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of one chunk."""
    rings = isa.rings()
    produce_pages(rings.pages, W, page + first * isa.count, page + last * isa.count)
    with fetchers() as f, rings.vectors.fill() as tile:
        fill_slices(tile, pk.load_tagged(V[x + f], tag, cols=isa.quarter), f)
    multiply_rows(rings, last - first)
    with storer():
        for row in pk.range(first, last):
            pk.store_tagged(V[out + row], added_up(rings.sums), tag)


def matvec_long(isa, V, W, *, x, chunks, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of any number of chunks."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(rings, V, x, chunks, last - first, isa.quarter, tag)
    multiply_chunks(rings, chunks, last - first)
    with storer():
        for row in pk.range(first, last):
            pk.store_tagged(V[out + row], added_up(rings.sums), tag)


def matvec_add(isa, V, W, *, x, chunks, other, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = V[other] + W V[x], of a vector of any number of chunks."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(rings, V, x, chunks, last - first, isa.quarter, tag)
    multiply_chunks(rings, chunks, last - first)
    with storer():
        for row in pk.range(first, last):
            y = pk.load_tagged(V[other + row], tag, cols=UNIT)
            pk.store_tagged(V[out + row], y + added_up(rings.sums), tag)


# -- the same with rms_norm(V[x]) * C[gain] --------------------------------------------------------


def norm_matvec(isa, V, W, C, *, x, length, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W (rms_norm(V[x]) * C[gain])."""
    rings = isa.rings()
    produce_pages(rings.pages, W, page + first * isa.count, page + last * isa.count)
    fetch_normed(rings, V, x, C, gain, isa.quarter, tag)
    multiply_rows(rings, last - first)
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            pk.store_tagged(V[out + row], added_up(rings.sums) * scale, tag)


def norm_gate(isa, activation, V, W, C, *, x, length, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = activation(A x) * (B x) with x = rms_norm(V[x]) * C[gain]; 16 rows of A and of B in turn."""
    function = ACTIVATIONS[activation]
    rings, count = isa.rings(), 2 * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(rings, V, x, C, gain, isa.quarter, tag)
    multiply_rows(rings, 2 * (last - first))
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            gate = added_up(rings.sums) * scale
            pk.store_tagged(V[out + row], function(gate) * added_up(rings.sums) * scale, tag)


def norm_rotary(isa, V, W, C, *, x, length, gain, rope, out, page, first, last, position, tag):  # type: ignore[no-untyped-def]
    """V[out] = rotated(W (rms_norm(V[x]) * C[gain])), by the angles of the position.

    16 rows of the first half of a head and of the second in turn; C[rope] has for each position the cosines of a half,
    then the sines.
    """
    parts = isa.head // 32  # of a half of a head
    rings, count = isa.rings(), 2 * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(rings, V, x, C, gain, isa.quarter, tag)
    multiply_rows(rings, 2 * (last - first))
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            at = rope + 2 * parts * position + row % parts
            cos, sin = (pk.load(C[at + i * parts], cols=UNIT) for i in range(2))
            a, b = (added_up(rings.sums) * scale for _ in range(2))
            to = out + row // parts * (2 * parts) + row % parts
            pk.store_tagged(V[to], a * cos - b * sin, tag)
            pk.store_tagged(V[to + parts], b * cos + a * sin, tag)


# -- attention -------------------------------------------------------------------------------------


@pk.function
def query(V: Any, first: Any, count: int, tag: Any) -> list[Any]:
    """A head of a query, 64 columns after another."""
    return [pk.load_tagged(V[first + i], tag, cols=64, spread=pk.per_column) for i in range(count)]


@pk.function
def key_scores(keys: Any, x: list[Any]) -> Any:
    """The products of a query with 64 keys."""
    score = pk.zeros(f32, 64, spread=pk.per_row)
    for i, part in enumerate(x):
        score = score + pk.row_sum(pk.load(keys.tiles(64, 64)[0, i]).to(f32) * part)
    return score


@pk.function
def own_key(x: list[Any], keys: list[Any], values: Any, is_seen: Any, scale: float) -> Any:
    """What attention has of the key of the position, in row 0 of 64: its score, how often it is there, its values."""
    score: Any = 0.0
    for part, key in zip(x, keys, strict=True):
        score = score + pk.sum(part * key.to(bf16).to(f32))
    seen = (pk.row_index(64) == 0) & is_seen
    count = seen.to(f32)
    values = pk.zeros(f32, 64, 64) + values.to(bf16).to(f32) * count
    return pk.where(seen, score * scale, LEAST), count, values


def attend(isa, V, cache, *, layer, head, q, count, out, sums, first, last, k, v, position, tag):  # type: ignore[no-untyped-def]
    """V[out + i] = softmax(V[q + i] K^T) V of `count` heads i that share keys; the sums of it to V[sums + i].

    Each group has one of two heads of 64, or one half of the values of a head of 128. Of the keys from 64 * first to
    64 * last those before the position, and if first is 0 those of the position, V[k] and V[v].
    """
    halves, ring, stop = isa.panels, isa.keys(), pk.minimum(last, (position + 63) // 64)
    fetch_keys(ring, cache, layer, head, first, stop)
    with pk.consumers(2) as g:
        mine, half = (q + pk.minimum(g, count - 1), 0) if halves == 1 else (q, g)
        x, own = (query(V, halves * i, halves, tag) for i in (mine, k))
        (value,) = query(V, halves * v + half, 1, tag)
        top, total, acc = own_key(x, own, value, first == 0, isa.scale)
        for page in pk.range(first, stop):
            with ring.drain() as s:
                seen = pk.row_index(64) + 64 * page < position
                score = pk.where(seen, key_scores(s.k, x) * isa.scale, LEAST)
                new = pk.maximum(top, score)
                old, p = pk.exp(top - new), pk.where(seen, pk.exp(score - new), 0.0)
                acc = acc * old + pk.load(s.v.tiles(64, 64)[0, half]).to(f32) * p
                total, top = total * old + p, new
        most = pk.max(top)
        part = pk.exp(top - most)
        whole = pk.maximum(pk.sum(total * part), 1e-30)
        if g < count * halves:
            pk.store_tagged(V[halves * out + g], pk.col_sum(acc * part) / whole, tag)
        if g < count:
            pk.store_tagged(V[sums + g], pk.zeros(f32, UNIT) + (most + pk.log(whole)), tag)


def merge(isa, V, *, x, sums, heads, count, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out + i] = the parts V[x + i + k * heads] of attention by their sums V[sums + i + k * heads], of a head i."""
    with pk.consumers(2) as g:
        for i in pk.range(first + g, last, 2):
            top, total = pk.full(f32, LEAST, isa.head), pk.zeros(f32, isa.head)
            acc = pk.zeros(f32, isa.head)
            for k in pk.range(count):
                log = pk.max(pk.load_tagged(V[sums + i + k * heads], tag, cols=UNIT))
                y = pk.load_tagged(V[x + i + k * heads], tag, cols=isa.head)
                most: Any = pk.maximum(top, log)
                old, p = pk.exp(top - most), pk.exp(log - most)
                acc, total, top = acc * old + y * p, total * old + p, most
            pk.store_tagged(V[out + i], acc / total, tag)
