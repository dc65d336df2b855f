"""Tests of a kernel's results: random arrays with the layout of others, results in memory of NaN, comparison.

An array with the layout of another has its shape, strides, dtype and alignment.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.runtime.arrays import describe, empty
from pykittens.types.dtypes import DType

MARGIN = 4096  # bytes before and after an array
ALIGNED = 16  # bytes: the alignment that the copy engine needs, so programs differ by it


@dataclass(frozen=True)
class Alike:
    """An array with the layout of another, and its memory as a vector, margins included."""

    array: Any
    memory: Any


def alike(other: Any) -> Alike:
    """An uninitialized array with the layout of another."""
    found = describe(other)
    assert found is not None, "only arrays have a layout"
    size, strides = found.itemsize, tuple(map(abs, found.strides))
    margin, shifts = MARGIN // size, ALIGNED // size
    memory = empty(other, (_reach(found.shape, strides) + 2 * margin + shifts,), found.dtype)
    own = describe(memory)
    assert own is not None
    first = margin + (found.address - own.address) % ALIGNED // size
    if isinstance(memory, np.ndarray):
        in_bytes = tuple(s * size for s in strides)
        view = np.lib.stride_tricks.as_strided(memory[first:], found.shape, in_bytes)
        return Alike(view, memory)
    return Alike(memory.as_strided(found.shape, strides, first), memory)


def poison_like(other: Any) -> Alike:
    """An array with the layout of another, with NaN in it and around it."""
    made = alike(other)
    made.memory[...] = math.nan
    return made


def copy_like(other: Any) -> Any:
    """A copy with the layout of its original."""
    made = alike(other)
    if isinstance(other, np.ndarray):
        made.array[...] = other
        return made.array
    # All memory from the first to the last element: an axis of stride 0 cannot be written through.
    found = describe(other)
    assert found is not None
    reach = _reach(found.shape, found.strides)
    flat = made.memory.as_strided((reach,), (1,), made.array.storage_offset())
    flat.copy_(other.detach().as_strided((reach,), (1,)))
    return made.array


def normal_like(other: Any, seed: int, deviation: float = 1.0) -> Any:
    """Normal random numbers in an array with the layout of another."""
    return _random_like(other, seed, "normal", 0.0, deviation)


def positive_like(other: Any, seed: int) -> Any:
    """Random numbers between 0.5 and 1.5 in an array with the layout of another."""
    return _random_like(other, seed, "uniform", 0.5, 1.5)


def _random_like(other: Any, seed: int, distribution: str, *parameters: float) -> Any:
    made = alike(other)
    memory = made.memory
    if isinstance(memory, np.ndarray):
        draw = getattr(np.random.default_rng(seed), distribution)
        memory[:] = draw(*parameters, memory.size).astype(np.float32)
    else:
        # A separate generator: the state of the program's is unchanged.
        generator = sys.modules["torch"].Generator(memory.device).manual_seed(seed)
        # Generators make no numbers of 8 bits.
        vector = memory if memory.itemsize > 1 else empty(memory, tuple(memory.shape), "f32")
        getattr(vector, f"{distribution}_")(*parameters, generator=generator)
        if vector is not memory:
            memory.copy_(vector)
    return made.array


def nans(array: Any) -> Any:
    """A mask of the elements that are NaN."""
    if isinstance(array, np.ndarray):
        return np.isnan(array)
    return (array.float() if array.itemsize == 1 else array).isnan()


def written_beside(made: Alike) -> bool:
    """Whether memory around an array made by `poison_like` was written. The array is filled with NaN."""
    made.array[...] = math.nan
    return not bool(nans(made.memory).all())


def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The number of elements of memory from the first to the last element."""
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1


# -- comparison ------------------------------------------------------------------------------------

STRIP = 64  # rows of the smallest tile: one row of each strip is compared
MOST_ROWS = 512
PART = 2**22  # elements that are compared at once: each takes some 80 bytes meanwhile


def wide(array: Any) -> Any:
    """An array in float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()


def sample(count: int) -> list[int]:
    """A few hundred rows: those at both ends and at edges of tiles, and a random row of each strip."""
    strip = max(STRIP, -(-count // MOST_ROWS))
    chosen = random.Random(0)
    rows = {min(i + chosen.randrange(strip), count - 1) for i in range(0, count, strip)}
    for side in (64, 128, 256):
        last = (count - 1) // side * side
        rows |= {0, side - 1, side, last - 1, last, count - 1}
    return sorted(i for i in rows if 0 <= i < count)


def deviation(
    found: Any, exact: Any, dtype: DType, slack: float, rows: list[int] | None, allowed: int = 0
) -> str | None:
    """The elements whose error is larger than rounding explains, if there are more than are allowed; else None.

    Numbers beyond the range of the dtype count as equal. NaN equals NaN only.
    """
    shape = tuple(found.shape)
    found, exact = found.reshape(-1), exact.reshape(-1)
    parts = [slice(i, i + PART) for i in range(0, math.prod(shape), PART)]
    if dtype.is_float:
        slack *= _root_mean_square((exact[part] for part in parts), dtype)
    count, first = 0, 0
    for part in parts:
        wrong = _wrong(found[part], exact[part], dtype, slack)
        in_part = int(wrong.sum())
        if in_part and not count:
            first = part.start + int(wrong.nonzero()[0][0])
        count += in_part
    if count <= allowed:
        return None
    index = [int(i) for i in np.unravel_index(first, shape)]
    if rows is not None:
        index[-2] = rows[index[-2]]
    values = [x[first].item() for x in (found, exact)]
    pair = (f"{x:.6g}" if dtype.is_float else f"{x}" for x in values)
    return (
        f"{count} of {math.prod(shape)} compared elements are wrong; that at {tuple(index)} "
        f"is {' instead of '.join(pair)}"
    )


def _root_mean_square(parts: Iterable[Any], dtype: DType) -> float:
    """Of all elements that are numbers, within the range of the dtype."""
    total, count = 0.0, 0
    for part in parts:
        numbers = _within(part, dtype)
        numbers = numbers[~nans(numbers)]
        total, count = total + float((numbers**2).sum()), count + len(numbers)
    return math.sqrt(total / max(count, 1))


def _wrong(found: Any, exact: Any, dtype: DType, slack: float) -> Any:
    """A mask of the elements of a vector that are wrong."""
    if not dtype.is_float:
        return found != exact
    found, exact = _within(found, dtype), _within(exact, dtype)
    tiny = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]
    wrong = ~(abs(found - exact) <= dtype.epsilon * abs(exact) + tiny + slack)
    return wrong & ~(nans(found) & nans(exact))


def _within(array: Any, dtype: DType) -> Any:
    """An array in float64, with the bounds of the dtype in place of numbers beyond them."""
    return wide(array).clip(dtype.least, dtype.largest)
