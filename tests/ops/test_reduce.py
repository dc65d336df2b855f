"""Reductions against NumPy in float64."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from tests import tolerance
from tests.ops.kernels import BF16, F16, F32, INT32, normal, on_tiles, on_vectors
from tests.tolerance import assert_within

FLOATS = pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)


@FLOATS
def test_a_row_sum_is_rounded_once(dtype):
    a = normal(0, dtype=dtype)
    found = on_tiles(lambda t: t * 0 + pk.row_sum(t), a)
    exact = a.astype(np.float64).sum(axis=1, keepdims=True) * np.ones((1, 48))
    magnitude = np.abs(a.astype(np.float64)).sum(axis=1, keepdims=True)
    assert_within(found, exact, tolerance.product(dtype, exact, magnitude, 48))


@FLOATS
@pytest.mark.parametrize("length", [1, 33, 1000])
def test_a_sum_and_a_maximum_of_a_vector(dtype, length):
    a = normal(0, (length,), dtype)
    found = on_vectors(lambda v: v * 0 + pk.sum(v), a, length=length)
    exact = np.full(length, a.astype(np.float64).sum())
    magnitude = np.abs(a.astype(np.float64)).sum()
    assert_within(found, exact, tolerance.product(dtype, exact, magnitude, length))
    assert (on_vectors(lambda v: v * 0 + pk.max(v), a, length=length) == a.max()).all()


def test_a_row_maximum_is_exact_and_propagates_nan():
    a = normal(0)
    a[5, 7] = np.nan
    a[6] = -np.inf
    found = on_tiles(lambda t: pk.zeros(pk.f32, 64, 48) + pk.row_max(t), a)
    assert np.array_equal(
        found, np.repeat(a.max(axis=1, keepdims=True), 48, axis=1), equal_nan=True
    )


def test_integers_are_summed_exactly():
    a = np.arange(100, dtype=INT32)
    assert (on_vectors(lambda v: v * 0 + pk.sum(v), a, length=100) == 4950).all()
    assert (on_vectors(lambda v: v * 0 + pk.max(v - 200), a, length=100) == -101).all()


def test_a_sum_of_integers_that_overflows_is_refused():
    with pytest.raises(pk.KernelError, match="sum: .* overflows an int32"):
        on_vectors(lambda v: v * 0 + pk.sum(v), np.full(4, 2**30, INT32), length=4)


@pytest.mark.parametrize(("function", "expected"), [(pk.max, -np.inf), (pk.sum, 0.0)])
def test_a_reduction_of_nothing_gives_what_changes_nothing(function, expected):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        nothing = pk.load(x[0], cols=0)
        pk.store(y[0], pk.zeros(pk.f32, 8) + function(nothing))

    y = np.full((1, 8), np.nan, np.float32)
    kernel(np.zeros((1, 0), np.float32), y)
    assert (y == expected).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: pk.max(t), r"pk.row_max\(...\) reduces the rows of a tile"),
        (lambda t: t + pk.sum(pk.row_sum(t)), "must be a plain register vector"),
        (lambda t: t + pk.row_sum(t > 0.0), "takes float or int operands, not bool"),
        (lambda t: t + pk.row_sum(pk.row_sum(t)), r"pk.sum\(...\) reduces a plain vector"),
    ],
)
def test_operands_that_do_not_fit_are_refused(function, message):
    with pytest.raises(pk.KernelError) as caught:
        on_tiles(function, normal(0))
    assert re.search(message, str(caught.value))
