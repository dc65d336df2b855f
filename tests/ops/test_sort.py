"""Rows in order: ties, NaN and zeros, results of several values, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk


def ordered(x, sort, cols=16):
    @pk.kernel(warps=1)
    def kernel(x, values, indices):
        pk.grid(1)
        found, at = sort(pk.load(x[0], rows=16, cols=x_cols))
        pk.store(values[0], found)
        pk.store(indices[0], at)

    x_cols = x.shape[1]
    values, indices = np.zeros((16, cols), x.dtype), np.zeros((16, cols), np.int32)
    kernel(x, values, indices)
    return values, indices


ROW = np.array([3, np.nan, -np.inf, 3, 0, -0.0, np.inf, np.nan, *[1] * 8], np.float32)


def test_nan_is_above_all_and_the_first_of_equals_stays_first():
    x = np.tile(ROW, (16, 1))
    values, indices = ordered(x, lambda t: pk.row_sort(t))
    assert indices[0].tolist() == [2, 4, 5, *range(8, 16), 0, 3, 6, 1, 7]
    assert not np.signbit(values[0, 1:3]).any()
    _, indices = ordered(x, lambda t: pk.row_sort(t, descending=True))
    assert indices[0].tolist() == [1, 7, 6, 0, 3, *range(8, 16), 4, 5, 2]


def test_the_columns_past_the_last_taken_change_no_maximum():
    x = np.tile(ROW, (16, 1))
    values, indices = ordered(x, lambda t: pk.row_topk(t, 3))
    assert indices[0].tolist() == [1, 7, 6, *[-1] * 13]
    assert values[0, 2:].tolist() == [np.inf, *[-np.inf] * 13]
    values, _ = ordered(np.zeros((16, 16), np.int32), lambda t: pk.row_topk(t, 3, largest=False))
    assert (values[:, 3:] == 2**31 - 1).all()


def test_a_sorted_tile_can_be_carried_round_a_loop():
    @pk.kernel(warps=1)
    def kernel(x, y, n):
        pk.grid(1)
        t = pk.load(x[0], rows=16, cols=16)
        for _ in pk.range(n):
            t, at = pk.row_sort(t, descending=True)
            t = t + at
        pk.store(y[0], t)

    x = np.random.default_rng(0).integers(-9, 9, (16, 16)).astype(np.int32)
    y, wanted = np.zeros_like(x), x
    for _ in range(3):
        at = np.argsort(-wanted, axis=1, kind="stable")
        wanted = np.take_along_axis(wanted, at, 1) + at
    kernel(x, y, 3)
    assert (y == wanted).all()


@pytest.mark.parametrize(
    ("cols", "sort", "message", "help"),
    [
        (
            48,
            lambda t: pk.row_sort(t),
            "row_sort: `tile` must have 16, 32, 64, 128 or 256 columns, not 48",
            "pk.concat(tile, pk.full(pk.f32, value, 16, 16), axis=1) adds 16 columns",
        ),
        (512, lambda t: pk.row_sort(t), "not 512", "pk.row_topk(tile, k) gives the first 32"),
        (16, lambda t: pk.row_topk(t, 17), "`k` must be a compile-time int from 1 to 16", ""),
        (64, lambda t: pk.row_topk(t, 33), "`k` must be a compile-time int from 1 to 32", ""),
        (16, lambda t: pk.row_topk(t > 0, 3), "`tile` must be float or int", "pk.int32"),
    ],
)
def test_what_cannot_be_sorted_is_refused(cols, sort, message, help):
    with pytest.raises(pk.KernelError) as caught:
        ordered(np.zeros((16, cols), np.float32), sort)
    assert message in str(caught.value)
    assert help in str(caught.value)
