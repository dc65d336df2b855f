"""Tensors have edges, stages hold NaN until they are filled, and a wild access is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.errors import AccessError
from tests.running import UNWRITTEN, put, stored

BF16 = np.dtype(ml_dtypes.bfloat16)
ONES = np.ones((64, 64), BF16)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def test_what_was_never_filled_reads_as_nan():
    @pk.kernel
    def kernel(C):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill():
            pass
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_AB(t, t)
            pk.store(C[0], c)

    C = np.zeros((64, 64), np.float32)
    kernel(C)
    assert np.isnan(C).all()


def test_a_leading_index_outside_its_axis_is_a_wild_access():
    @pk.kernel
    def kernel(x, i):
        pk.grid(1)
        t = pk.load(x[i, 0, 0], cols=8)
        pk.store(x[0, 1, 0], t)

    x = np.zeros((3, 2, 8), np.float32)
    kernel(x, 2)
    for i in (3, -1):
        with pytest.raises(AccessError, match=f"index {i} of axis 0 is outside `x`") as caught:
            kernel(x, i)
        assert "pk.load(x[i, 0, 0], cols=8)" in str(caught.value)


def test_a_part_outside_its_tile_is_a_wild_access():
    @pk.kernel
    def kernel(A, i):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t.tiles(32, 64)[i], A[0])
        with pk.storer(), ring.drain() as t:
            pk.store_async(A[0], t)

    with pytest.raises(
        AccessError, match=r"part \(2, 0\) of 32x64 is outside a shared tile of 64x64"
    ):
        kernel(ONES.copy(), 2)


@pytest.mark.parametrize("row", [-70, -1, 1, 4, 1000])
def test_the_last_two_axes_have_edges(row):
    @pk.kernel
    def kernel(x, y, row):
        pk.grid(1)
        pk.store(y[0], pk.load(x[row], rows=64, cols=32, fill=3))
        pk.store(x[row], pk.zeros(f32, 64, 32) + 7.0)

    x = np.arange(300 * 20, dtype=np.float32).reshape(300, 20)
    before, y = x.copy(), nan(64, 32)
    kernel(x, y, row)
    inside = np.zeros((300, 20), bool)
    inside[max(row * 64, 0) : max(row * 64 + 64, 0)] = True
    expected = np.full((64, 32), 3.0)
    for i in range(64):
        if 0 <= row * 64 + i < 300:
            expected[i, :20] = before[row * 64 + i]
    assert np.array_equal(y, expected)
    assert (x[inside] == 7).all()
    assert np.array_equal(x[~inside], before[~inside])


def test_what_is_stored_outside_is_dropped():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, n, 1)

    out = np.full((2, 8), UNWRITTEN, np.int32)
    kernel(out, 2)
    assert (out == UNWRITTEN).all()
    assert stored(kernel, 1, rows=2) == [None, 1]
