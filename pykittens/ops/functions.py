"""Functions of floats element by element. Each states its error in f32; the result is rounded once more to the dtype.

*Within n units* means units in the last place of the result rounded to f32. If no domain is stated, the bound holds for
all numbers, subnormal and infinite ones included. NaN gives NaN. Sources of the bounds: CUDA C++ Programming Guide,
"Mathematical Functions", and PTX ISA, `ex2`, `rsqrt`, `rcp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from pykittens.ir.combining import X
from pykittens.ops.arguments import check_word
from pykittens.ops.core import composed, op
from pykittens.ops.map import MAP, float_map, in_double


def _of_c(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python's `math`, element by element in float64: NumPy has no error function."""
    return np.vectorize(function, otypes=[np.float64])


_erf, _erfc = _of_c(math.erf), _of_c(math.erfc)


def _sigmoid(v: Any) -> Any:
    e = np.exp(-np.abs(v))
    return np.where(v < 0, e, 1.0) / (1 + e)


def _gelu_erf(x: Any) -> Any:
    bounded = np.maximum(x, -40.0)  # below, the results are 0
    return 0.5 * bounded * _erfc(-bounded / np.sqrt(2.0))


def _gelu_tanh(x: Any) -> Any:
    bounded = np.maximum(x, -40.0)
    v = np.sqrt(8 / np.pi) * (bounded + 0.044715 * bounded**3)
    return bounded * _sigmoid(v)


def _function(function: Callable[..., Any], c: str) -> Any:
    """The arguments of @op for a function whose NumPy meaning is computed in float64."""
    return {"family": MAP, "scalar": float_map(in_double(function), c)}


@op(family=MAP, scalar=float_map(np.exp, "exp_fast({0})"))
def exp(a: X) -> X:
    """e to the power a, as 2 to the power a log2(e): relative error below 2**-21 + |a| 2**-23; results below 2**-126
    may be 0."""


@op(family=MAP, scalar=float_map(np.exp2, "exp2_fast({0})"))
def exp2(a: X) -> X:
    """2 to the power a: relative error below 2**-22; results below 2**-126 may be 0 (PTX `ex2.approx.ftz`)."""


@op(**_function(np.expm1, "expm1_accurate({0})"))
def expm1(a: X) -> X:
    """e to the power a, minus 1, without cancellation near 0: within 1 unit (CUDA's expm1f)."""


@op(**_function(np.log, "log_accurate({0})"))
def log(a: X) -> X:
    """The natural logarithm: within 1 unit; -infinity at 0, NaN below (CUDA's logf)."""


@op(**_function(np.log2, "log2_accurate({0})"))
def log2(a: X) -> X:
    """The logarithm to base 2: within 1 unit; -infinity at 0, NaN below (CUDA's log2f)."""


@op(**_function(np.log1p, "log1p_accurate({0})"))
def log1p(a: X) -> X:
    """log(1 + a), without cancellation near 0: within 1 unit; -infinity at -1, NaN below (CUDA's log1pf)."""


@op(family=MAP, scalar=float_map(np.sqrt, "sqrt_rounded({0})"))
def sqrt(a: X) -> X:
    """The square root, rounded once; NaN below 0, -0 at -0."""


@op(family=MAP, scalar=float_map(lambda a: np.float32(1) / np.sqrt(a), "rsqrt_fast({0})"))
def rsqrt(a: X) -> X:
    """1 / sqrt(a): relative error below 2**-22; infinity at 0, -infinity at -0, NaN below (PTX `rsqrt.approx`)."""


@op(**_function(np.sin, "sin_accurate({0})"))
def sin(a: X) -> X:
    """The sine of a in radians: within 2 units, for large a too; NaN for infinities."""


@op(**_function(np.cos, "cos_accurate({0})"))
def cos(a: X) -> X:
    """The cosine of a in radians: within 2 units, for large a too; NaN for infinities."""


@op(**_function(np.tanh, "tanh_accurate({0})"))
def tanh(a: X) -> X:
    """The hyperbolic tangent: within 2 units (CUDA's tanhf)."""


@op(**_function(_erf, "erf_accurate({0})"))
def erf(a: X) -> X:
    """2 / sqrt(pi) times the integral of exp(-t * t) from 0 to a: within 2 units (CUDA's erff)."""


@op(**_function(_sigmoid, "sigmoid({0})"))
def sigmoid(a: X) -> X:
    """1 / (1 + exp(-a)): relative error below 5 * 2**-23, or absolute below 2**-147."""


@op(**_function(lambda a: np.maximum(a, -200.0) * _sigmoid(np.maximum(a, -200.0)), "silu({0})"))
def silu(a: X) -> X:
    """a / (1 + exp(-a)): relative error below 6 * 2**-23, or absolute below 2**-140; 0 at -infinity."""


@op(**_function(lambda a: np.maximum(a, 0) + np.log1p(np.exp(-np.abs(a))), "softplus({0})"))
def softplus(a: X) -> X:
    """log(1 + exp(a)), as max(a, 0) + log1p(exp(-|a|)): relative error below 5 * 2**-23, or absolute below 2**-146."""


@op(family=MAP, scalar=float_map(lambda a: np.maximum(a, 0), "max_nan({0}, 0.0f)"))
def relu(a: X) -> X:
    """max(a, 0), exact."""


@op(**_function(_gelu_erf, "gelu_erf({0})"))
def gelu_erf(a: X) -> X:
    """a (1 + erf(a / sqrt(2))) / 2, without cancellation for a < 0: relative error below 2**-20 + a**2 * 2**-23, or
    absolute below 2**-142; 0 at -infinity. Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016."""


@op(**_function(_gelu_tanh, "gelu_tanh({0})"))
def gelu_tanh(a: X) -> X:
    """a (1 + tanh(v / 2)) / 2 with v = sqrt(8 / pi) (a + 0.044715 a**3), as a times the sigmoid of v: relative error
    below 6 * 2**-23, plus |v| 2**-22 for a < 0, or absolute below 2**-142; 0 at -infinity. Source: as gelu_erf."""


@composed
def gelu(a: X, approximate: Literal["none", "tanh"] = "none") -> X:
    """a times the normal distribution function of a; with `approximate="tanh"`, its approximation by tanh."""
    check_word("approximate", approximate, "none", "tanh")
    return gelu_erf(a) if approximate == "none" else gelu_tanh(a)
