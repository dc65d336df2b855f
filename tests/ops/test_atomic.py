"""Stores that combine: rounded once a store, NaN kept, in tensors only."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.nodes import written
from tests.ops.kernels import BF16, F16, normal
from tests.running import recorded


@pk.kernel
def combine(x, y, *, op):
    pk.grid(1)
    pk.store(y, pk.load(x, cols=8), op=op)


@pytest.mark.parametrize("dtype", [BF16, F16, np.float32])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_a_nan_on_either_side_stays(dtype, op):
    x, y = np.zeros(8, dtype), np.ones(8, dtype)
    x[2] = y[5] = np.nan
    combine(x, y, op=op)
    assert np.flatnonzero(np.isnan(y.astype(np.float32))).tolist() == [2, 5]


def test_each_store_is_rounded_to_the_dtype():
    x, y = np.full(8, 1, BF16), np.full(8, 256, BF16)
    combine(x, y, op="add")
    assert (y == 256).all()  # 257 lies between 256 and 258, and goes to the even one


def test_a_sum_of_integers_wraps():
    x, y = np.full(8, 1, np.int32), np.full(8, 2**31 - 1, np.int32)
    combine(x, y, op="add")
    assert (y == -(2**31)).all()


def test_a_tensor_that_is_combined_with_counts_as_written():
    x = normal(0, (8,))
    assert written(recorded(combine, x, x.copy(), op="add")) == ["y"]
