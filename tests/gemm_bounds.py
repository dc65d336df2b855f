"""What a matrix product with an epilogue should be, in float64, and how far each element may be off.

Written from the formula in gemm's docstring, apart from the library's own reference; every step carries on the bound
of the error from those of its operands (running error analysis; Higham, Accuracy and Stability of Numerical
Algorithms, section 3.3). The arrays are of NumPy or PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.types.dtypes import DTYPES
from tests import tolerance
from tests.gemm_problems import OPERANDS_OF, Problem

U = tolerance.unit(np.float32)
TINY = 2.0**-126  # results of f32 below this may be 0
BLOCK = 128


@dataclass(frozen=True)
class Known:
    """Values, and the bounds on the errors of a kernel that computes in f32."""

    value: Any
    error: Any

    def rounded(self, roundings: float = 1) -> Known:
        """The same after roundings to f32."""
        return Known(self.value, self.error + roundings * U * (abs(self.value) + self.error) + TINY)

    def __add__(self, other: Any) -> Known:
        value, error = _parts(other)
        return Known(self.value + value, self.error + error).rounded()

    def __mul__(self, other: Any) -> Known:
        value, error = _parts(other)
        own = abs(self.value) * error + (abs(value) + error) * self.error
        return Known(self.value * value, own).rounded()

    def __neg__(self) -> Known:
        return Known(-self.value, self.error)


def _parts(other: Any) -> tuple[Any, Any]:
    return (other.value, other.error) if isinstance(other, Known) else (other, 0.0)


def wide(x: Any) -> Any:
    """An array in float64."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def expected(problem: Problem, arrays: dict[str, Any], on_gpu: bool = False) -> list[Known]:
    """The exact result of gemm for a problem, from the arrays before the call."""
    given = {name: wide(x) for name, x in arrays.items()}
    x = _linear(problem, given, "b", "", on_gpu)
    if problem.numbers.get("beta"):
        x = x + Known(given["out"], 0.0) * problem.numbers["beta"]
    x = ACTIVATIONS[problem.activation](x)
    if "gate" in given:
        x = x * _linear(problem, given, "gate", "gate_", on_gpu)
    if "residual" in given:
        x = x + given["residual"]
    if problem.function:
        own = (given[name] for name in OPERANDS_OF.get(problem.function, ()))
        x = THEN[problem.function](problem, x, *own)
    sums = [(-1, problem.row_sums), (-2, problem.column_sums)]
    return [_stored(x, problem.result), *(_sum(x, axis) for axis, asked in sums if asked)]


def _linear(p: Problem, given: dict[str, Any], b: str, of: str, on_gpu: bool) -> Known:
    x = _product(p, given, b, on_gpu)
    if of + "alpha" in p.numbers:
        x = x * p.numbers[of + "alpha"]
    if "row_scale" in given:
        x = x * given["row_scale"][..., None]
    if of + "column_scale" in given:
        x = x * given[of + "column_scale"][..., None, :]
    if of + "bias" in given:
        x = x + given[of + "bias"][..., None, :]
    return x


def _product(p: Problem, given: dict[str, Any], name: str, on_gpu: bool) -> Known:
    a, b = given["a"], given[name] if not p.transpose_b else given[name].swapaxes(-1, -2)
    blocks = "row_blocks" in given
    if blocks:
        a = a * _spread(given["row_blocks"], 1, a)
        scales = given["column_blocks" if name == "b" else "gate_blocks"]
        b = b * _spread(scales, BLOCK, b.swapaxes(-1, -2)).swapaxes(-1, -2)
    exact, magnitude = a @ b, abs(a) @ abs(b)
    at_once = min(p.k, BLOCK) if blocks else p.k  # elements of k that the tensor cores sum
    relative = 2 * (p.k + 1) * U
    if blocks:  # the two scales, their product with a sum, and the sum of those
        relative += (3 + p.k / BLOCK) * U
    if on_gpu and p.dtypes[0] in ("e4m3", "e5m2"):
        relative += tolerance.fp8_sum(at_once)
    if p.accumulate == "f16":
        relative += tolerance.f16_sum(at_once)
    return Known(exact, relative * magnitude + (2.0**-24 if p.accumulate == "f16" else 0.0))


