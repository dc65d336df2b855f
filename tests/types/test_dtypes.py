"""Element types: the numbers that they can represent."""

from __future__ import annotations

import math

import pytest

import pykittens as pk
from pykittens.types.dtypes import DTYPES, bf16, bool_, f16, f32, int32


@pytest.mark.parametrize(
    ("dtype", "value", "has"),
    [
        (f16, 65504.0, True),
        (f16, 65520.0, False),
        (bf16, 65520.0, True),
        (bf16, 3.4e38, False),
        (f32, 3.4e38, True),
        (f32, 1e39, False),
        (f16, -math.inf, True),
        (f32, math.nan, True),
        (f16, 0.1, True),
        (int32, 2**31 - 1, True),
        (int32, 2**31, False),
        (int32, 0.5, False),
        (int32, math.nan, False),
        (int32, 10**400, False),
        (f32, 10**400, False),
        (f32, 2**100, True),
        (bool_, 1, True),
        (bool_, 2, False),
    ],
)
def test_a_dtype_has_the_numbers_it_can_round_to(dtype, value, has):
    assert dtype.represents(value) is has


def test_a_dtype_has_the_name_that_a_kernel_imports():
    assert all(eval(d.word, {"pk": pk}) is d for d in DTYPES.values())


def test_sizes_and_epsilons_are_numpy_s():
    assert {d.name: d.bytes for d in DTYPES.values()} == {
        n: d.numpy.itemsize for n, d in DTYPES.items()
    }
    assert (bf16.epsilon, f16.epsilon, f32.epsilon, int32.epsilon) == (2**-7, 2**-10, 2**-23, 0)


def test_sixteen_bit_floats_are_computed_in_f32():
    assert (bf16.compute, f16.compute, f32.compute, int32.compute) == (f32, f32, f32, int32)
