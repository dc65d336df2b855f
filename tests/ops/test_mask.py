"""Masks against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from tests.ops.kernels import normal, on_tiles
from tests.refusals import refused

COORDINATE = st.integers(-200, 200)


@pk.kernel
def masked(x, y, row, col, cols, offset, *, causal):
    pk.grid(1)
    t = pk.load(x[0], rows=64, cols=48)
    pk.store(y[0], pk.mask(t, row, col, cols, causal, offset))


@settings(max_examples=60, derandomize=True)
@given(row=COORDINATE, col=COORDINATE, cols=COORDINATE, offset=COORDINATE, causal=st.booleans())
def test_an_element_stays_below_the_width_and_the_diagonal(row, col, cols, offset, causal):
    x, y = normal(0), np.full((64, 48), np.nan, np.float32)
    masked(x, y, row, col, cols, offset, causal=causal)
    for i in range(64):
        for j in range(48):
            stays = col + j < cols and (not causal or col + j <= row + i + offset)
            assert y[i, j] == (x[i, j] if stays else -np.inf)


@pk.kernel
def masked_by_rows(x, y, first, stop, col, *, kind):
    pk.grid(1)
    t = pk.load(x[0], rows=64, cols=pk.static(x.shape[1]))
    bounds = [pk.load(v[0], cols=64, spread=pk.per_row) for v in (first, stop)]
    low, high = (
        v if kind in ("both", k) else None for k, v in zip(("low", "high"), bounds, strict=True)
    )
    pk.store(y[0], pk.mask(t, 0, col, high, first=low))


@pytest.mark.parametrize("kind", ["both", "low", "high", "none"])
@pytest.mark.parametrize("cols", [48, 128, 144])
def test_bounds_may_be_those_of_each_row(cols, kind):
    rng = np.random.default_rng(cols)
    x, y = normal(0, (64, cols)), np.full((64, cols), np.nan, np.float32)
    first, stop = (rng.integers(-20, cols + 60, 64).astype(np.int32) for _ in range(2))
    masked_by_rows(x, y, first, stop, 30, kind=kind)
    j = np.arange(30, 30 + cols)
    stays = (j >= first[:, None]) | (kind in ("high", "none"))
    stays &= (j < stop[:, None]) | (kind in ("low", "none"))
    assert (y == np.where(stays, x, -np.inf)).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda t: pk.mask(t, 0, 0, pk.row_index(128)),
            "`cols` must be an int32, or a per-row int32 vector of 64 elements",
        ),
        (
            lambda t: pk.mask(t, 0, 0, 8, first=pk.col_index(64)),
            "`first` must be an int32, or a per-row int32 vector of 64 elements",
        ),
        (lambda t: pk.mask(t.to(pk.int32), 0, 0, 8), "must be a register tile of floats"),
        (lambda t: pk.mask(t, 0.5, 0, 8), "`row` must be an int32, not 0.5"),
        (lambda t: pk.mask(t, 0, 0, 8, causal=1), "`causal` must be a compile-time bool"),
    ],
)
def test_what_cannot_be_masked_is_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))
