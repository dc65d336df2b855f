"""Arrays of NumPy or PyTorch as the memories of a machine hold them: padded, joined, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.values import describe
from pykittens.runtime.arrays import torch_dtype
from pykittens.types.dtypes import DType

UNIT = 16  # rows of a page, and elements that an instruction writes at least


def rounded(count: int, unit: int) -> int:
    """The count, or the next multiple of a unit."""
    return -(-count // unit) * unit


def dtype_name(x: Any) -> str:
    """The name of the dtype of an array of NumPy or a tensor of PyTorch."""
    return f"{x.dtype}".removeprefix("torch.")


def check_array(name: str, x: Any, dtypes: Sequence[str], axes: int | None) -> None:
    """Raise unless it is an array of NumPy or a tensor of PyTorch, of one of these dtypes, with so many axes."""
    if not isinstance(x, np.ndarray) and not hasattr(x, "new_zeros"):
        raise ArgumentError(
            f"`{name}` must be an array of NumPy or a tensor of PyTorch, not {describe(x)}"
        )
    if dtype_name(x) not in dtypes:
        ways = {
            "bfloat16": ".astype(ml_dtypes.bfloat16), or .bfloat16() of a tensor",
            "float32": ".astype(np.float32), or .float() of a tensor",
        }
        raise ArgumentError(
            f"`{name}` must be {' or '.join(dtypes)}, not {dtype_name(x)}", help=ways[dtypes[0]]
        )
    if 0 in x.shape:
        raise ArgumentError(f"`{name}` must have elements, not the shape {tuple(x.shape)}")
    if axes is not None and len(x.shape) != axes:
        raise ArgumentError(f"`{name}` must have {axes} axes, not the shape {tuple(x.shape)}")


def zeros(like: Any, shape: Sequence[int], dtype: DType | None = None) -> Any:
    """Zeros beside an array, by default of its dtype."""
    if isinstance(like, np.ndarray):
        return np.zeros(shape, like.dtype if dtype is None else dtype.numpy)
    return like.new_zeros(shape, dtype=None if dtype is None else torch_dtype(dtype.name))


def cast(x: Any, dtype: DType) -> Any:
    """An array in another dtype."""
    return x.astype(dtype.numpy) if isinstance(x, np.ndarray) else x.to(torch_dtype(dtype.name))


def padded(x: Any, *units: int) -> Any:
    """An array with zeros past the end of each axis, up to a multiple of its unit."""
    shape = tuple(rounded(n, unit) for n, unit in zip(x.shape, units, strict=True))
    if shape == tuple(x.shape):
        return x
    made = zeros(x, shape)
    made[tuple(slice(n) for n in x.shape)] = x
    return made


def joined(parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of NumPy, or tensors of PyTorch, one after another."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis)
    import torch

    return torch.cat(tuple(parts), axis)


def packed(matrix: Any, chunk: int) -> Any:
    """The pages of a matrix, one after another, as rows of 64; zeros fill the last ones.

    16 rows after another, chunk after chunk of their columns, half after half, slice after slice.
    """
    x = padded(matrix, UNIT, chunk)
    rows, cols = x.shape
    x = x.reshape(rows // UNIT, UNIT, cols // chunk, 2, 4, chunk // 1024, 2, 64)
    order = 0, 2, 5, 3, 6, 4, 1, 7
    x = x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)
    return x.reshape(-1, 64)


def in_pages(matrix: Any, rows: int, cols: int) -> Any:
    """The pages of a matrix, of 128 rows and 64 columns, row of pages after row, as rows of 64.

    rows, cols: the units up to which zeros fill it.
    """
    x = padded(matrix, rows, cols)
    x = x.reshape(x.shape[0] // 128, 128, x.shape[1] // 64, 64)
    return x.swapaxes(1, 2).reshape(-1, 64)


def out_of_pages(pages: Any, down: int) -> Any:
    """The matrix whose pages are these, so many rows of pages."""
    x = pages.reshape(down, -1, 128, 64)
    return x.swapaxes(1, 2).reshape(down * 128, -1)


def in_turn(a: Any, b: Any) -> Any:
    """Two matrices of one shape as one, 16 rows of each in turn; zeros fill the last 16 rows."""
    if tuple(a.shape) != tuple(b.shape):
        raise ArgumentError(
            f"in_turn: the matrices have one shape, not {tuple(a.shape)} and {tuple(b.shape)}"
        )
    both = [padded(x, UNIT, 1).reshape(-1, 1, UNIT, x.shape[1]) for x in (a, b)]
    return joined(both, 1).reshape(-1, a.shape[1])


def halves_in_turn(w: Any, head: int) -> Any:
    """A matrix whose rows are heads, 16 rows of the first half of a head and of the second in turn."""
    rows, cols = w.shape
    if rows % head or head % (2 * UNIT):
        raise ArgumentError(
            f"halves_in_turn: the rows are those of heads, multiples of {2 * UNIT}, not {rows} rows of heads of {head}"
        )
    x = w.reshape(rows // head, 2, head // 2, cols)
    return in_turn(x[:, 0].reshape(rows // 2, cols), x[:, 1].reshape(rows // 2, cols))
