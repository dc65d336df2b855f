"""Chunks that no side of a matrix cuts have one test; others have one for each element."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk


@pk.kernel(warps=1)
def copied(x, y, *, cols):
    row, col = pk.grid(x.rows, pk.cdiv(x.cols, cols))
    pk.store(y[row, col], pk.load(x[row, col], cols=cols))


@pytest.mark.parametrize(
    ("dtype", "width", "cols", "is_uncut"),
    [
        (ml_dtypes.bfloat16, 264, 256, True),
        (ml_dtypes.bfloat16, 264, 252, False),  # a chunk goes past the end of the vector
        (ml_dtypes.bfloat16, 260, 256, False),  # and one past the end of a row
        (np.float32, 260, 128, True),
        (np.float32, 260, 256, False),  # rows consist of 16 bytes, and chunks of 32
    ],
)
def test_only_whole_chunks_have_one_test(dtype, width, cols, is_uncut):
    pitched = np.zeros((4, 264), dtype)
    text = copied.source(pitched[:, :width], pitched.copy()[:, :width], cols=cols)
    assert ("is_below(at_row" in text.split("copied(")[-1]) == is_uncut
