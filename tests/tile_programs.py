"""Random programs on tiles: operations element by element, reductions and vectors spread over tiles.

A program is a list of steps on a growing list of values. It runs as a kernel, and in float64 beside a bound of the
error of each element, which every step carries on from those of its operands (running error analysis; Higham,
Accuracy and Stability of Numerical Algorithms, section 3.3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, converted, f16, f32
from tests import tolerance

Array = np.ndarray[Any, Any]
ROWS, COLS = (16, 64, 128), (16, 48, 128)
MOST = 64 * 32  # elements of a tile a warp: several tiles stay in registers
FUNCTION_ERROR = 8 * tolerance.unit(
    np.float32
)  # of the functions below, relative, before the result is rounded


@dataclass(frozen=True)
class Known:
    """A value in float64, and how far the kernel's may be off."""

    value: Array
    error: Array


@dataclass(frozen=True)
class Step:
    """An operation: in a kernel, on exact values, and on their errors (without its own rounding)."""

    kernel: Callable[..., Any]
    exact: Callable[..., Array]
    error: Callable[..., Array]
    operands: int = 1
    tiles_only: bool = False
    own: float = 0.0  # relative error of the operation besides its rounding


def _sum(axis: int) -> Callable[[Array], Array]:
    return lambda a: a.sum(axis=axis, keepdims=True)


def _reduced(word: Callable[..., Any], axis: int) -> Step:
    """A sum, divided by 64 so that values stay in range."""

    def error(a: Known) -> Array:
        each = a.value.shape[axis] * tolerance.unit(np.float32) * np.abs(a.value)
        return _sum(axis)(a.error + each) / 64

    return Step(
        lambda a: word(a) * (1 / 64),
        lambda a: _sum(axis)(a) / 64,
        error,
        tiles_only=True,
    )


def _largest(word: Callable[..., Any], axis: int) -> Step:
    return Step(
        word,
        lambda a: a.max(axis=axis, keepdims=True),
        lambda a: a.error.max(axis=axis, keepdims=True),
        tiles_only=True,
    )


@functools.cache
def steps_of(rows: int, cols: int) -> dict[str, Step]:
    """The steps on tiles of a size."""
    above = np.arange(rows)[:, None] < np.arange(cols)
    return {
        "add": Step(lambda a, b: a + b, np.add, lambda a, b: a.error + b.error, 2),
        "sub": Step(lambda a, b: a - b, np.subtract, lambda a, b: a.error + b.error, 2),
        "mul": Step(
            lambda a, b: a * b,
            np.multiply,
            lambda a, b: np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error,
            2,
        ),
        "maximum": Step(pk.maximum, np.maximum, lambda a, b: np.maximum(a.error, b.error), 2),
        "minimum": Step(pk.minimum, np.minimum, lambda a, b: np.maximum(a.error, b.error), 2),
        "above_the_diagonal": Step(
            lambda a, b: pk.where(pk.row_index(rows) < pk.col_index(cols), a, b),
            lambda a, b: np.where(above, a, b),
            lambda a, b: np.maximum(a.error, b.error),
            2,
        ),
        "neg": Step(lambda a: -a, np.negative, lambda a: a.error),
        "abs": Step(pk.abs, np.abs, lambda a: a.error),
        "relu": Step(pk.relu, lambda a: np.maximum(a, 0), lambda a: a.error),
        "tanh": Step(pk.tanh, np.tanh, lambda a: a.error, own=FUNCTION_ERROR),
        "sigmoid": Step(
            pk.sigmoid, lambda a: 1 / (1 + np.exp(-a)), lambda a: a.error / 4, own=FUNCTION_ERROR
        ),
        "row_sum": _reduced(pk.row_sum, 1),
        "col_sum": _reduced(pk.col_sum, 0),
        "row_max": _largest(pk.row_max, 1),
        "col_max": _largest(pk.col_max, 0),
    }


NAMES = {name: step.operands for name, step in sorted(steps_of(16, 16).items())}


@dataclass(frozen=True)
class Program:
    """Steps by name, each with the indices of its operands among the inputs and the previous results.

    warps: of a block. rows, cols: of the tiles, of which warps have as many rows each.
    """

    dtype: DType
    warps: int
    rows: int
    cols: int
    steps: tuple[tuple[str, tuple[int, ...]], ...]

    def kernel(self) -> Any:
        """The program as a kernel of two inputs and an output, each a tile."""
        rows, cols, steps = self.rows, self.cols, self.steps
        words = steps_of(rows, cols)

        @pk.kernel(warps=self.warps)
        def program(a, b, out):
            pk.grid(1)
            values = [pk.load(x[0], rows=rows, cols=cols) for x in (a, b)]
            tile = values[0]
            for name, operands in steps:
                chosen = [values[i] for i in operands]
                if words[name].tiles_only:
                    chosen = [pk.where(pk.row_index(rows) < rows, x, tile) for x in chosen]
                values.append(words[name].kernel(*chosen))
            pk.store(out[0], pk.where(pk.col_index(cols) >= 0, values[-1], tile))

        return program

    def inputs(self, seed: int) -> list[Array]:
        """Two tiles of random numbers."""
        rng = np.random.default_rng(seed)
        return [
            converted(rng.standard_normal((self.rows, self.cols)), self.dtype) for _ in range(2)
        ]

    def exact(self, a: Array, b: Array) -> Known:
        """The output in float64 and its bound."""
        zero = np.zeros((self.rows, self.cols))
        known = [Known(x.astype(np.float64), zero) for x in (a, b)]
        for name, operands in self.steps:
            step = steps_of(self.rows, self.cols)[name]
            chosen = [known[i] for i in operands]
            if step.tiles_only:
                chosen = [Known(x.value + zero, x.error + zero) for x in chosen]
            value = step.exact(*(x.value for x in chosen))
            error = step.error(*chosen)
            error = error + step.own * (np.abs(value) + error)
            error = error + tolerance.rounding(self.dtype.numpy, np.abs(value) + error, 2)
            known.append(Known(value, error))
        return Known(known[-1].value + zero, known[-1].error + zero)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of up to eight steps, the last of which uses the one before it."""
    dtype = draw(st.sampled_from([f32, bf16, f16]))
    rows, cols = draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLS))
    fitting = [n for n in (1, 2, 4, 8) if rows % (16 * n) == 0 and rows * cols <= MOST * n]
    warps = draw(st.sampled_from(fitting))
    steps: list[tuple[str, tuple[int, ...]]] = []
    for count in range(2, 2 + draw(st.integers(1, 8))):
        name = draw(st.sampled_from(list(NAMES)))
        first = count - 1 if steps else draw(st.integers(0, 1))
        others = [draw(st.integers(0, count - 1)) for _ in range(NAMES[name] - 1)]
        steps.append((name, (first, *others)))
    return Program(dtype, warps, rows, cols, tuple(steps))
