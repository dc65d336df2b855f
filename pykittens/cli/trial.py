"""The small kernel that `pykittens doctor` runs and compiles, and what it should give."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk


@pk.kernel
def centred(x: Any, y: Any) -> None:
    """y = x minus the largest of its row, 64 rows and columns a block."""
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    tile = pk.load(x[row, col], rows=64, cols=64, fill=-pk.inf)
    pk.store(y[row, col], tile - pk.row_max(tile))


def arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An input of one tile's columns, always the same, and an output of NaN."""
    x = np.random.default_rng(0).standard_normal((100, 50)).astype(np.float32)
    return x, np.full_like(x, np.nan)


def is_right(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Whether y is what the kernel makes of x; it is one subtraction in f32, so it is exact."""
    return np.array_equal(y, x - x.max(axis=1, keepdims=True))
