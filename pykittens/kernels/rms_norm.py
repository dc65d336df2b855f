"""Root mean square normalisation along rows: y = x / sqrt(mean(x^2) + eps) * weight.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. One pass over memory: a row stays in
registers, of one warp up to 4096 elements, of a warpgroup beyond.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.kernels.core import entry
from pykittens.types.dtypes import f32


def reference(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """The same in float64."""
    wide = x.astype(np.float64)
    return (
        wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps) * weight.astype(np.float64)
    )


@pk.kernel
def rms_norm_rows(x, weight, y, *, eps):  # type: ignore[no-untyped-def]
    """y = x / sqrt(mean(x^2) + eps) * weight, a row a warp or a warpgroup."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    pk.require(weight.cols == x.cols, "weight must have as many elements as a row")
    n = pk.static(x.cols)
    rows = 4 if n <= 4096 else 2
    (block,) = pk.grid(pk.cdiv(x.rows, rows))
    with pk.warps(rows) if n <= 4096 else pk.warpgroups(rows) as w:
        gain = pk.load(weight, cols=n)  # before x, so that both are on their way at once
        t = pk.load(x[block * rows + w], cols=n).to(f32)
        scale = pk.rsqrt(pk.sum(t * t) / n + eps)
        pk.store(y[block * rows + w], (t * scale * gain.to(f32)).to(y.dtype))


CASES = (
    {"rows": 16384, "cols": 2048},
    {"rows": 65536, "cols": 4096},
    {"rows": 100, "cols": 1000},
    {"rows": 3, "cols": 8192},
    {"rows": 17, "cols": 17},
)


def inputs(rng: np.random.Generator, rows: int, cols: int) -> dict[str, Any]:
    """Random normal x and weight."""
    return {
        "x": rng.standard_normal((rows, cols)).astype(np.float32),
        "weight": rng.standard_normal(cols).astype(np.float32),
    }


@entry(kernel=rms_norm_rows, reference=reference, cases=CASES, inputs=inputs)
def rms_norm(x: Any, weight: Any, eps: float = 1e-6, out: Any = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight along the last axis.

    x: (rows, cols), weight: (cols,), of bf16, f16 or f32, NumPy or PyTorch. The result has the shape and dtype
    of x; it is written to `out` where given. Arithmetic is f32.
    """
    if out is None:
        out = np.empty_like(x) if isinstance(x, np.ndarray) else x.new_empty(x.shape)
    rms_norm_rows(x, weight, out, eps=float(eps))
    return out
