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
    attended,
    fetch_chunks,
    fetch_heads,
    fetch_keys,
    fetch_normed,
    fetch_vector,
    fetchers,
    multiply_chunks,
    multiply_rows,
    produce_pages,
    scale_of,
    storer,
)
from pykittens.mega.isa.vectors import ACTIVATIONS, LEAST, load_tagged, store_tagged
from pykittens.types.dtypes import f32

# -- a matrix by a vector: rows 16 * first to 16 * last --------------------------------------------


def matvec(isa, wide, V, W, *, x, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of `wide` chunks, in one tile."""
    rings, count = isa.rings(wide), wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_vector(rings.vectors, V, x, wide, isa.quarter, tag)
    multiply_rows(rings, wide, last - first)
    with storer():
        for row in pk.range(first, last):
            store_tagged(V[out + row], added_up(rings.sums), tag)


def matvec_long(isa, V, W, *, x, chunks, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of any number of chunks, one after another."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(rings, V, x, chunks, last - first, isa.quarter, tag)
    multiply_chunks(rings, chunks, last - first)
    with storer():
        for row in pk.range(first, last):
            store_tagged(V[out + row], added_up(rings.sums), tag)


def matvec_add(isa, V, W, *, x, chunks, other, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = V[other] + W V[x], of a vector of any number of chunks."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(rings, V, x, chunks, last - first, isa.quarter, tag)
    multiply_chunks(rings, chunks, last - first)
    with storer():
        for row in pk.range(first, last):
            y = load_tagged(V[other + row], tag, cols=UNIT)
            store_tagged(V[out + row], y + added_up(rings.sums), tag)


# -- the same with rms_norm(V[x]) * C[gain], of a vector of `wide` chunks, in one tile --------------


def norm_matvec(isa, wide, V, W, C, *, x, length, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W (rms_norm(V[x]) * C[gain])."""
    rings, count = isa.rings(wide), wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(rings, V, x, C, gain, wide, isa.quarter, tag)
    multiply_rows(rings, wide, last - first)
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            store_tagged(V[out + row], added_up(rings.sums) * scale, tag)


def norm_gate(isa, wide, activation, V, W, C, *, x, length, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = activation(A x) * (B x) with x = rms_norm(V[x]) * C[gain]; 16 rows of A and of B in turn."""
    function = ACTIVATIONS[activation]
    rings, count = isa.rings(wide), 2 * wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(rings, V, x, C, gain, wide, isa.quarter, tag)
    multiply_rows(rings, wide, 2 * (last - first))
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            gate = added_up(rings.sums) * scale
            store_tagged(V[out + row], function(gate) * added_up(rings.sums) * scale, tag)


def norm_rotary(  # type: ignore[no-untyped-def]
    isa, wide, V, W, C, *, x, length, gain, rope, out, page, first, last, position, tag
):
    """V[out] = rotated(W (rms_norm(V[x]) * C[gain])), by the angles of the position.

    16 rows of the first half of a head and of the second in turn; C[rope] has for each position the cosines of a half,
    then the sines.
    """
    parts = isa.head // 32  # of a half of a head
    rings, count = isa.rings(wide), 2 * wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(rings, V, x, C, gain, wide, isa.quarter, tag)
    multiply_rows(rings, wide, 2 * (last - first))
    with storer():
        scale = scale_of(rings.norms, length, isa.eps)
        for row in pk.range(first, last):
            at = rope + 2 * parts * position + row % parts
            cos, sin = (pk.load(C[at + i * parts], cols=UNIT) for i in range(2))
            a, b = (added_up(rings.sums) * scale for _ in range(2))
            to = out + row // parts * (2 * parts) + row % parts
            store_tagged(V[to], a * cos - b * sin, tag)
            store_tagged(V[to + parts], b * cos + a * sin, tag)


# -- attention -------------------------------------------------------------------------------------


def attend(  # type: ignore[no-untyped-def]
    isa, of, V, cache, *, layer, head, q, count, out, sums, part, parts, k, v, position, tag
):
    """V[out + i] = softmax(V[q + i] K^T) V of `count` heads i that share keys, of a part of the pages of the cache.

    of: "all" if this is all keys, or "part"; then V[sums + i] is the logarithm of the sum of the weights of head i.
    """
    heads, ring, pages = isa.heads_ring(), isa.keys(), (position + 63) // 64
    first, stop = pages * part // parts, pages * (part + 1) // parts
    ahead = pk.minimum(first + isa.fetched, stop)  # fill the ring before the query is there
    with fetchers() as f:
        for i in pk.range(first, stop + 1):
            page = i - pk.minimum(pk.maximum(i - ahead, 0), 1)
            if i == ahead:
                fetch_heads(heads, V, q, count, k, v, isa.head // 32, f, tag)
            else:
                fetch_keys(ring, cache, layer, head, page, f)
    with pk.consumers(2) as g:
        y, total, top = attended(isa, heads, ring, part == 0, first, stop, position, g)
        if g < count * isa.panels:
            store_tagged(V[isa.panels * out + g], y / total, tag)
        if of == "part" and g < count:
            log = (top + pk.log2(total)) / pk.log2e
            store_tagged(V[sums + g], pk.zeros(f32, UNIT) + log, tag)


def merge(isa, V, *, x, sums, heads, count, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out + i] = the parts V[x + i + k * heads] of attention by their sums V[sums + i + k * heads], of a head i."""
    with pk.consumers(2) as g:
        for i in pk.range(first + g, last, 2):
            top, total = pk.full(f32, LEAST, isa.head), pk.zeros(f32, isa.head)
            acc = pk.zeros(f32, isa.head)
            for k in pk.range(count):
                log = pk.max(load_tagged(V[sums + i + k * heads], tag, cols=UNIT))
                y = load_tagged(V[x + i + k * heads], tag, cols=isa.head)
                most: Any = pk.maximum(top, log)
                old, p = pk.exp(top - most), pk.exp(log - most)
                acc, total, top = acc * old + y * p, total * old + p, most
            store_tagged(V[out + i], acc / total, tag)
