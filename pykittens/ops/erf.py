"""The error function in float64, for the NumPy meaning of operations: NumPy has none.

Source: W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23, 1969, in
the form of his program CALERF: relative error below 2**-50 but for the rounding of exp(-x * x).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

# Coefficients of numerator and denominator, the highest power first. |x| <= 0.46875: erf(x) / x in x**2.
_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e00,
        1.13864154151050156e02,
        3.77485237685302021e02,
        3.20937758913846947e03,
    ),
    (
        1.0,
        2.36012909523441209e01,
        2.44024637934444173e02,
        1.28261652607737228e03,
        2.84423683343917062e03,
    ),
)
# 0.46875 < |x| <= 4: erfc(x) exp(x**2) in x.
_MIDDLE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e00,
        6.61191906371416295e01,
        2.98635138197400131e02,
        8.81952221241769090e02,
        1.71204761263407058e03,
        2.05107837782607147e03,
        1.23033935479799725e03,
    ),
    (
        1.0,
        1.57449261107098347e01,
        1.17693950891312499e02,
        5.37181101862009858e02,
        1.62138957456669019e03,
        3.29079923573345963e03,
        4.36261909014324716e03,
        3.43936767414372164e03,
        1.23033935480374942e03,
    ),
)
# |x| > 4: what is left of sqrt(pi) x exp(x**2) erfc(x) below 1, in 1 / x**2.
_LARGE = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242e00,
        1.87295284992346725e00,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    numerator, denominator = coefficients
    result: Array = np.polyval(numerator, x) / np.polyval(denominator, x)
    return result


def _tail(x: Array) -> Array:
    """erfc of x > 0.46875; beyond 27.5 it is 0 in float64."""
    bounded = np.minimum(x, 27.5)
    middle = _ratio(_MIDDLE, np.minimum(bounded, 4.0))
    inverse = 1 / (bounded * bounded)
    large = (1 / np.sqrt(np.pi) - inverse * _ratio(_LARGE, inverse)) / bounded
    result: Array = np.exp(-bounded * bounded) * np.where(bounded <= 4.0, middle, large)
    return result


def erf(x: Any) -> Any:
    """2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    small = wide * _ratio(_SMALL, np.minimum(size, 0.46875) ** 2)
    large = np.copysign(1 - _tail(np.maximum(size, 0.46875)), wide)
    return np.where(size <= 0.46875, small, large)


def erfc(x: Any) -> Any:
    """1 - erf(x), without cancellation for large x."""
    wide = np.asarray(x, np.float64)
    tail = _tail(np.maximum(np.abs(wide), 0.46875))
    large = np.where(wide < 0, 2 - tail, tail)
    return np.where(np.abs(wide) <= 0.46875, 1 - erf(wide), large)
