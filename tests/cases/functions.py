"""Functions of floats over their whole domains, special numbers included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.ops.functions import gelu_erf, gelu_tanh
from pykittens.types.dtypes import DType, bf16, converted, e4m3, e5m2, f16, f32
from tests import tolerance
from tests.cases.core import Array, Case

FLOATS = (bf16, f16, f32, e4m3, e5m2)
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    1.1754944e-38,
    3.4e38,
    -3.4e38,
]


@dataclass(frozen=True)
class Function:
    """A function, its exact values, and the largest error in f32: units in the last place, relative and absolute.

    relative: of an input; it and `absolute` stand for what the docstring states.
    """

    call: Callable[[Any], Any]
    exact: Callable[[Array], Array]
    units: float = 0
    relative: Callable[[Array], Array | float] = lambda x: 0.0
    absolute: float = 0.0


def _normal_distribution(x: float) -> float:
    return x * math.erfc(-x / math.sqrt(2)) / 2 if x > -40 else x * 0.0 if x == x else x


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(x), 1.0) / (1 + np.exp(-np.abs(x)))


def _twice(x: Array) -> Array:
    """The argument of the sigmoid that stands for the tanh of gelu."""
    return math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)


def _limited(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function that is 0 far below 0, where its formula is infinity times 0."""
    return lambda x: np.where(x < -200, -0.0, function(np.where(x < -200, -1.0, x)))


FUNCTIONS = {
    "exp": Function(pk.exp, np.exp, 0, lambda x: 2.0**-21 + np.abs(x) * 2.0**-23, 2.0**-126),
    "exp2": Function(pk.exp2, np.exp2, 0, lambda x: 2.0**-22, 2.0**-126),
    "expm1": Function(pk.expm1, np.expm1, 1),
    "log": Function(pk.log, np.log, 1),
    "log2": Function(pk.log2, np.log2, 1),
    "log1p": Function(pk.log1p, np.log1p, 1),
    "sqrt": Function(pk.sqrt, np.sqrt),
    "rsqrt": Function(pk.rsqrt, lambda x: 1 / np.sqrt(x), 0, lambda x: 2.0**-22),
    "sin": Function(pk.sin, np.sin, 2),
    "cos": Function(pk.cos, np.cos, 2),
    "tanh": Function(pk.tanh, np.tanh, 2),
    "erf": Function(pk.erf, np.vectorize(math.erf, otypes=[float]), 2),
    "sigmoid": Function(pk.sigmoid, _sigmoid, 0, lambda x: 5 * 2.0**-23, 2.0**-147),
    "silu": Function(
        pk.silu, _limited(lambda x: x * _sigmoid(x)), 0, lambda x: 6 * 2.0**-23, 2.0**-140
    ),
    "softplus": Function(
        pk.softplus,
        lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
        0,
        lambda x: 5 * 2.0**-23,
        2.0**-146,
    ),
    "relu": Function(pk.relu, lambda x: np.maximum(x, 0)),
    "gelu_erf": Function(
        gelu_erf,
        _limited(np.vectorize(_normal_distribution, otypes=[float])),
        0,
        lambda x: 2.0**-20 + np.where(x < 0, x * x, 1) * 2.0**-23,
        2.0**-142,
    ),
    "gelu_tanh": Function(
        gelu_tanh,
        _limited(lambda x: x * _sigmoid(_twice(x))),
        0,
        lambda x: 6 * 2.0**-23 + np.where(x < 0, np.abs(_twice(x)), 0) * 2.0**-22,
        2.0**-142,
    ),
}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of every size, many between -110 and 110, and special ones."""
    spread = np.exp2(rng.uniform(-149, 128, shape)) * rng.choice([-1, 1], shape)
    values = np.where(rng.random(shape) < 0.4, spread, rng.uniform(-110, 110, shape))
    values = np.where(rng.random(shape) < 0.3, rng.standard_normal(shape), values)
    values.reshape(-1)[: len(SPECIAL)] = SPECIAL
    with np.errstate(over="ignore"):
        return converted(values, dtype)


def exact(f: Function, x: Array, dtype: DType) -> Array:
    """The values of a function in float64, infinite where the dtype's are."""
    with np.errstate(all="ignore"):
        values = f.exact(x.astype(np.float64))
        if dtype.bits == 8:
            return np.clip(values, dtype.least, dtype.largest)
        return np.where(np.isfinite(converted(values, dtype)), values, converted(values, dtype))


def bound(f: Function, wanted: Array, x: Array, dtype: DType) -> Array:
    """The stated error in f32, one rounding to it and one to the dtype."""
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
        unit = np.spacing(size.astype(np.float32)).astype(np.float64)
        relative = np.where(size > 0, f.relative(x.astype(np.float64)) * size, 0)
        rounding = tolerance.rounding(np.float32, size) + tolerance.rounding(dtype.numpy, size)
        return f.units * unit + relative + f.absolute + rounding


def _case(name: str, dtype: DType, kernel: Any, load: str, shape: tuple[int, ...]) -> Case:
    f = FUNCTIONS[name]
    return Case(
        f"map-{name}-{dtype}-{load}",
        (name,),
        kernel,
        lambda rng: [numbers(rng, shape, dtype)],
        ((shape, dtype),),
        lambda x: [exact(f, x, dtype)],
        lambda wanted, x: [bound(f, wanted[0], x, dtype)],
    )


def _cases(name: str) -> list[Case]:
    f = FUNCTIONS[name]

    @pk.kernel
    def of_a_tile(x, y):
        pk.grid(1)
        cols = 32 if x.dtype is f32 else 16
        pk.store(y[0], f.call(pk.load(x[0], rows=64, cols=cols)))

    @pk.kernel(warps=8)
    def of_a_vector(x, y):
        pk.grid(1)
        pk.store(y, f.call(pk.load(x, cols=1001)))

    narrow = e4m3 if len(name) % 2 else e5m2
    cases = [_case(name, d, of_a_tile, "64x16", (64, 16)) for d in (bf16, f16, narrow)]
    cases.append(_case(name, f32, of_a_tile, "64x32", (64, 32)))
    cases.append(_case(name, f32, of_a_tile, "50x21", (50, 21)))
    cases.append(_case(name, bf16, of_a_vector, "1001", (1001,)))
    return cases


CASES = [case for name in FUNCTIONS for case in _cases(name)]
