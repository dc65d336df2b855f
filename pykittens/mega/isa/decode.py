"""Instructions on vectors in f32 whose elements have tags: what a model does with one token.

V is the memory of the vectors, W that of pages of weights, C of constants; indices count the parts that are moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykittens as pk
from pykittens.mega.isa.products import (
    ROWS,
    add_products,
    added_up,
    fetchers,
    fill_normed,
    fill_pages,
    fill_slices,
    multiply_rows,
    own_slices,
    producer,
    scale_of,
    storer,
    zero_products,
)
from pykittens.types.dtypes import f32

if TYPE_CHECKING:
    from pykittens.mega.isa.machine import Machine
    from pykittens.mega.program import Kind

LEAST = -1e30  # below all scores


def embedding(isa: Machine) -> Kind:
    """V[out] = E[token], a part of 256 by each group."""

    @isa.instruction
    def embedding(E, V, *, part, out, token, tag):  # type: ignore[no-untyped-def]
        with pk.consumers(2) as g:
            row = pk.load(E[token, 2 * part + g], cols=256)
            pk.store_tagged(V[out + 2 * part + g], row.to(f32), tag)

    return embedding


# -- a matrix by a vector: rows 16 * first to 16 * last --------------------------------------------


def matvec(isa: Machine) -> Kind:
    """V[out] = W V[x], of a vector of one chunk."""

    @isa.instruction
    def matvec(V, W, *, x, out, page, first, last, tag):  # type: ignore[no-untyped-def]
        rings = isa.rings()
        with producer():
            fill_pages(rings.pages, W, page + first * isa.count, page + last * isa.count)
        with fetchers() as f, rings.vectors.fill() as tile:
            fill_slices(tile, pk.load_tagged(V[x + f], tag, cols=isa.quarter), f)
        with pk.consumers(2) as g:
            multiply_rows(rings, g, last - first)
        with storer():
            for row in pk.range(first, last):
                pk.store_tagged(V[out + row], added_up(rings.sums), tag)

    return matvec


def matvec_add(isa: Machine) -> Kind:
    """V[out] = V[other] + W V[x], of a vector of any number of chunks."""

    @isa.instruction
    def matvec_add(V, W, *, x, chunks, other, out, page, first, last, tag):  # type: ignore[no-untyped-def]
        rings, count = isa.rings(), chunks * isa.count
        with producer():
            fill_pages(rings.pages, W, page + first * count, page + last * count)
        with fetchers() as f:
            for _ in pk.range(first, last):
                for chunk in pk.range(chunks):
                    v = pk.load_tagged(V[x + 4 * chunk + f], tag, cols=isa.quarter)
                    with rings.vectors.fill() as tile:
                        fill_slices(tile, v, f)
        with pk.consumers(2) as g:
            for _ in pk.range(first, last):
                acc = zero_products()
                for _ in pk.range(chunks):
                    with rings.vectors.drain() as tile:
                        acc = add_products(rings.pages, tile, g, acc)
                with rings.sums.fill() as s:
                    pk.store(s.parts(64)[g], own_slices(acc))
        with storer():
            for row in pk.range(first, last):
                y = pk.load_tagged(V[other + row], tag, cols=ROWS)
                pk.store_tagged(V[out + row], y + added_up(rings.sums), tag)

    return matvec_add


# -- the same with rms_norm(V[x]) * C[gain] --------------------------------------------------------


def norm_matvec(isa: Machine) -> Kind:
    """V[out] = W (rms_norm(V[x]) * C[gain])."""

    @isa.instruction
    def norm_matvec(V, W, C, *, x, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
        rings = isa.rings()
        with producer():
            fill_pages(rings.pages, W, page + first * isa.count, page + last * isa.count)
        with fetchers() as f:
            fill_normed(rings, V[x + f], C[gain + f], f, isa.quarter, tag)
        with pk.consumers(2) as g:
            multiply_rows(rings, g, last - first)
        with storer():
            scale = scale_of(rings.norms, isa)
            for row in pk.range(first, last):
                pk.store_tagged(V[out + row], added_up(rings.sums) * scale, tag)

    return norm_matvec


def norm_gate(isa: Machine) -> Kind:
    """V[out] = silu(A x) * (B x) with x = rms_norm(V[x]) * C[gain]; 16 rows of A and of B in turn."""

    @isa.instruction
    def norm_gate(V, W, C, *, x, gain, out, page, first, last, tag):  # type: ignore[no-untyped-def]
        rings, count = isa.rings(), 2 * isa.count
        with producer():
            fill_pages(rings.pages, W, page + first * count, page + last * count)
        with fetchers() as f:
            fill_normed(rings, V[x + f], C[gain + f], f, isa.quarter, tag)
        with pk.consumers(2) as g:
            multiply_rows(rings, g, 2 * (last - first))
        with storer():
            scale = scale_of(rings.norms, isa)
            for row in pk.range(first, last):
                gate = added_up(rings.sums) * scale
                pk.store_tagged(V[out + row], pk.silu(gate) * added_up(rings.sums) * scale, tag)

    return norm_gate


def norm_rotary(isa: Machine) -> Kind:
    """V[out] = rotated(W (rms_norm(V[x]) * C[gain])), by the angles of the position.

    16 rows of the first half of a head and of the second in turn; C[rope] has for each position the cosines of a half,
    then the sines.
    """
    parts = isa.head // 32  # of a half of a head

    @isa.instruction
    def norm_rotary(V, W, C, *, x, gain, rope, out, page, first, last, position, tag):  # type: ignore[no-untyped-def]
        rings, count = isa.rings(), 2 * isa.count
        with producer():
            fill_pages(rings.pages, W, page + first * count, page + last * count)
        with fetchers() as f:
            fill_normed(rings, V[x + f], C[gain + f], f, isa.quarter, tag)
        with pk.consumers(2) as g:
            multiply_rows(rings, g, 2 * (last - first))
        with storer():
            scale = scale_of(rings.norms, isa)
            for row in pk.range(first, last):
                at = rope + 2 * parts * position + row % parts
                cos, sin = (pk.load(C[at + i * parts], cols=ROWS) for i in range(2))
                a, b = (added_up(rings.sums) * scale for _ in range(2))
                to = out + row // parts * (2 * parts) + row % parts
                pk.store_tagged(V[to], a * cos - b * sin, tag)
                pk.store_tagged(V[to + parts], b * cos + a * sin, tag)

    return norm_rotary


# -- attention -------------------------------------------------------------------------------------


def append(isa: Machine) -> Kind:
    """The keys V[x] and the values V[x + 1] of all heads of a position to the cache of a layer."""

    @isa.instruction
    def append(V, cache, *, layer, x, position, tag):  # type: ignore[no-untyped-def]
        with pk.consumers(2) as g:
            v = pk.load_tagged(V[x + g], tag, cols=isa.heads * isa.head)
            pk.store(cache[2 * layer + g, position, 0], v.to(cache.dtype))

    return append


def attend(isa: Machine) -> Kind:
    """V[out + i] = softmax(V[q + i] K^T) V, head i of two, which share keys and values; the sums of it to V[sums + i].

    Of the keys from 64 * first to 64 * last those up to the position. The queries are scaled.
    """

    @isa.instruction
    def attend(V, cache, *, layer, head, q, out, sums, first, last, position, tag):  # type: ignore[no-untyped-def]
        ring = isa.keys()
        stop = pk.minimum(last, position // 64 + 1)
        with fetchers() as f:
            for page in pk.range(first, stop):
                with ring.fill() as s:  # each warp a quarter of the rows
                    for tile, of in ((s.k, 2 * layer), (s.v, 2 * layer + 1)):
                        pk.load_async(tile.tiles(16, isa.head)[f, 0], cache[of, 4 * page + f, head])
        with pk.consumers(2) as g:
            x = pk.load_tagged(V[q + g], tag, cols=isa.head, spread=pk.per_column)
            top = pk.full(f32, LEAST, 64, spread=pk.per_row)
            total, acc = pk.zeros(f32, 64, spread=pk.per_row), pk.zeros(f32, 64, isa.head)
            for page in pk.range(first, stop):
                with ring.drain() as s:
                    score = pk.row_sum(pk.load(s.k).to(f32) * x) * isa.scale
                    seen = pk.row_index(64) + 64 * page <= position
                    score = pk.where(seen, score, LEAST)
                    new = pk.maximum(top, score)
                    old, p = pk.exp(top - new), pk.where(seen, pk.exp(score - new), 0.0)
                    acc, total, top = acc * old + pk.load(s.v).to(f32) * p, total * old + p, new
            most = pk.max(top)
            part = pk.exp(top - most)
            whole = pk.maximum(pk.sum(total * part), 1e-30)
            pk.store_tagged(V[out + g], pk.col_sum(acc * part) / whole, tag)
            pk.store_tagged(V[sums + g], pk.zeros(f32, ROWS) + (most + pk.log(whole)), tag)

    return attend


def merge(isa: Machine) -> Kind:
    """V[out + i] = the parts V[x + i + k * heads] of attention by their sums V[sums + i + k * heads], head i of two."""

    @isa.instruction
    def merge(V, *, x, sums, heads, count, out, tag):  # type: ignore[no-untyped-def]
        with pk.consumers(2) as g:
            top, total = pk.full(f32, LEAST, isa.head), pk.zeros(f32, isa.head)
            acc = pk.zeros(f32, isa.head)
            for k in pk.range(count):
                log = pk.max(pk.load_tagged(V[sums + g + k * heads], tag, cols=ROWS))
                y = pk.load_tagged(V[x + g + k * heads], tag, cols=isa.head)
                most: Any = pk.maximum(top, log)
                old, p = pk.exp(top - most), pk.exp(log - most)
                acc, total, top = acc * old + y * p, total * old + p, most
            pk.store_tagged(V[out + g], acc / total, tag)

    return merge


# -- the next token --------------------------------------------------------------------------------


def largest(isa: Machine) -> Kind:
    """The largest of 256 * first to 256 * last of V[x] to V[best + i], where it is to V[at + i], for each group i."""

    @isa.instruction
    def largest(V, *, x, first, last, best, at, tag):  # type: ignore[no-untyped-def]
        with pk.consumers(2) as g:
            most: Any = LEAST
            index: Any = 0.0
            for i in pk.range(first + g, last, 2):
                v = pk.load_tagged(V[x + i], tag, cols=256)
                here = pk.max(v)
                where = (256 * i + pk.argmax(v)).to(f32)
                index, most = pk.where(here > most, where, index), pk.maximum(here, most)
            pk.store_tagged(V[best + g], pk.zeros(f32, 16) + most, tag)
            pk.store_tagged(V[at + g], pk.zeros(f32, 16) + index, tag)

    return largest


def choose(isa: Machine) -> Kind:
    """chosen = the first index in V[at] of the largest of V[best], which are those of all blocks."""
    count = 2 * ROWS * isa.blocks

    @isa.instruction
    def choose(V, chosen, *, best, at, tag):  # type: ignore[no-untyped-def]
        with pk.consumers(2) as g:
            if g == 0:
                most = pk.load_tagged(V[best], tag, cols=count)
                where = pk.load_tagged(V[at], tag, cols=count)
                first = pk.min(pk.where(most == pk.max(most), where, 2.0**30))
                pk.store(chosen[0], first.to(pk.int32))

    return choose
