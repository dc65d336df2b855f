"""Loads and stores: edges, fills, views of tensors of any rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import TypeMismatch
from tests.ops.kernels import BF16, INT32, normal, poisoned


@pk.kernel
def move(x, y, i, j, k, l, *, fill):
    pk.grid(1)
    pk.store(y[k, l], pk.load(x[i, j], rows=64, cols=32, fill=fill))


def box(x, i, j, fill):
    found = np.full((64, 32), fill, x.dtype)
    for r in range(64):
        for c in range(32):
            row, col = i * 64 + r, j * 32 + c
            if 0 <= row < x.shape[0] and 0 <= col < x.shape[1]:
                found[r, c] = x[row, col]
    return found


TILE = st.integers(-2, 3)


@settings(max_examples=40, derandomize=True)
@given(i=TILE, j=TILE, k=TILE, l=TILE, rows=st.integers(1, 150), cols=st.integers(1, 80))
def test_outside_a_tensor_is_read_as_the_fill_and_not_written(i, j, k, l, rows, cols):
    x = normal(0, (rows, cols))
    y = poisoned((100, 50), np.float32)
    move(x, y, i, j, k, l, fill=2.5)
    tile = box(x, i, j, 2.5)
    expected = poisoned((100, 50), np.float32)
    for r in range(64):
        for c in range(32):
            if 0 <= k * 64 + r < 100 and 0 <= l * 32 + c < 50:
                expected[k * 64 + r, l * 32 + c] = tile[r, c]
    assert np.array_equal(y, expected, equal_nan=True)


@pytest.mark.parametrize("fill", [0, -pk.inf, 1.5])
def test_the_fill_is_a_number_of_the_dtype(fill):
    x, y = normal(0, (10, 10), BF16), poisoned((64, 32), BF16)
    move(x, y, 0, 0, 0, 0, fill=fill)
    assert np.array_equal(y, box(x, 0, 0, fill))
    with pytest.raises(pk.KernelError, match="`fill` must be a number that int32 can represent"):
        move(np.zeros((10, 10), INT32), np.zeros((64, 32), INT32), 0, 0, 0, 0, fill=1.5)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_vector_is_moved_from_and_to_tensors_of_any_rank(rank):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        index = (i,) * (rank - 1) + (1,)
        pk.store(y[index], pk.load(x[index], cols=7, fill=9))

    shape = (3,) * (rank - 1) + (10,)
    x, y = normal(0, shape), poisoned(shape, np.float32)
    kernel(x, y, 2)
    place = (2,) * (rank - 1)
    assert np.array_equal(y[place][7:], x[place][7:])
    assert np.isnan(y).sum() == y.size - 3


def test_an_omitted_index_is_zero():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x, rows=64, cols=16))
        pk.store(y[1], pk.load(x[1], rows=64, cols=16))

    x, y = normal(0, (128, 16)), poisoned((128, 16), np.float32)
    kernel(x, y)
    assert np.array_equal(y, x)


def test_each_axis_of_three_has_an_index():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[..., 1], cols=8))
        pk.store(y[1], pk.load(x[1, ..., 1], cols=8))
        pk.store(y[2], pk.load(x.at(1)[2], cols=8))
        pk.store(y[3], pk.load(x.at(1), cols=8))

    x, y = normal(0, (2, 3, 16)), poisoned((4, 8), np.float32)
    kernel(x, y)
    assert np.array_equal(y, [x[0, 0, 8:], x[1, 0, 8:], x[1, 2, :8], x[1, 0, :8]])
    for index in (0, (0, 0), (1, 2)):

        @pk.kernel
        def lacking(x, y, *, index):
            pk.grid(1)
            pk.store(y, pk.load(x[index], cols=8))

        with pytest.raises(TypeMismatch, match="for a tensor of rank 3"):
            lacking(x, y, index=index)


def test_bools_are_moved():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], cols=8)
        pk.store(y[0], pk.where(t, pk.zeros(pk.f32, 8) + 1.0, 0.0))

    x = np.array([[1, 0, 1, 1, 0, 0, 1, 0]], bool)
    y = poisoned((1, 8), np.float32)
    kernel(x, y)
    assert np.array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize(("warps", "most"), [(1, 6144), (4, 24576)])
def test_a_vector_fills_the_registers_of_its_group_and_no_more(warps, most):
    @pk.kernel(warps=warps)
    def kernel(x, y):
        pk.grid(1)
        n = pk.static(x.cols)
        pk.store(y[0], pk.load(x[0], cols=n))

    x, y = normal(0, (1, most)), poisoned((1, most), np.float32)
    kernel(x, y)
    assert np.array_equal(x, y)
    with pytest.raises(pk.KernelError, match=f"must be at most {most}, the capacity"):
        kernel(normal(0, (1, most + 1)), poisoned((1, most + 1), np.float32))


@pk.kernel
def move_transposed(x, y, i, j, k, l, *, fill):
    pk.grid(1)
    t = pk.load(x[i, j], rows=64, cols=32, fill=fill, transposed=True)
    pk.store(y[k, l], t, transposed=True)


@settings(max_examples=30, derandomize=True)
@given(i=TILE, j=TILE, k=TILE, l=TILE, rows=st.integers(1, 80), cols=st.integers(1, 150))
def test_a_transposed_tile_has_the_edges_of_the_tile_that_lies_there(i, j, k, l, rows, cols):
    x, y = normal(0, (rows, cols)), poisoned((50, 100), np.float32)
    move_transposed(x, y, i, j, k, l, fill=2.5)
    expected = poisoned((100, 50), np.float32)
    move(np.ascontiguousarray(x.T), expected, j, i, l, k, fill=2.5)
    assert np.array_equal(y, expected.T, equal_nan=True)


def test_a_transpose_that_is_stored_is_the_tile_turned_in_registers():
    @pk.kernel
    def kernel(x, y, z):
        pk.grid(1)
        t = pk.load(x, rows=64, cols=64)
        pk.store(y, t, transposed=True)
        pk.store(z, pk.transpose(t))

    x = normal(0, (64, 64))
    y, z = poisoned((64, 64), np.float32), poisoned((64, 64), np.float32)
    kernel(x, y, z)
    assert np.array_equal(y, x.T)
    assert np.array_equal(z, y)
