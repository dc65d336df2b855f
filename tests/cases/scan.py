"""Scans along plain vectors of any length and along the rows and columns of tiles, in all dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, converted, f32, int8, int64
from tests.cases.core import Array, Case, columns
from tests.cases.reduce import coarse, product_bound, sum_bound, wide

NUMBERS = [d for d in DTYPES.values() if d is not bool_]


def _words(shape: tuple[int, ...], axis: int, names: tuple[str, ...]) -> list[Any]:
    side = "" if len(shape) == 1 else ("col_", "row_")[axis]
    return [getattr(pk, side + n) for n in names]


def _name(what: str, dtype: DType, shape: tuple[int, ...], warps: int, axis: int) -> str:
    side = "-cols" if axis == 0 else ""
    return f"scan-{what}{side}-{dtype}-{'x'.join(map(str, shape))}-{warps}"


def _moved(shape: tuple[int, ...]) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    """How a value of this shape is loaded and stored."""
    if len(shape) == 1:
        return lambda x: pk.load(x, cols=shape[0]), pk.store
    return lambda x: pk.load(x[0], rows=shape[0], cols=shape[1]), lambda y, t: pk.store(y[0], t)


def _extremes(dtype: DType, shape: tuple[int, ...], warps: int, axis: int = -1) -> Case:
    words = _words(shape, axis, ("cummax", "cummin"))
    load, store = _moved(shape)

    @pk.kernel(warps=warps)
    def scan(x, largest, least):
        pk.grid(1)
        t = load(x)
        store(largest, words[0](t))
        store(least, words[1](t))

    def inputs(rng: np.random.Generator) -> list[Array]:
        x = coarse(rng, shape, dtype)
        # A record now and then, and nothing that is no number before the last third.
        position = np.arange(shape[axis]).reshape(-1, *[1] * (axis == 0))
        grown = position * 6 / shape[axis] - 3 + rng.normal(0, 1, shape)
        if not dtype.is_int:
            x = np.where(position > shape[axis] * 0.7, x, converted(grown, dtype))
        return [x.astype(dtype.numpy)]

    return Case(
        _name("extremes", dtype, shape, warps, axis),
        tuple(w.name for w in words),
        scan,
        inputs,
        ((shape, dtype), (shape, dtype)),
        lambda x: [f.accumulate(wide(x), axis=axis) for f in (np.maximum, np.minimum)],
    )


def _totals(dtype: DType, shape: tuple[int, ...], warps: int, axis: int = -1) -> Case:
    words = _words(shape, axis, ("cumsum", "cumprod"))
    load, store = _moved(shape)

    @pk.kernel(warps=warps)
    def scan(x, y, total, product):
        pk.grid(1)
        store(total, words[0](load(x)))
        store(product, words[1](load(y)))

    def inputs(rng: np.random.Generator) -> list[Array]:
        if dtype.is_int:
            x, y = rng.integers(-100, 100, shape), rng.choice([1, 1, 3, 5, 7, -1], shape)
        else:
            x = rng.standard_normal(shape)
            y = np.exp(rng.normal(0, 0.5 / np.sqrt(shape[axis]), shape)) * rng.choice(
                [1, -1], shape
            )
            return [converted(x, dtype), converted(y, dtype)]
        return [x.astype(dtype.numpy), y.astype(dtype.numpy)]

    def exact(x: Array, y: Array) -> list[Array]:
        found = [
            wide(x).cumsum(axis),
            wide(y).cumprod(axis),
        ]  # 64-bit integers wrap as narrow ones do
        return [f.astype(dtype.numpy) if dtype.is_int else f for f in found]

    def bound(exact: list[Array], x: Array, y: Array) -> list[Array]:
        magnitude = np.abs(wide(x)).cumsum(axis)
        return [
            sum_bound(dtype, exact[0], magnitude, shape[axis]),
            product_bound(dtype, exact[1], shape[axis]),
        ]

    return Case(
        _name("totals", dtype, shape, warps, axis),
        tuple(w.name for w in words),
        scan,
        inputs,
        ((shape, dtype), (shape, dtype)),
        exact,
        bound,
    )


CASES = [
    make(d, shape, 4)
    for make in (_extremes, _totals)
    for d in NUMBERS
    for shape in ((64, columns(d)), (333,))
]
CASES += [make(d, (64, columns(d)), 4, 0) for make in (_extremes, _totals) for d in NUMBERS]
CASES += [
    make(d, shape, warps, 0)
    for make in (_extremes, _totals)
    for shape, warps, dtypes in (
        ((16, 32), 1, (int64,)),
        ((48, 16), 1, (bf16,)),
        ((256, 16), 4, (f32, int8)),
        ((128, 64), 8, (f32,)),
    )
    for d in dtypes
]
CASES += [
    make(d, shape, warps)
    for make in (_extremes, _totals)
    for shape, warps, dtypes in (
        ((32, 16), 1, (bf16, int64)),
        ((128, 64), 8, (f32, int8)),
        ((1,), 4, (f32,)),
        ((45,), 1, (bf16, f32)),
        ((700,), 1, (int8, int64)),
        ((5000,), 8, (bf16, f32)),
    )
    for d in dtypes
]
