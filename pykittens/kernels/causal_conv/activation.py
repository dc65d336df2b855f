"""The activations of a convolution, and their derivatives, for results of a dtype.

For narrow results the sigmoid has fewer instructions than the language's, which is for f32: with twice as many elements
in the same bytes a convolution would wait for these, and not for memory. The factors of the taps contain a scale then,
that of the exponent, so that sums are z' = scale z and silu(z) = z' / (scale (1 + 2^z')) with scale = -log2(e).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, f32

ACTIVATIONS = "", "silu"


def scale_of(activation: str, dtype: DType) -> float | None:
    """What the factors of taps, and the bias, are multiplied by, or None."""
    return None if activation == "" or dtype == f32 else -pk.log2e


def scaled(x: Any, scale: float | None) -> Any:
    """x in f32, times a scale."""
    return x.to(f32) if scale is None else x.to(f32) * scale


def activated(activation: str, z: Any, scale: float | None) -> Any:
    """activation(z), of scale z."""
    if activation == "":
        return z
    if scale is None:
        return pk.silu(z)
    return z * _reciprocal(pk.exp2(z) * scale + scale)


def of_sum(activation: str, of_result: Any, z: Any, scale: float | None) -> Any:
    """The gradient of scale z, by that of activation(z): of_result s (1 + z (1 - s)) / scale with the sigmoid s.

    It is multiplied with scaled factors for the gradients of x; other sums of it are multiplied by the scale once.
    """
    if activation == "":
        return of_result
    if scale is None:
        s = pk.sigmoid(z)
        return of_result * (s + s * z * (1.0 - s))
    s, unit = _reciprocal(1.0 + pk.exp2(z)), 1 / scale
    return of_result * s * (z * (unit**2 - s * unit**2) + unit)


def _reciprocal(x: Any) -> Any:
    """1 / x within a unit in the last place of f32, or 0 for |x| > 2^126 (PTX ISA, `rcp.approx.ftz`)."""
    return pk.inline_cuda("reciprocal_fast({0})", x, like=x, numpy=np.reciprocal)
