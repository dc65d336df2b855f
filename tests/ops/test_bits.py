"""Operations on bits: numbers of Python, scalars that wrap, and what is refused. Tiles and vectors are in the cases."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from tests.ops.kernels import normal, on_tiles
from tests.refusals import refused
from tests.running import first, put, stored


def test_on_numbers_of_python_they_are_done_at_once():
    assert pk.bitwise_and(12, 10) == 8
    assert pk.bitwise_or(12, 10) == 14
    assert pk.bitwise_xor(12, 10) == 6
    assert pk.bitwise_not(5) == -6
    assert pk.shift_left(1, 40) == 2**40
    assert pk.shift_right(-9, 1) == -5
    assert pk.bitwise_not(True) is False


def test_a_scalar_that_is_shifted_wraps():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, n << 1)
        put(out, 1, n << 31)
        put(out, 2, n << 32)
        put(out, 3, n >> 40)
        put(out, 4, -n >> 40)
        put(out, 5, n << -1)

    assert stored(kernel, 2**30 + 1, rows=6) == [-(2**31) + 2, -(2**31), 0, 0, -1, 0]


def test_a_hash_of_scalars_is_that_of_int32():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = n
        for a, b in ((13, 17), (5, 3)):
            x = x ^ (x << a)
            x = x ^ (x >> b)
        put(out, 0, x)

    x = np.int32(123456789)
    for a, b in ((13, 17), (5, 3)):
        x = x ^ (x << np.int32(a))
        x = x ^ (x >> np.int32(b))
    assert first(kernel, 123456789) == x


def test_a_python_number_stands_on_either_side():
    a = np.random.default_rng(0).integers(0, 31, (64, 48), np.int32)
    found = on_tiles(lambda t: (1 << t) ^ (0xFF & t) | (2**20 >> t), a)
    assert np.array_equal(found, (1 << a) ^ (0xFF & a) | (2**20 >> a))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: t & t, "`a` must be int or bool, not f32"),
        (lambda t: ~t, "`a` must be int or bool, not f32"),
        (lambda t: t << 1, "`a` must be int, not f32"),
        (lambda t: (t > 0.0) >> 1, "`a` must be int, not bool"),
        (lambda t: t.to(pk.int32) & (t > 0.0), "must have the same dtype"),
        (lambda t: t.to(pk.int32) & 0.5, "`b` must be a number that int32 can represent, not 0.5"),
        (lambda t: t.to(pk.int8) & 255, "`b` must be a number that int8 can represent, not 255"),
    ],
)
def test_what_has_no_bits_is_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))
