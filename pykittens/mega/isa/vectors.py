"""Instructions on vectors without a matrix: norms, angles, gates, the embedding, the cache, and the largest element.

Each is of one sequence, by its number `row` if it matters. Each of two groups takes 128 of 256 elements. Vectors are
padded with zeros, which these instructions keep. isa: the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykittens as pk
from pykittens.mega.isa.packing import UNIT
from pykittens.types.dtypes import f32

LEAST = -1e30  # below all scores
PART = 128  # elements of a group
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": pk.silu,
    "gelu": pk.gelu,
    "gelu_tanh": lambda x: pk.gelu(x, "tanh"),
}


@pk.function
def load_tagged(src: Any, tag: Any, cols: int, spread: Any = pk.plain) -> Any:
    """A vector with tags, as pk.load_tagged, all of which is inside: vectors have room for what reads them."""
    return pk.load_tagged(src, tag, cols=cols, spread=spread, whole=True)


@pk.function
def store_tagged(dst: Any, value: Any, tag: Any) -> None:
    """Store a vector with tags, as pk.store_tagged, all of which is inside."""
    pk.store_tagged(dst, value, tag, whole=True)


def clear(isa, V, *, first, last, tag):  # type: ignore[no-untyped-def]
    """V = 0, elements 16 * first to 16 * last: what pads a vector."""
    with pk.consumers(2) as g:
        for i in pk.range(first + g, last, 2):
            store_tagged(V[i], pk.zeros(f32, UNIT), tag)


def embedding(isa, E, V, *, out, first, last, row, token, tag):  # type: ignore[no-untyped-def]
    """V[out] = E[token]."""
    with pk.consumers(2) as g:
        for i in pk.range(first, last):
            x = pk.load(E[token[row], 2 * i + g], cols=PART)
            store_tagged(V[out + 2 * i + g], x.to(f32), tag)


def add(isa, V, *, a, b, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = V[a] + V[b]."""
    with pk.consumers(2) as g:
        for i in pk.range(first, last):
            x, y = (load_tagged(V[v + 2 * i + g], tag, cols=PART) for v in (a, b))
            store_tagged(V[out + 2 * i + g], x + y, tag)