def _spread(scales: Any, side: int, of: Any) -> Any:
    """One scale per element, from one per `side` rows and 128 columns."""
    rows, cols = of.shape[-2:]
    i, j = np.arange(rows) // side, np.arange(cols) // BLOCK
    if not isinstance(scales, np.ndarray):
        i, j = (scales.new_tensor(x).long() for x in (i, j))
    return scales[i][:, j]


def _stored(x: Known, name: str) -> Known:
    """The same rounded to the dtype of the result; fp8 ends at its largest number."""
    value, dtype = x.value, DTYPES[name].numpy
    if name in ("e4m3", "e5m2"):
        largest = float(ml_dtypes.finfo(dtype).max)
        value = value.clip(-largest, largest)
    return Known(value, x.error + tolerance.rounding(dtype, abs(value) + x.error))


def _sum(x: Known, axis: int) -> Known:
    """A sum of f32 along an axis."""
    count = x.value.shape[axis] + 1
    error = (x.error + count * U * (abs(x.value) + x.error)).sum(axis) + count * TINY
    return Known(x.value.sum(axis), error)


# -- activations -----------------------------------------------------------------------------------

# The largest slopes of x (1 + erf(x / sqrt(2))) / 2 and of x / (1 + exp(-x)).
GELU_SLOPE, SILU_SLOPE = 1.13, 1.1


def _relu(x: Known) -> Known:
    return Known(x.value * (x.value > 0), x.error)


def _gelu(x: Known) -> Known:
    if isinstance(x.value, np.ndarray):
        tail = np.vectorize(math.erf, otypes=[float])(x.value / math.sqrt(2))
    else:
        tail = (x.value / math.sqrt(2)).erf()
    value = 0.5 * x.value * (1 + tail)
    own = (2.0**-20 + x.value**2 * 2.0**-23) * abs(value)  # as pk.gelu states
    return Known(value, GELU_SLOPE * x.error + own + TINY)


def _silu(x: Known) -> Known:
    exp = np.exp(-x.value) if isinstance(x.value, np.ndarray) else (-x.value).exp()
    value = x.value / (1 + exp)
    return Known(value, SILU_SLOPE * x.error + 6 * 2.0**-23 * abs(value) + TINY)


ACTIVATIONS = {"": lambda x: x, "relu": _relu, "gelu": _gelu, "silu": _silu}


# -- functions of a user ---------------------------------------------------------------------------


def _shifted(p: Problem, x: Known, row: Any, column: Any, tile: Any) -> Known:
    return x * row[..., None] + Known(column[..., None, :], 0.0) * tile


def _upper(p: Problem, x: Known) -> Known:
    """Parts begin at multiples of the rows of a warpgroup, 64 or 128."""
    assert p.config is not None
    own = p.config.rows // p.config.consumers
    rows = np.arange(p.m) // own * own
    sign = np.where(rows % 128 >= 64, -1.0, 1.0)
    if not isinstance(x.value, np.ndarray):
        sign = x.value.new_tensor(sign)
    return Known(x.value * sign[:, None], x.error)


def _centred(p: Problem, x: Known) -> Known:
    assert p.config is not None
    cols, value, error = p.config.out_cols, x.value + 0.0, x.error + 0.0
    for start in range(0, p.n, cols):
        part = Known(x.value[..., start : start + cols], x.error[..., start : start + cols])
        mean = _sum(part, -1) * (1.0 / cols)
        moved = part + -Known(mean.value[..., None], mean.error[..., None])
        value[..., start : start + cols] = moved.value
        error[..., start : start + cols] = moved.error
    return Known(value, error)


THEN = {"shifted": _shifted, "upper": _upper, "centred": _centred}
