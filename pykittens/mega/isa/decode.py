"""Instructions for one token that multiply a vector with a matrix.

The elements of vectors are f32 and have tags. V is the memory of the vectors, W that of pages of weights, C of
constants; indices count the parts that are moved. isa: the machine.
"""

from __future__ import annotations

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.products import (
    added_up,
    fetch_chunks,
    fetch_normed,
    fetch_vector,
    multiply_chunks,
    multiply_rows,
    produce_pages,
    scale_of,
    storer,
)
from pykittens.mega.isa.vectors import ACTIVATIONS, load_tagged, store_tagged

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
