"""The Fourier transform of a sequence as products: its lengths, and the matrices that are multiplied.

A sequence of M = R x C elements is a matrix x[a, c] of R rows, one after another in memory. Its transform at the points
p_k = exp(-2 pi i (k + shift) / M), with k = j + R m, is

    X[j, m] = sum over c of exp(-2 pi i c m / C) exp(-2 pi i c (j + shift) / M) sum over a of L[j, a] x[a, c]

with L[j, a] = exp(-2 pi i a (j + shift) / R): a product from the left, the twiddle factors element by element, and the
transforms of R sequences of C elements with shift 0. These are a product from the right if C is 64, and are cut in the
same way if C is more. X stays in this order, in which filters are transformed, too. A tile of 64 rows has the matrices
of 64 / R sequences, and L is then block diagonal.

With shift 0 these are the points of the discrete Fourier transform, whose products are circular convolutions of length
M. With shift -1/4 all points have p^M = i, so products are convolutions in which what passes the end comes back
multiplied by i: of real sequences, as imaginary part. One complex transform of length M then is a linear convolution of
M positions, without zeros behind the sequence. Source: Nussbaumer, "Fast Fourier Transform and Convolution Algorithms",
1982; the form of products is the Monarch decomposition of Fu et al., "FlashFFTConv", 2023.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pykittens.runtime import driver
from pykittens.runtime.arrays import describe, empty
from pykittens.runtime.launch import current_stream

COLS = 64  # of an innermost matrix, and rows of a tile
INNER = COLS * COLS  # elements of a sequence whose transform a warpgroup has in its registers
SLICE = 16  # columns of the tiles of a sequence that a warpgroup combines at a time
QUARTER = -0.25


class Level(NamedTuple):
    """A cut of sequences of rows x columns elements: their rows at shifted points, then transforms of `columns`."""

    rows: int
    columns: int
    shift: float

    @property
    def sequences(self) -> int:
        """Sequences whose matrices are the rows of a tile."""
        return COLS // self.rows


@dataclass(frozen=True)
class Fourier:
    """A transform of sequences of n elements. is_cyclic: of length n, else of at least n at shifted points."""

    n: int
    is_cyclic: bool

    @property
    def length(self) -> int:
        """Elements of the transform."""
        return COLS << max((-(-self.n // COLS) - 1).bit_length(), 0)

    @property
    def outer(self) -> tuple[Level, ...]:
        """The levels before sequences are short enough for a warpgroup; each but the first has 64 rows."""
        rows, levels, shift = self.length // INNER, list[Level](), self.shift
        while rows > 1:
            own = rows if rows <= COLS else -(-rows // COLS)
            rows //= own
            levels.append(Level(own, rows * INNER, shift))
            shift = 0.0
        return tuple(levels)

    @property
    def inner(self) -> Level:
        """The last level, of 64 columns."""
        rows, is_outermost = min(self.length, INNER) // COLS, self.length <= INNER
        return Level(rows, COLS, self.shift if is_outermost else 0.0)

    @property
    def shift(self) -> float:
        """The distance of the points from those of the discrete Fourier transform."""
        return 0.0 if self.is_cyclic else QUARTER


def roots(numbers: Any, length: float) -> Any:
    """exp(-2 pi i x / length) of numbers x."""
    return np.exp(-2j * np.pi * np.mod(numbers / length, 1.0))


@functools.cache
def matrices(level: Level) -> dict[str, Any]:
    """What tiles of sequences are multiplied with, by name.

    left: real and imaginary part of L, block diagonal and divided by sqrt(rows). twiddle: real and imaginary part of
    the factors of the first 64 columns. right: the real form of the matrix from the right, divided by 8. These are f16,
    and keep sums of squares. steps: what factors of the next 64 columns, and so on, have more, for each row, in f32.

    L is made symmetric, so that one matrix serves both directions: exp(-2 pi i (a + shift) (j + shift) / R) differs
    from L[j, a] by a factor of each j, which the twiddle factors make up for.
    """
    rows, columns, shift = level
    a, c = np.arange(rows) + shift, np.arange(COLS)
    symmetric = roots(np.outer(a, a), rows) / np.sqrt(rows)
    twiddle = roots(np.outer(a, c), rows * columns) * roots(-shift * a, rows)[:, None]
    steps = roots(np.outer(np.arange(columns // COLS), a), rows * columns / COLS)
    f = roots(np.outer(c, c), COLS) / 8
    wide = np.kron(np.eye(level.sequences), symmetric)
    twiddle, steps = (
        np.tile(x, y) for x, y in ((twiddle, (level.sequences, 1)), (steps, level.sequences))
    )
    found = {
        name: np.stack([x.real, x.imag]).astype(np.float16)
        for name, x in (("left", wide), ("twiddle", twiddle))
    }
    if columns == COLS:
        form = np.block([[f.real, f.imag], [-f.imag, f.real]])
        return found | {"right": np.ascontiguousarray(form.astype(np.float16))}
    found["steps"] = np.stack([steps.real, steps.imag]).astype(np.float32)
    return found | ({"factors": outer_factors(level)} if columns == INNER else {})


def outer_factors(level: Level) -> Any:
    """The factors between rows of 4096 elements that are tiles of 64 x 64: of points by rows or columns, in f32.

    They are the products of those of rows of a tile, divided by sqrt(rows), and of those of its columns: real and
    imaginary parts of these and then of those, each (rows, 64), one after another.
    """
    points, places = np.arange(level.rows) + level.shift, np.arange(COLS)
    of_rows = roots(np.outer(points, COLS * places), level.rows * INNER) / np.sqrt(level.rows)
    of_columns = roots(np.outer(points, places), level.rows * INNER)
    parts = of_rows.real, of_rows.imag, of_columns.real, of_columns.imag
    return np.concatenate([x.reshape(-1) for x in parts]).astype(np.float32)


_tensors: dict[Any, dict[str, Any]] = {}  # by device and level


def matrices_like(array: Any, level: Level) -> dict[str, Any]:
    """The matrices of a level, with the library and on the device of an array."""
    found = describe(array)
    assert found is not None
    made = matrices(level)
    if isinstance(array, np.ndarray):
        return made
    key = found.device, level
    if key not in _tensors:
        dtypes = {np.dtype(np.float16): "f16", np.dtype(np.float32): "f32"}
        _tensors[key] = {name: empty(array, x.shape, dtypes[x.dtype]) for name, x in made.items()}
        for name, x in made.items():
            _tensors[key][name].copy_(sys.modules["torch"].from_numpy(x))
        if not isinstance(found.device, str):  # other streams read them, too
            driver.wait_for_stream(found.device[1], current_stream(found.device[1]))
    return _tensors[key]
