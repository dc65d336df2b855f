"""Root mean square normalisation along rows: y = x / sqrt(mean(x^2) + eps) * weight.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. One pass over memory: a row of up to
4096 elements stays in the registers of a warp, a longer row in those of a warpgroup.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import FLOATS, Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime.arrays import numpy_dtype
from pykittens.types.dtypes import f32


def reference(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """The same in float64."""
    wide = x.astype(np.float64)
    return (
        wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps) * weight.astype(np.float64)
    )


@pk.kernel
def rms_norm_rows(x, weight, y, eps):  # type: ignore[no-untyped-def]
    """y = x / sqrt(mean(x^2) + eps) * weight, a row a warp or a warpgroup."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    pk.require(weight.cols == x.cols, "weight must have as many elements as a row")
    n = pk.static(x.cols)
    rows = 4 if n <= 4096 else 2
    (block,) = pk.grid(pk.cdiv(x.rows, rows))
    with pk.warps(rows) if n <= 4096 else pk.warpgroups(rows) as w:
        gain = pk.load(weight, cols=n)  # before x, so that both are on their way at once
        t = pk.load(x[block * rows + w], cols=n).to(f32)
        scale = pk.rsqrt(pk.sum(t * t) * (1 / n) + eps)
        pk.store(y[block * rows + w], (t * scale * gain.to(f32)).to(y.dtype))


CASES = (
    {"rows": 16384, "cols": 2048},
    {"rows": 65536, "cols": 4096},
    {"rows": 100, "cols": 1000},
    {"rows": 3, "cols": 8192},
    {"rows": 17, "cols": 17},
    {"rows": 17, "cols": 17, "dtype": "f32"},
)


def inputs(rng: np.random.Generator, rows: int, cols: int, dtype: str = "bf16") -> dict[str, Any]:
    """Random normal x and weight."""
    shapes = {"x": (rows, cols), "weight": (cols,)}
    return {n: rng.standard_normal(s).astype(numpy_dtype(dtype)) for n, s in shapes.items()}


def work(rows: int, cols: int, dtype: str = "bf16") -> tuple[float, Any]:
    """The bytes of x and of the result."""
    return 2.0 * rows * cols * numpy_dtype(dtype).itemsize, "bytes"


@entry(
    reference=reference,
    cases=CASES,
    inputs=inputs,
    rival=lambda torch, x, weight: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6),
    work=work,
    numbers={"eps": None},
)
def rms_norm(x: Any, weight: Any, eps: float = 1e-6, out: Any = None) -> Plan:
    """x / sqrt(mean(x^2) + eps) * weight along the last axis.

    x: (rows, cols), weight: (cols,), of bf16, f16 or f32, NumPy or PyTorch. The result has the shape and dtype
    of x; it is written to `out` if that is given. Arithmetic is f32. An ArgumentError for other shapes and dtypes.

        >>> rms_norm(np.full((3, 64), 2, np.float32), np.ones(64, np.float32)).max().round(4)
        np.float32(1.0)
    """
    arrays = Arrays("rms_norm", x=x, weight=weight, eps=float(eps), out=out)
    arrays.shapes(x="rows cols", weight="cols", out="rows cols")
    arrays.dtypes("x", "weight", among=FLOATS, same=False)
    arrays.result("rows cols", arrays.found["x"].dtype, among=FLOATS)
    if not arrays.have_memory:
        return Plan(arrays, [])
    arrays.lines("x", "weight", "out")
    return Plan(arrays, [PlanStep(rms_norm_rows, ("x", "weight", "out", "eps"))])
