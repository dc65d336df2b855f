"""Random bits: known answers, and that they depend on coordinates alone."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.ops.random import philox

# Known answers of Random123, file kat_vectors, philox4x32 of 10 rounds: counter, key, words.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text):
    return tuple(int(w, 16) for w in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_the_generator_gives_the_known_answers(counter, key, expected):
    assert tuple(int(w) for w in philox(words(counter), words(key))) == words(expected)


def drawn(rows, cols, row=0, col=0, warps=1, **words_):
    @pk.kernel(warps=warps)
    def draw(y):
        pk.grid(1)
        pk.store(y[0], pk.random_bits(7, row, col, rows=rows, cols=cols, **words_))

    y = np.zeros((rows, cols), np.int32)
    draw(y)
    return y


def test_bits_depend_on_coordinates_not_on_the_tile_or_its_warps():
    whole = drawn(64, 96)
    assert np.array_equal(drawn(64, 96, warps=4), whole)
    assert np.array_equal(drawn(16, 32, row=48, col=53), whole[48:64, 53:85])


@pytest.mark.parametrize("change", [{"stream": 1}, {"seed_high": 1}, {"row": 1}, {"col": 1}])
def test_bits_of_another_seed_stream_or_place_are_others(change):
    same = drawn(64, 64) == drawn(64, 64, **change)
    assert same.mean() < 0.01


def test_uniform_numbers_fill_their_range_evenly():
    @pk.kernel
    def draw(y):
        pk.grid(1)
        pk.store(y[0], pk.uniform(pk.random_bits(3, 0, 0, rows=128, cols=128)))

    y = np.full((128, 128), np.nan, np.float32)
    draw(y)
    assert y.min() >= 0
    assert y.max() < 1
    counts, _ = np.histogram(y, 16, (0, 1))
    # A count is binomial: within 5 deviations but for one draw in a million.
    assert np.abs(counts - 1024).max() < 5 * np.sqrt(1024)


def test_a_seed_that_is_no_int32_is_refused():
    with pytest.raises(pk.KernelError, match="`seed` must be an int32, not 1.5"):
        pk.kernel(_float_seed)(np.zeros((64, 64), np.int32))


def _float_seed(y):
    pk.grid(1)
    pk.store(y[0], pk.random_bits(1.5, 0, 0, rows=64, cols=64))
