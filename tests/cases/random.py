"""Random bits against the generator written out in Python's integers, word by word."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import f32, int32
from tests.cases.core import Array, Case

WORD = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of one counter."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = second >> 32 ^ b ^ k0, second & WORD, first >> 32 ^ d ^ k1, first & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return a, b, c, d


def expected(
    seed: int, high: int, row: int, col: int, stream: int, shape: tuple[int, int]
) -> Array:
    """The bits of a tile whose first element has these coordinates."""
    key = (seed & WORD, high & WORD)
    bits = np.empty(shape, np.uint32)
    for r in range(shape[0]):
        for c in range(shape[1]):
            at = (col + c + 2**31 & WORD) - 2**31
            counter = (at >> 2 & WORD, row + r & WORD, stream & WORD, 0)
            bits[r, c] = philox(counter, key)[at & 3]
    return bits.view(np.int32)


def _tile(col: int, rows: int, cols: int, warps: int) -> Case:
    @pk.kernel(warps=warps)
    def draw(bits, numbers, seed, row, first):
        pk.grid(1)
        drawn = pk.random_bits(seed, row, first, rows=rows, cols=cols, stream=5, seed_high=-9)
        pk.store(bits[0], drawn)
        pk.store(numbers[0], pk.uniform(drawn))

    def exact(seed: int, row: int, col: int) -> list[Array]:
        bits = expected(seed, -9, row, col, 5, (rows, cols))
        return [bits, (bits.view(np.uint32) >> 8) / 2**24]

    return Case(
        f"random-tile-{col}-{rows}x{cols}-{warps}",
        ("random_bits",),
        draw,
        lambda rng: [],
        (((rows, cols), int32), ((rows, cols), f32)),
        exact,
        scalars=(-123456789, 1000, col),
    )


def _vector(col: int, length: int, warps: int) -> Case:
    @pk.kernel(warps=warps)
    def draw(bits, seed, first):
        pk.grid(1)
        pk.store(bits, pk.random_bits(seed, 7, first, cols=length))

    return Case(
        f"random-vector-{col}-{length}-{warps}",
        ("random_bits",),
        draw,
        lambda rng: [],
        (((length,), int32),),
        lambda seed, col: [expected(seed, 0, 7, col, 0, (1, length))[0]],
        scalars=(2**31 - 1, col),
    )


CASES = [_tile(c, 64, 48, 4) for c in (0, 64, 3, -5, 2**31 - 20)]
CASES += [_tile(8, 32, 16, 1), _tile(2, 128, 32, 8)]
CASES += [_vector(c, n, w) for c in (0, 5) for n, w in ((1, 4), (45, 1), (1001, 4), (3000, 8))]
