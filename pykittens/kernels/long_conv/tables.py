"""The Fourier transform of a sequence as two products: its lengths, and the matrices that are multiplied.

A sequence of M = R x 64 elements is a matrix x[a, c] of R rows, one after another in memory. Its transform at the
points p_k = exp(-2 pi i (k + shift) / M), with k = j + R m, is

    X[j, m] = sum over c of exp(-2 pi i c m / 64) exp(-2 pi i c (j + shift) / M) sum over a of L[j, a] x[a, c]

with L[j, a] = exp(-2 pi i a (j + shift) / R): a product from the left, the twiddle factors element by element, and a
product from the right. X stays in this order, in which filters are transformed, too. A tile of 64 rows has the
matrices of 64 / R sequences, and L is then block diagonal.

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
from typing import Any

import numpy as np

from pykittens.runtime.arrays import describe, empty

COLS = 64  # of the matrix of a sequence, and rows of a tile
QUARTER = -0.25


@dataclass(frozen=True)
class Fourier:
    """A transform of sequences of n elements. is_cyclic: of length n, else of at least n at shifted points."""

    n: int
    is_cyclic: bool

    @property
    def rows(self) -> int:
        """Rows of the matrix of a sequence, a divisor of 64."""
        return 1 << max((-(-self.n // COLS) - 1).bit_length(), 0)

    @property
    def length(self) -> int:
        """Elements of the transform."""
        return self.rows * COLS

    @property
    def sequences(self) -> int:
        """Sequences whose matrices are the rows of a tile."""
        return COLS // self.rows

    @property
    def shift(self) -> float:
        """The distance of the points from those of the discrete Fourier transform."""
        return 0.0 if self.is_cyclic else QUARTER


def roots(numbers: Any, length: float) -> Any:
    """exp(-2 pi i x / length) of numbers x, exact where that is 1, -1, i or -i."""
    turns = np.mod(numbers / length, 1.0)
    return np.exp(-2j * np.pi * turns)


@functools.cache
def matrices(rows: int, shift: float) -> dict[str, Any]:
    """What tiles of sequences of `rows` rows are multiplied with, in f16 by name.

    left: real and imaginary part of L, block diagonal and divided by sqrt(rows). twiddle: real and imaginary part of
    the factors. right: the real form of the matrix from the right, divided by 8. The transform keeps sums of squares.

    L is made symmetric, so that one matrix serves both directions: exp(-2 pi i (a + shift) (j + shift) / R) differs
    from L[j, a] by a factor of each j, which the twiddle factors make up for.
    """
    a, c, count = np.arange(rows), np.arange(COLS), COLS // rows
    symmetric = roots(np.outer(a + shift, a + shift), rows) / np.sqrt(rows)
    twiddle = (
        roots(np.outer(a + shift, c), rows * COLS) * roots(-shift * (a + shift), rows)[:, None]
    )
    f = roots(np.outer(c, c), COLS) / 8
    left, twiddle = np.kron(np.eye(count), symmetric), np.tile(twiddle, (count, 1))
    found = {
        "left": np.stack([left.real, left.imag]),
        "twiddle": np.stack([twiddle.real, twiddle.imag]),
        "right": np.block([[f.real, f.imag], [-f.imag, f.real]]),
    }
    return {name: np.ascontiguousarray(x.astype(np.float16)) for name, x in found.items()}


_tensors: dict[Any, dict[str, Any]] = {}  # tensors, by device, rows and shift


def matrices_like(array: Any, fourier: Fourier) -> dict[str, Any]:
    """The matrices of a transform, with the library and on the device of an array."""
    found = describe(array)
    assert found is not None
    made = matrices(fourier.rows, fourier.shift)
    if isinstance(array, np.ndarray):
        return made
    key = found.device, fourier.rows, fourier.shift
    if key not in _tensors:
        _tensors[key] = {name: empty(array, x.shape, "f16") for name, x in made.items()}
        for name, x in made.items():
            _tensors[key][name].copy_(sys.modules["torch"].from_numpy(x))
    return _tensors[key]
