"""Instructions for one token of each sequence that multiply a vector with a matrix: rows 16 * first to 16 * last.

The elements of vectors are f32 and have tags. V is the memory of the vectors, W that of pages of weights, C of
constants; indices count the parts that are moved. dx, dout and dother are from one sequence to the next.
isa: the machine.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.mega.isa.products import (
    UNIT_OF_LANES,
    all_added_up,
    each_normed,
    each_sum,
    fetch_chunks,
    fetch_normed,
    fetch_vector,
    multiply_chunks,
    multiply_rows,
    produce_pages,
    storer,
)
from pykittens.mega.isa.vectors import ACTIVATIONS, load_tagged, store_tagged
from pykittens.types.dtypes import f32


def matvec(isa, wide, V, W, *, x, dx, out, dout, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of `wide` chunks, in one tile."""
    rings, count = isa.rings(wide), wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_vector(isa, rings.vectors, V, x, dx, wide, tag)
    multiply_rows(isa, rings, wide, last - first)
    with storer(isa):
        for row, i, y in each_sum(isa, rings, first, last):
            store_tagged(V[out + i * dout + row], y, tag)


def matvec_long(isa, V, W, *, x, dx, chunks, out, dout, page, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = W V[x], of a vector of any number of chunks, one after another."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(isa, rings, V, x, dx, chunks, last - first, tag)
    multiply_chunks(isa, rings, chunks, last - first)
    with storer(isa):
        for row, i, y in each_sum(isa, rings, first, last):
            store_tagged(V[out + i * dout + row], y, tag)


def matvec_add(  # type: ignore[no-untyped-def]
    isa, V, W, *, x, dx, chunks, other, dother, out, dout, page, first, last, tag
):
    """V[out] = V[other] + W V[x], of a vector of any number of chunks."""
    rings, count = isa.rings(), chunks * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_chunks(isa, rings, V, x, dx, chunks, last - first, tag)
    multiply_chunks(isa, rings, chunks, last - first)
    with storer(isa):
        for row in pk.range(first, last):
            at = [other + i * dother + row for i in range(isa.batch)]
            found = [
                load_tagged(V[i], tag, cols=UNIT, **UNIT_OF_LANES) for i in at
            ]  # before the sums are there
            for i, y in enumerate(all_added_up(isa, rings.sums)):
                store_tagged(V[out + i * dout + row], found[i] + y, tag)


# -- the same with rms_norm(V[x]) * C[gain], of a vector of `wide` chunks, in one tile --------------


def norm_matvec(  # type: ignore[no-untyped-def]
    isa, wide, V, W, C, *, x, dx, length, gain, out, dout, page, first, last, tag
):
    """V[out] = W (rms_norm(V[x]) * C[gain])."""
    rings, count = isa.rings(wide), wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(isa, rings, V, x, dx, C, gain, wide, tag)
    multiply_rows(isa, rings, wide, last - first)
    with storer(isa):
        for row, i, y in each_normed(isa, rings, length, first, last):
            store_tagged(V[out + i * dout + row], y, tag)


def norm_gate(  # type: ignore[no-untyped-def]
    isa, wide, activation, V, W, C, *, x, dx, length, gain, out, dout, page, first, last, tag
):
    """V[out] = activation(A x) * (B x) with x = rms_norm(V[x]) * C[gain]; 16 rows of A and of B in turn."""
    function = ACTIVATIONS[activation]
    rings, count = isa.rings(wide), 2 * wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(isa, rings, V, x, dx, C, gain, wide, tag)
    multiply_rows(isa, rings, wide, 2 * (last - first))
    with storer(isa):
        for row, i, gate, y in each_normed(isa, rings, length, first, last, 2):
            store_tagged(V[out + i * dout + row], function(gate) * y, tag)


def norm_rotary(  # type: ignore[no-untyped-def]
    isa, wide, V, W, C, *, x, dx, length, gain, rope, out, dout, page, first, last, position, tag
):
    """V[out] = rotated(W (rms_norm(V[x]) * C[gain])), by the angles of the position.

    16 rows of the first half of a head and of the second in turn; C[rope] has for each position the cosines of a half,
    then the sines.
    """
    rings, count, parts = isa.rings(wide), 2 * wide * isa.count, isa.head // 32
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(isa, rings, V, x, dx, C, gain, wide, tag)
    multiply_rows(isa, rings, wide, 2 * (last - first))
    with storer(isa):

        def angles(row: Any, i: Any) -> list[Any]:
            return angles_of(C, rope, row, position[i], parts)

        for row, i, a, b, turn in each_normed(isa, rings, length, first, last, 2, angles):
            store_rotated(V, out + i * dout, row, a, b, turn, parts, tag)


def norm_rotary_squares(  # type: ignore[no-untyped-def]
    isa,
    wide,
    V,
    W,
    C,
    *,
    x,
    dx,
    length,
    gain,
    rope,
    out,
    dout,
    head_gain,
    squares,
    dsquares,
    page,
    first,
    last,
    position,
    tag,
):
    """The same of heads times C[head_gain]; V[squares] has the sums of their squares before that.

    Each 16 elements of V[squares] are the sum of a row: of 16 elements of both halves.
    """
    parts = isa.head // 32
    rings, count = isa.rings(wide), 2 * wide * isa.count
    produce_pages(rings.pages, W, page + first * count, page + last * count)
    fetch_normed(isa, rings, V, x, dx, C, gain, wide, tag)
    multiply_rows(isa, rings, wide, 2 * (last - first))
    with storer(isa, more=True):

        def constants(row: Any, i: Any) -> list[Any]:
            at = head_gain + first_of(row, parts)
            gains = [pk.load(C[at + k * parts], cols=UNIT, **UNIT_OF_LANES) for k in range(2)]
            return [gains, angles_of(C, rope, row, position[i], parts)]

        for row, i, a, b, (gains, turn) in each_normed(
            isa, rings, length, first, last, 2, constants
        ):
            total = pk.zeros(f32, UNIT, **UNIT_OF_LANES) + pk.sum(a * a + b * b)
            store_rotated(V, out + i * dout, row, a * gains[0], b * gains[1], turn, parts, tag)
            store_tagged(V[squares + i * dsquares + row], total, tag)


@pk.function
def first_of(row: Any, parts: int) -> Any:
    """Where the first half of a head, of so many parts of 16, has the elements of a row of pages."""
    return row // parts * (2 * parts) + row % parts


@pk.function
def angles_of(C: Any, rope: Any, row: Any, position: Any, parts: int) -> list[Any]:
    """The cosines and the sines of 16 elements of each half of a head, which has so many parts of 16."""
    at = rope + 2 * parts * position + row % parts
    return [pk.load(C[at + k * parts], cols=UNIT, **UNIT_OF_LANES) for k in range(2)]


@pk.function
def store_rotated(
    V: Any, out: Any, row: Any, a: Any, b: Any, angles: Any, parts: int, tag: Any
) -> None:
    """Store 16 elements of each half of a head, rotated."""
    (cos, sin), at = angles, out + first_of(row, parts)
    store_tagged(V[at], a * cos - b * sin, tag)
    store_tagged(V[at + parts], b * cos + a * sin, tag)