def shift(isa, V, C, *, a, bias, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = V[a] + C[bias]."""
    with pk.consumers(2) as g:
        for i in pk.range(first, last):
            y = pk.load(C[bias + 2 * i + g], cols=PART)
            store_tagged(V[out + 2 * i + g], load_tagged(V[a + 2 * i + g], tag, cols=PART) + y, tag)


def gate(isa, activation, V, *, a, b, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = activation(V[a]) * V[b]."""
    function = ACTIVATIONS[activation]
    with pk.consumers(2) as g:
        for i in pk.range(first, last):
            x, y = (load_tagged(V[v + 2 * i + g], tag, cols=PART) for v in (a, b))
            store_tagged(V[out + 2 * i + g], function(x) * y, tag)


# -- norms: each instruction reads the whole vector, chunk after chunk -----------------------------


def rms_norm(isa, V, C, *, x, chunks, length, gain, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = rms_norm(V[x]) * C[gain]."""
    parts = isa.chunk // PART
    with pk.consumers(2) as g:
        total: Any = 0.0
        for k in pk.range(chunks):
            v = load_tagged(V[x + k], tag, cols=isa.chunk)
            total = total + pk.sum(v * v)
        scale = pk.rsqrt(total / length.to(f32) + isa.eps)
        for i in pk.range(first, last):
            at = 2 * i + g
            v = load_tagged(V[x * parts + at], tag, cols=PART)
            store_tagged(V[out + at], v * scale * pk.load(C[gain + at], cols=PART), tag)


def layer_norm(isa, V, C, *, x, chunks, length, gain, bias, out, first, last, tag):  # type: ignore[no-untyped-def]
    """V[out] = layer_norm(V[x]) * C[gain] + C[bias]; mean and variance are merged chunk after chunk."""
    chunk, parts = isa.chunk, isa.chunk // PART
    with pk.consumers(2) as g:
        mean: Any = 0.0
        squares: Any = 0.0  # of the distances to the mean
        for k in pk.range(chunks):
            v = load_tagged(V[x + k], tag, cols=chunk)
            count = pk.minimum(length - k * chunk, chunk)
            before, more = (k * chunk).to(f32), count.to(f32)
            here, share = pk.sum(v) / more, more / (before + more)
            away, step = pk.where(pk.iota(chunk) < count, v - here, 0.0), here - mean
            squares = squares + pk.sum(away * away) + step * step * before * share
            mean = mean + step * share
        scale = pk.rsqrt(squares / length.to(f32) + isa.eps)
        for i in pk.range(first, last):
            at = 2 * i + g
            v = (load_tagged(V[x * parts + at], tag, cols=PART) - mean) * scale
            gains, biases = (pk.load(C[c + at], cols=PART) for c in (gain, bias))
            store_tagged(V[out + at], v * gains + biases, tag)


# -- heads -----------------------------------------------------------------------------------------


@pk.function
def angles_of(C: Any, rope: Any, position: Any, half: int) -> Any:
    """The cosines of a position, then the sines."""
    return [pk.load(C[rope + 2 * position + i], cols=half) for i in range(2)]


@pk.function
def halves_of(V: Any, x: Any, half: int, tag: Any) -> Any:
    """The halves of a head."""
    return [load_tagged(V[x + i], tag, cols=half) for i in range(2)]


@pk.function
def store_rotated(V: Any, out: Any, a: Any, b: Any, angles: Any, tag: Any) -> None:
    """Store a head whose halves are given, rotated."""
    cos, sin = angles
    store_tagged(V[out], a * cos - b * sin, tag)
    store_tagged(V[out + 1], b * cos + a * sin, tag)


def rotary(isa, V, C, *, x, rope, out, first, last, row, position, tag):  # type: ignore[no-untyped-def]
    """V[out] = V[x] rotated by the angles of the position, heads first to last.

    C[rope] has for each position the cosines of a half of a head, then the sines.
    """
    half = isa.head // 2
    with pk.consumers(2) as g:
        angles = angles_of(C, rope, position[row], half)
        for i in pk.range(first + g, last, 2):
            a, b = halves_of(V, x + 2 * i, half, tag)
            store_rotated(V, out + 2 * i, a, b, angles, tag)


def rotary_bias(isa, V, C, *, x, bias, rope, out, first, last, row, position, tag):  # type: ignore[no-untyped-def]
    """The same of V[x] + C[bias]."""
    half = isa.head // 2
    with pk.consumers(2) as g:
        angles = angles_of(C, rope, position[row], half)
        for i in pk.range(first + g, last, 2):
            more = [pk.load(C[bias + 2 * i + k], cols=half) for k in range(2)]
            a, b = halves_of(V, x + 2 * i, half, tag)
            store_rotated(V, out + 2 * i, a + more[0], b + more[1], angles, tag)


def rotary_norm(isa, V, C, *, x, gain, rope, out, first, last, row, position, tag):  # type: ignore[no-untyped-def]
    """The same of rms_norm(h) * C[gain] of each head h of V[x]."""
    half = isa.head // 2
    with pk.consumers(2) as g:
        angles = angles_of(C, rope, position[row], half)
        gains = [pk.load(C[gain + k], cols=half) for k in range(2)]
        for i in pk.range(first + g, last, 2):
            a, b = halves_of(V, x + 2 * i, half, tag)
            scale = pk.rsqrt(pk.sum(a * a + b * b) / isa.head + isa.eps)
            store_rotated(V, out + 2 * i, a * scale * gains[0], b * scale * gains[1], angles, tag)


def append(isa, V, cache, *, layer, keys, values, row, position, tag):  # type: ignore[no-untyped-def]
    """The keys V[keys] and the values V[values] of all heads of a position to the cache of a layer."""
    size, width = isa.heads * isa.head, isa.of_keys
    with pk.consumers(2) as g:
        x, at = pk.where(g == 0, keys, values), 2 * (layer * isa.batch + row) + g
        for i in pk.range(size // width):
            v = load_tagged(V[x + i], tag, cols=width)
            pk.store(cache[at, position[row], i], v.to(cache.dtype))


def append_scaled(  # type: ignore[no-untyped-def]
    isa, V, cache, *, layer, keys, squares, values, first, last, row, position, tag
):
    """The same of heads first to last; keys are divided by the roots of the mean squares of their heads."""
    with pk.consumers(2) as g:
        x, at = pk.where(g == 0, keys, values), 2 * (layer * isa.batch + row) + g
        for i in pk.range(first, last):
            v = load_tagged(V[x + i], tag, cols=isa.head)
            scale = scale_of_head(load_squares(V, isa, squares + i, tag), isa)
            v = v * pk.where(g == 0, scale, 1.0)
            pk.store(cache[at, position[row], i], v.to(cache.dtype))


@pk.function
def load_squares(V: Any, isa: Any, head: Any, tag: Any) -> Any:
    """The sums of squares of a head, of 32 elements each, in 16 elements each."""
    return load_tagged(V[head], tag, cols=isa.head // 2)


@pk.function
def scale_of_head(squares: Any, isa: Any) -> Any:
    """One over the root of the mean square of a head."""
    return pk.rsqrt(pk.sum(squares) / (UNIT * isa.head) + isa.eps)


# -- the next token --------------------------------------------------------------------------------


def largest(isa, V, *, x, length, first, last, best, at, tag):  # type: ignore[no-untyped-def]
    """The largest of 256 * first to 256 * last of V[x] to V[best + i], where it is to V[at + i], for each group i."""
    with pk.consumers(2) as g:
        most: Any = LEAST
        index: Any = 0.0
        for i in pk.range(first + g, last, 2):
            v = load_tagged(V[x + i], tag, cols=256)
            v = pk.where(pk.iota(256) < length - 256 * i, v, LEAST)
            here = pk.max(v)
            where = (256 * i + pk.argmax(v)).to(f32)
            index, most = pk.where(here > most, where, index), pk.maximum(here, most)
        store_tagged(V[best + g], pk.zeros(f32, UNIT) + most, tag)
        store_tagged(V[at + g], pk.zeros(f32, UNIT) + index, tag)


def choose(isa, V, chosen, following, *, best, at, row, position, tag):  # type: ignore[no-untyped-def]
    """chosen = the first index in V[at] of the largest of V[best], which are those of all blocks; the next position."""
    count = 2 * UNIT * isa.blocks
    with pk.consumers(2) as g:
        if g == 0:
            most = load_tagged(V[best], tag, cols=count)
            where = load_tagged(V[at], tag, cols=count)
            first = pk.min(pk.where(most == pk.max(most), where, 2.0**30))
            pk.store(chosen[row], first.to(pk.int32))
            pk.store(following[row], position[row] + 1)
