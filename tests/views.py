"""Arrays of the same values with different layouts in memory, and a guard around those a kernel writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Layout = Callable[[tuple[int, ...], Any], tuple[Array, Array]]


def contiguous(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """A separate array, and the same array."""
    whole = np.full(shape, np.nan, dtype)
    return whole, whole


def sliced(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """The inside of a larger array: an offset base and rows further apart than they are wide."""
    whole = np.full(tuple(n + 11 for n in shape), np.nan, dtype)
    return whole[tuple(slice(3, 3 + n) for n in shape)], whole


def wide(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """Aligned rows further apart than they are wide: the copy engine can address it."""
    whole = np.full((*shape[:-1], -(-shape[-1] // 8) * 8 + 16), np.nan, dtype)
    return whole[..., : shape[-1]], whole


def heads_inside(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """(batch, heads, n, d) as a view of (batch, n, heads, d)."""
    b, h, n, d = shape
    whole = np.full((b, n, h, d), np.nan, dtype)
    return whole.transpose(0, 2, 1, 3), whole


def filled(layout: Layout, values: Array) -> Array:
    """These values in that layout."""
    view, _ = layout(values.shape, values.dtype)
    view[...] = values
    return view


def result_of(view: Array, whole: Array) -> Array:
    """What was written to a view; fails if something was written beside it."""
    found = view.copy()
    view[...] = np.nan
    assert np.isnan(whole).all(), "elements outside the view were written"
    return found
