"""Conversions and zeros."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f16, f32, int32
from tests.ops.kernels import BF16, F16, F32, INT32, normal, on_tiles, on_vectors
from tests.refusals import refused


@pytest.mark.parametrize(("dtype", "numpy"), [(bf16, BF16), (f16, F16)], ids=str)
def test_a_conversion_rounds_to_nearest_even(dtype, numpy):
    a = normal(0) * 100
    assert np.array_equal(on_tiles(lambda t: t.to(dtype), a, dtype=numpy), a.astype(numpy))
    halves = np.array([1 + k * float(2.0**-12) for k in range(64)], np.float32)
    found = on_vectors(lambda v: v.to(dtype), halves, dtype=numpy, length=64)
    assert np.array_equal(found, halves.astype(numpy))


def test_a_wider_dtype_holds_the_same_number():
    a = normal(0, dtype=BF16)
    assert np.array_equal(on_tiles(lambda t: t.to(f32), a, dtype=F32), a.astype(np.float32))
    assert np.array_equal(on_tiles(lambda t: t.to(f32).to(bf16), a), a)


def test_a_float_is_truncated_to_an_int():
    a = np.array([-2.7, -0.5, 0.5, 1.0, 2.7, 100.9, -7.0, 3.5], np.float32)
    found = on_vectors(lambda v: v.to(int32), a, dtype=INT32, length=8)
    assert found.tolist() == [-2, 0, 0, 1, 2, 100, -7, 3]


def test_nan_and_infinity_stay():
    a = np.array([np.nan, np.inf, -np.inf, 1e38, 0, -0.0, 1, 2], np.float32)
    found = on_vectors(lambda v: v.to(f16), a, dtype=F16, length=8)
    with np.errstate(over="ignore"):
        assert np.array_equal(found, a.astype(F16), equal_nan=True)
    assert np.signbit(found[5])


def test_zeros_are_zero_in_every_dtype():
    for dtype, numpy in ((bf16, BF16), (f16, F16), (f32, F32), (int32, INT32)):
        found = on_tiles(lambda t: pk.zeros(dtype, 64, 48), np.ones((64, 48), numpy))  # noqa: B023
        assert (found == 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pk.zeros(f32, 24, 16), "`rows` must be a multiple of 64 for a group of 4 warps"),
        (lambda: pk.zeros(f32, 64, 0), "`cols` must be a positive compile-time int"),
        (lambda: pk.zeros(f32, 0), "`rows` must be a positive compile-time int, not 0"),
        (lambda: pk.zeros("f32", 64, 16), "`dtype` must be a dtype such as pk.f32, not 'f32'"),
        (lambda: pk.zeros(f32, 64, 16).to(float), "`dtype` must be a dtype such as pk.f32"),
    ],
)
def test_what_cannot_be_made_is_refused(make, message):
    with refused(message):
        on_tiles(lambda t: make(), normal(0))
