"""Logic on bools of tiles, vectors and scalars."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from tests.ops.kernels import normal, on_tiles
from tests.refusals import refused
from tests.running import put, stored

CHOICES = {
    "and": (lambda a, b: pk.logical_and(a, b), np.logical_and),
    "or": (lambda a, b: pk.logical_or(a, b), np.logical_or),
    "xor": (lambda a, b: pk.logical_xor(a, b), np.logical_xor),
    "&": (lambda a, b: a & b, np.logical_and),
    "|": (lambda a, b: a | b, np.logical_or),
    "^": (lambda a, b: a ^ b, np.logical_xor),
}


@pytest.mark.parametrize("name", CHOICES)
def test_truths_are_joined_element_by_element(name):
    ours, theirs = CHOICES[name]
    a, b = normal(0), normal(1)
    found = on_tiles(lambda x, y: pk.where(ours(x > 0.0, y > 0.5), x, y), a, b)
    assert np.array_equal(found, np.where(theirs(a > 0, b > 0.5), a, b))


def test_a_truth_of_rows_goes_with_one_of_a_tile_a_scalar_and_python_s():
    a = normal(0)
    high = a.max(axis=1, keepdims=True) > 2

    def function(t):
        rows = pk.row_max(t) > 2.0
        both = pk.logical_and(rows, t > 0.0) | ~rows & (pk.logical_not(t > 0.0) ^ True)
        return pk.where(both, t, 0.0)

    assert np.array_equal(on_tiles(function, a), np.where(a > 0, a, 0))
    assert high.any()
    assert not high.all()


def test_truths_of_scalars_and_of_python():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        small, even = n < 10, n % 2 == 0
        for i, truth in enumerate(
            [small & even, small | even, small ^ even, ~small, pk.logical_xor(small, True)]
        ):
            put(out, i, truth.to(pk.int32))

    for n in (3, 4, 11, 12):
        a, b = n < 10, n % 2 == 0
        assert stored(kernel, n, rows=5) == [a and b, a or b, a != b, not a, not a]
    assert pk.logical_and(True, False) is False
    assert pk.logical_xor(True, False) is True


def test_a_chain_of_comparisons_of_a_tile_holds_element_by_element():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=48)
        pk.store(y[0], pk.where(-0.5 < t < 0.5, t, 9.0))

    a = normal(0)
    found = np.full_like(a, np.nan)
    kernel(a, found)
    assert np.array_equal(found, np.where((a > -0.5) & (a < 0.5), a, 9))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: pk.logical_and(t, t), "`a` must be a bool, not rt<f32, 64x48>"),
        (lambda t: pk.logical_not(t.to(pk.int32)), "`a` must be a bool"),
        (lambda t: pk.logical_or(t > 0.0, 1), "`b` must be a bool, not 1"),
        (
            lambda t: pk.logical_or(t > 0.0, t[:, 0:16] > 0.0),
            "`b` must be 64x48 like `a`, not rt<bool, 64x16>",
        ),
    ],
)
def test_what_is_no_truth_is_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))
