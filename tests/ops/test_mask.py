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


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: pk.mask(t.to(pk.int32), 0, 0, 8), "must be a register tile of floats"),
        (lambda t: pk.mask(t, 0.5, 0, 8), "`row` must be an int32, not 0.5"),
        (lambda t: pk.mask(t, 0, 0, 8, causal=1), "`causal` must be a compile-time bool"),
    ],
)
def test_what_cannot_be_masked_is_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))
