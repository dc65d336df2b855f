"""Kernels that apply one function to tiles or vectors, for comparisons of an operation with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
INT32 = np.dtype(np.int32)
ROWS, COLS = 64, 48


def poisoned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.full(shape, np.nan if np.dtype(dtype) != INT32 else -(2**31) + 7, dtype)


def on_tiles(function: Callable[..., Any], *arrays: np.ndarray, dtype: Any = None) -> np.ndarray:
    """`function` of 64x48 tiles, one for each of up to three arrays; it gives a tile of the result's dtype."""
    count = len(arrays)

    @pk.kernel
    def apply(a, b, c, out):
        pk.grid(1)
        tiles = [pk.load(x[0], rows=ROWS, cols=COLS) for x in (a, b, c)]
        result = function(*tiles[:count])
        pk.store(out[0], result)

    out = poisoned((ROWS, COLS), dtype if dtype is not None else arrays[0].dtype)
    apply(*arrays, *arrays[:1] * (3 - len(arrays)), out)
    return out


def on_vectors(
    function: Callable[..., Any], *arrays: np.ndarray, dtype: Any = None, length: int
) -> np.ndarray:
    """`function` of plain vectors of this length, one for each of up to two arrays."""
    count = len(arrays)

    @pk.kernel
    def apply(a, b, out):
        pk.grid(1)
        vectors = [pk.load(x, cols=length) for x in (a, b)]
        pk.store(out, function(*vectors[:count]))

    out = poisoned((length,), dtype if dtype is not None else arrays[0].dtype)
    apply(*arrays, *arrays[:1] * (2 - len(arrays)), out)
    return out


def normal(seed: int, shape: tuple[int, ...] = (ROWS, COLS), dtype: Any = F32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
