"""Conversions between all dtypes, in tiles and in vectors, and constants."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bool_, converted, f32, int64
from tests.cases.core import Array, Case

# Every kind of number a conversion may meet: ties, ends of ranges and beyond, and what is no number.
SPECIAL = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -3.7,
    127.5,
    128,
    -129,
    255,
    256,
    447,
    465,
    500,
    6e4,
    1e6,
    3e9,
    -3e9,
    1e30,
    1e-9,
]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of a dtype: random ones, then special ones."""
    if dtype.is_int:
        low = max(int(dtype.least), -(2**40))
        values = rng.integers(
            low, min(int(dtype.largest), 2**40), shape, dtype=np.int64, endpoint=True
        )
        return values.astype(dtype.numpy)
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    values = rng.standard_normal(shape) * np.exp(rng.uniform(-8, 8, shape))
    special = [*SPECIAL, *([np.inf, -np.inf] if dtype.has_infinity else []), np.nan]
    values.reshape(-1)[: len(special)] = special[: values.size]
    with np.errstate(over="ignore"):
        return converted(values, dtype)


def _exact(x: Array, dtype: DType) -> tuple[Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        return (converted(x, dtype),)


def _tile(source: DType, to: DType, rows: int, cols: int) -> Case:
    @pk.kernel
    def convert(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=pk.cdiv(cols, 16) * 16).to(to))

    return Case(
        f"convert-{source}-{to}-{rows}x{cols}",
        ("to",),
        convert,
        lambda rng: [numbers(rng, (rows, cols), source)],
        (((rows, cols), to),),
        lambda x: _exact(x, to),
    )


def _vector(source: DType, to: DType, length: int) -> Case:
    @pk.kernel
    def convert(x, y):
        pk.grid(1)
        pk.store(y, pk.load(x, cols=length).to(to))

    return Case(
        f"convert-{source}-{to}-{length}",
        ("to",),
        convert,
        lambda rng: [numbers(rng, (length,), source)],
        (((length,), to),),
        lambda x: _exact(x, to),
    )


# Several panels of columns from f32 and to it.
PAIRS = [(a, b, f32 in (a, b)) for a in DTYPES.values() for b in DTYPES.values()]
CASES = [_tile(a, b, 64, 64 if wide else 16) for a, b, wide in PAIRS]
CASES += [_tile(a, b, 50, 37 if wide else 13) for a, b, wide in PAIRS if int64 not in (a, b)]
CASES += [_vector(a, a, n) for a in DTYPES.values() for n in (40, 1000)]
