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


@pytest.mark.parametrize(
    ("function", "expected"), [(pk.max, -np.inf), (pk.min, np.inf), (pk.sum, 0.0), (pk.prod, 1.0)]
)
def test_a_reduction_of_nothing_gives_what_changes_nothing(function, expected):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        nothing = pk.load(x[0], cols=0)
        pk.store(y[0], pk.zeros(pk.f32, 8) + function(nothing))

    y = np.full((1, 8), np.nan, np.float32)
    kernel(np.zeros((1, 0), np.float32), y)
    assert (y == expected).all()


@pytest.mark.parametrize(("function", "expected"), [(pk.max, -128), (pk.min, 127), (pk.sum, 0)])
def test_a_reduction_of_no_integers_stays_in_their_range(function, expected):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y, pk.full(pk.int8, function(pk.load(x, cols=0)), 8))

    y = np.full(8, 5, np.int8)
    kernel(np.zeros(0, np.int8), y)
    assert (y == expected).all()


def test_the_place_of_nothing_is_refused():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y, pk.iota(8) + pk.argmax(pk.load(x, cols=0)))

    with pytest.raises(pk.KernelError, match="`x` must have at least one element, not 0"):
        kernel(np.zeros(0, np.float32), np.zeros(8, np.int32))


def test_a_product_of_integers_that_overflows_is_refused_however_large():
    with pytest.raises(pk.KernelError, match="prod: .* overflows an int32"):
        on_vectors(lambda v: v * 0 + pk.prod(v), np.full(64, 2, INT32), length=64)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: t + pk.sum(pk.max(t)), "must be a register tile or vector, not f32"),
        (lambda t: t + pk.row_sum(t > 0.0), "`.to\\(pk.int32\\)` converts a bool to 0 or 1"),
        (lambda t: t + pk.row_sum(pk.row_sum(t)), r"pk.sum\(...\) reduces a vector"),
        (lambda t: t + pk.col_sum(pk.row_sum(t)), r"pk.sum\(...\) reduces a vector"),
        (lambda t: t + pk.all(t), "takes bool operands, not f32"),
        (lambda t: t + pk.sum(3), "takes a register tile or vector, not a number"),
    ],
)
def test_operands_that_do_not_fit_are_refused(function, message):
    with pytest.raises(pk.KernelError) as caught:
        on_tiles(function, normal(0))
    assert re.search(message, str(caught.value))
