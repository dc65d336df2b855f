"""How far a result may be from its float64 reference: bounds from the dtypes and the lengths of sums, stated once.

They are a priori bounds (Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 to 4), an element each.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)


def unit(dtype: Any) -> float:
    """Largest relative error of one rounding."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2


def rounding(dtype: Any, exact: Array, roundings: int = 1) -> Array:
    """The error of a number of roundings of a result, including subnormal results."""
    tiny = float(ml_dtypes.finfo(np.dtype(dtype)).smallest_subnormal)
    return roundings * (unit(dtype) * abs(exact) + tiny)


def product(dtype: Any, exact: Array, magnitude: Array, inner: int) -> Array:
    """A product of inner length `inner` summed in f32; `magnitude` is |a| @ |b|."""
    return rounding(dtype, exact) + 2 * (inner + 1) * unit(F32) * magnitude


def fp8_sum(inner: int) -> float:
    """Relative to |a| @ |b|: sums of fp8 on the tensor cores keep about 14 bits, and are added up every 32 of inner."""
    return float(2.0**-13 * (inner / 32 + 1))


def f16_sum(inner: int) -> float:
    """Relative to |a| @ |b|: sums rounded to f16 at every 8 of inner."""
    return float(2.0**-11 * (inner / 8 + 2))


def softmax(dtype: Any, exact: Array, spread: float) -> Array:
    """A softmax computed in f32 of rows whose elements differ by at most `spread`."""
    relative = 2 * (exact.shape[-1] + spread + 8) * unit(F32)
    return rounding(dtype, exact) + relative * np.abs(exact) + np.finfo(np.float32).tiny


def attention(
    dtype: Any, exact: Array, magnitude: Array, scores: float, keys: int, d: int
) -> Array:
    """Attention with probabilities of `dtype`; `magnitude` is P |V|, `scores` the largest scaled |q| |k|."""
    exponent = (
        2 * (d + 4) * unit(F32) * scores
    )  # absolute error of a score, so relative of its exponential
    return (
        rounding(dtype, exact, 2)
        + (2 * unit(dtype) + 2 * exponent + 2 * (keys + 8) * unit(F32)) * magnitude
    )


def assert_within(actual: Array, exact: Array, bound: Array) -> None:
    """Every element is within its bound; a NaN is not."""
    assert actual.shape == exact.shape
    error = np.abs(actual.astype(np.float64) - exact)
    wrong = ~(error <= bound)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        found, wanted = float(actual[place]), float(exact[place])
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements are wrong; at {place}: {found} instead of {wanted}, "
            f"bound {float(np.broadcast_to(bound, error.shape)[place])}"
        )
