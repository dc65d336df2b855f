"""The reference of products: the same in float64, by NumPy or PyTorch, like the arrays."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pykittens.runtime.verify import wide

BLOCK = 128  # elements of a side of a block that has one scale


def reference(
    a: Any,
    b: Any,
    transpose_b: bool = True,
    *,
    activation: str = "",
    alpha: Any = 1.0,
    gate_alpha: Any = 1.0,
    beta: float = 0.0,
    out: Any = None,
    **extras: Any,
) -> Any:
    """activation(alpha * row_scale * column_scale * (a @ b.T) + bias + beta * out) * gate + residual in float64.

    `extras` are the operands of gemm by their names; `out` is the array that beta scales, before the call.
    """
    given = {name: wide(x) for name, x in extras.items() if x is not None}
    x = _linear(a, b, transpose_b, alpha, given, "")
    if beta:
        x = x + beta * wide(out)
    x = ACTIVATIONS[activation](x)
    if extras.get("gate") is not None:
        x = x * _linear(a, extras["gate"], transpose_b, gate_alpha, given, "gate_")
    return x + given["residual"] if "residual" in given else x


def _linear(
    a: Any, b: Any, transpose_b: bool, alpha: Any, given: Mapping[str, Any], of: str
) -> Any:
    a, b = wide(a), wide(b) if transpose_b else wide(b).swapaxes(-1, -2)
    blocks = given.get("column_blocks" if not of else "gate_blocks")
    if blocks is not None:
        a = a * _spread(given["row_blocks"], (1, BLOCK), a.shape)
        b = b * _spread(blocks, (BLOCK, BLOCK), b.shape)
    x = a @ b.swapaxes(-1, -2)
    x = x * (alpha if isinstance(alpha, int | float) else wide(alpha).reshape(()))
    if "row_scale" in given:
        x = x * given["row_scale"][..., None]
    if of + "column_scale" in given:
        x = x * _columns(given[of + "column_scale"])
    if of + "bias" in given:
        x = x + _columns(given[of + "bias"])
    return x


def _columns(vector: Any) -> Any:
    return vector[..., None, :] if vector.ndim > 1 else vector


def _spread(scales: Any, sides: tuple[int, int], shape: tuple[int, ...]) -> Any:
    """The scale of each element, from the scales of blocks."""
    rows, cols = (np.arange(n) // side for n, side in zip(shape[-2:], sides, strict=True))
    if not isinstance(scales, np.ndarray):
        torch = sys.modules["torch"]
        rows, cols = (torch.from_numpy(i).to(scales.device) for i in (rows, cols))
    return scales[rows][:, cols]


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x) if isinstance(x, np.ndarray) else x.erf()


def _exp(x: Any) -> Any:
    return np.exp(x) if isinstance(x, np.ndarray) else x.exp()


ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + _exp(-x)),
}
