"""Rows by index in the emulator: rows with the same index, and rows outside the matrix."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError
from tests.ops.kernels import normal, poisoned


def test_of_rows_with_one_index_the_last_stays():
    @pk.kernel
    def kernel(x, index, y):
        pk.grid(1)
        rows = pk.load(index, cols=64, spread=pk.per_row, fill=-1)
        pk.scatter(y, rows, pk.load(x, rows=64, cols=16))

    x, y = normal(0, (64, 16)), poisoned((3, 16), np.float32)
    kernel(x, np.array([0, 2, 0, 2, 2], np.int32), y)
    assert np.array_equal(y[[0, 2]], x[[2, 4]])
    assert np.isnan(y[1]).all()


def test_scattering_undoes_gathering_by_a_permutation():
    @pk.kernel
    def kernel(x, index, y):
        pk.grid(1)
        rows = pk.load(index, cols=64, spread=pk.per_row)
        for j in pk.range(2):
            pk.scatter(y[..., j], rows, pk.gather(x[..., j], rows, cols=32))

    x, y = normal(0, (64, 50)), poisoned((64, 50), np.float32)
    kernel(x, np.random.default_rng(0).permutation(64), y)
    assert np.array_equal(x, y)


def test_a_leading_index_outside_its_axis_is_a_wild_access():
    @pk.kernel
    def kernel(x, index, y, i):
        pk.grid(1)
        rows = pk.load(index, cols=64, spread=pk.per_row)
        pk.store(y, pk.gather(x.at(i), rows, cols=16))

    x, y = normal(0, (2, 5, 16)), poisoned((64, 16), np.float32)
    kernel(x, np.zeros(64, np.int64), y, 1)
    assert np.array_equal(y, np.broadcast_to(x[1, 0], y.shape))
    with pytest.raises(AccessError, match="index 2 of axis 0 is outside `x`"):
        kernel(x, np.zeros(64, np.int64), y, 2)
