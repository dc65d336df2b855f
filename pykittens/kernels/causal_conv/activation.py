"""The activations of a convolution, and their derivatives, for results of a dtype.

For narrow results the sigmoid has fewer instructions than the language's, which is for f32: with twice as many elements
in the same bytes a convolution would wait for these, and not for memory.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.types.dtypes import DType, f32

ACTIVATIONS = "", "silu"
LEAST = -80.0  # of an argument: the sigmoid below is 0 beside any sum, and that of this one is not


def activated(activation: str, x: Any, dtype: DType) -> Any:
    """activation(x)."""
    if activation == "":
        return x
    if dtype == f32:
        return pk.silu(x)
    x = pk.maximum(x, LEAST)
    return x * _sigmoid(x, dtype)


def slope(activation: str, x: Any, dtype: DType) -> Any:
    """activation'(x)."""
    if activation == "":
        return 1.0
    x = pk.maximum(x, LEAST)
    s = _sigmoid(x, dtype)
    return s + s * x * (1.0 - s)


def _sigmoid(x: Any, dtype: DType) -> Any:
    """1 / (1 + exp(-x)), for narrow results within 2^-20 of it."""
    if dtype == f32:
        return pk.sigmoid(x)
    root = pk.rsqrt(1.0 + pk.exp2(x * -pk.log2e))
    return root * root
