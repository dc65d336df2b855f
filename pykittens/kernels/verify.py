"""Whether a kernel computes the right thing: random arrays that lie as others do, results in memory of NaN, comparison.

An array that lies as another has its shape, strides, dtype and alignment.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import empty
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import DType

MARGIN = 4096  # bytes in front of an array and behind it
ALIGNED = 16  # bytes; what the copy engine asks for, so that programs differ by it


@dataclass(frozen=True)
class Alike:
    """An array that lies as another does, and all of its memory as one vector, margins included."""

    array: Any
    memory: Any


def alike(other: Any) -> Alike:
    """An array that lies as another does, whose numbers are any."""
    found = describe(other)
    assert found is not None, "only arrays have a place in memory"
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
    """An array that lies as another does, of NaN inside and outside."""
    made = alike(other)
    made.memory[...] = math.nan
    return made


def copy_like(other: Any) -> Any:
    """A copy that lies as its original does."""
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
    """Normal random numbers that lie as another array's."""
    made = alike(other)
    if isinstance(made.memory, np.ndarray):
        values = np.random.default_rng(seed).standard_normal(made.memory.size, np.float32)
        made.memory[:] = values * np.float32(deviation)
    else:
        vector = _wide(made.memory)
        vector.normal_(0.0, deviation, generator=_generator(vector, seed))
        _fill(made.memory, vector)
    return made.array


def positive_like(other: Any, seed: int) -> Any:
    """Random numbers between a half and one and a half that lie as another array's."""
    made = alike(other)
    if isinstance(made.memory, np.ndarray):
        made.memory[:] = np.random.default_rng(seed).uniform(0.5, 1.5, made.memory.size)
    else:
        vector = _wide(made.memory)
        vector.uniform_(0.5, 1.5, generator=_generator(vector, seed))
        _fill(made.memory, vector)
    return made.array


def nans(array: Any) -> Any:
    """Where an array is NaN."""
    if isinstance(array, np.ndarray):
        return np.isnan(array)
    return (array.float() if array.itemsize == 1 else array).isnan()


def written_beside(made: Alike) -> bool:
    """Whether something was written beside an array that was made of NaN; the array itself is NaN afterwards."""
    made.array[...] = math.nan
    return not bool(nans(made.memory).all())


def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to behind the last."""
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1


def _generator(vector: Any, seed: int) -> Any:
    # One of its own: the program's random numbers are the same with and without it.
    return sys.modules["torch"].Generator(vector.device).manual_seed(seed)


def _wide(memory: Any) -> Any:
    """The memory itself, or one of f32 for numbers of 8 bits, which no generator makes."""
    return memory if memory.itemsize > 1 else empty(memory, tuple(memory.shape), "f32")


def _fill(memory: Any, vector: Any) -> None:
    if vector is not memory:
        memory.copy_(vector)


# -- comparison ------------------------------------------------------------------------------------

STRIP = 64  # rows of the smallest tile: of each such strip one is compared
MOST_ROWS = 512


def wide(array: Any) -> Any:
    """An array in float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()


def sample(count: int) -> list[int]:
    """Some hundred rows: those at both ends and at edges of tiles, and a random one of each strip."""
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
    """Which elements are further from what they should be than rounding explains, if more than are allowed.

    Beyond the largest number of the dtype all are the same; NaN may only be where it should.
    """
    found, exact = (wide(x).clip(dtype.least, dtype.largest) for x in (found, exact))
    both = nans(found) & nans(exact)
    found[both] = exact[both] = 0
    numbers = exact[~nans(exact)]
    size = float((numbers**2).mean() ** 0.5) if len(numbers) else 0.0
    tiny = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]
    wrong = ~(abs(found - exact) <= dtype.epsilon * abs(exact) + tiny + slack * size)
    count = int(wrong.sum())
    if count <= allowed:
        return None
    first = int(wrong.reshape(-1).nonzero()[0][0])
    place = [int(i) for i in np.unravel_index(first, tuple(wrong.shape))]
    if rows is not None:
        place[-2] = rows[place[-2]]
    pair = float(found.reshape(-1)[first]), float(exact.reshape(-1)[first])
    return (
        f"{count} of {math.prod(wrong.shape)} compared elements are wrong; that at {tuple(place)} "
        f"is {pair[0]:.6g} instead of {pair[1]:.6g}"
    )
