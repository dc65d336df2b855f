"""Reductions of tiles along rows, along columns and as a whole, and of vectors of every spread, in all dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import (
    DTYPES,
    DType,
    bf16,
    bool_,
    converted,
    e4m3,
    f32,
    int8,
    int32,
    int64,
)
from tests import tolerance
from tests.cases.core import Array, Case, columns

NUMBERS = [d for d in DTYPES.values() if d is not bool_]


def coarse(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers that often are equal; of floats a few are infinite or no number, each in another row."""
    if dtype.is_int:
        low = max(int(dtype.least), -5)
        values = rng.integers(low, 6, shape).astype(dtype.numpy)
        values.reshape(-1)[rng.integers(0, values.size, 3)] = [
            dtype.least,
            dtype.largest,
            dtype.least,
        ]
        return values
    values = rng.integers(-8, 9, shape) / 4
    flat = values.reshape(-1)
    rare = [-0.0, 0.0] if dtype is e4m3 else [np.inf, -np.inf]
    flat[rng.integers(0, flat.size, 4)] = [*rare, *rare]
    if flat.size > 40:
        flat[rng.integers(0, flat.size, 3)] = np.nan
    return converted(values, dtype)


def summands(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers to add up: those of a narrow integer are few, so that the sum of all of them has room."""
    if dtype.is_int:
        signs = rng.integers(0 if dtype.least == 0 else -2, 3, shape)
        return np.where(rng.random(shape) < 0.02, signs, 0).astype(dtype.numpy)
    return converted(rng.standard_normal(shape), dtype)


def factors(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers to multiply: near 1 in size, so that their product stays in range."""
    signs = rng.choice([1, 1, -1] if dtype.least else [1], shape)
    if dtype.is_int:
        return np.where(rng.random(shape) < 3 / np.prod(shape), 2, signs).astype(dtype.numpy)
    return converted(signs * np.exp(rng.normal(0, 0.5 / np.sqrt(np.prod(shape)), shape)), dtype)


def wide(x: Array) -> Array:
    """Exact arithmetic's type."""
    return x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)


def sum_bound(dtype: DType, exact: Array, magnitude: Array, count: int) -> Array:
    """A sum in f32, rounded once; integers are exact."""
    return exact * 0 if dtype.is_int else tolerance.product(dtype.numpy, exact, magnitude, count)


def product_bound(dtype: DType, exact: Array, count: int) -> Array:
    """A product in f32, rounded once; integers are exact."""
    return (
        exact * 0 if dtype.is_int else tolerance.product(dtype.numpy, exact, np.abs(exact), count)
    )


# -- along an axis of a tile -----------------------------------------------------------------------


def _extremes(dtype: DType, axis: int, rows: int, cols: int, warps: int) -> Case:
    words = [getattr(pk, ("col_", "row_")[axis] + w) for w in ("max", "min", "argmax", "argmin")]

    @pk.kernel(warps=warps)
    def reduce(x, largest, least, first_largest, first_least):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        for word, out in zip(words, (largest, least, first_largest, first_least), strict=True):
            pk.store(out, word(t))

    def exact(x: Array) -> list[Array]:
        x = wide(x)
        return [x.max(axis), x.min(axis), x.argmax(axis), x.argmin(axis)]

    length = ((rows, cols)[1 - axis],)
    return Case(
        f"reduce-extremes-{('cols', 'rows')[axis]}-{dtype}-{rows}x{cols}-{warps}",
        tuple(w.name for w in words),
        reduce,
        lambda rng: [coarse(rng, (rows, cols), dtype)],
        ((length, dtype), (length, dtype), (length, int32), (length, int32)),
        exact,
    )


def _totals(dtype: DType, axis: int, rows: int, cols: int, warps: int) -> Case:
    words = [getattr(pk, ("col_", "row_")[axis] + w) for w in ("sum", "prod")]

    @pk.kernel(warps=warps)
    def reduce(x, y, total, product):
        pk.grid(1)
        pk.store(total, words[0](pk.load(x[0], rows=rows, cols=cols)))
        pk.store(product, words[1](pk.load(y[0], rows=rows, cols=cols)))

    def inputs(rng: np.random.Generator) -> list[Array]:
        # Sums of whole rows wrap; those over all elements would be an error.
        x = (
            rng.integers(-100, 100, (rows, cols))
            if dtype.is_int
            else summands(rng, (rows, cols), dtype)
        )
        return [x.astype(dtype.numpy), factors(rng, (rows, cols), dtype)]

    def exact(x: Array, y: Array) -> list[Array]:
        found = [wide(x).sum(axis), wide(y).prod(axis)]
        return [f.astype(dtype.numpy) if dtype.is_int else f for f in found]

    def bound(exact: list[Array], x: Array, y: Array) -> list[Array]:
        count = x.shape[axis]
        return [
            sum_bound(dtype, exact[0], np.abs(wide(x)).sum(axis), count),
            product_bound(dtype, exact[1], count),
        ]

    length = ((rows, cols)[1 - axis],)
    return Case(
        f"reduce-totals-{('cols', 'rows')[axis]}-{dtype}-{rows}x{cols}-{warps}",
        tuple(w.name for w in words),
        reduce,
        inputs,
        ((length, dtype), (length, dtype)),
        exact,
        bound,
    )


# -- over all elements -----------------------------------------------------------------------------


def _loaded(shape: tuple[int, ...], spread: Any) -> Callable[[Any], Any]:
    if len(shape) == 2:
        return lambda x: pk.load(x[0], rows=shape[0], cols=shape[1])
    return lambda x: pk.load(x, cols=shape[0], spread=spread)


def _whole(dtype: DType, shape: tuple[int, ...], warps: int, spread: Any = pk.plain) -> Case:
    """The largest and the smallest element and where they stand."""
    load = _loaded(shape, spread)

    @pk.kernel(warps=warps)
    def reduce(x, largest, least, first_largest, first_least):
        pk.grid(1)
        t = load(x)
        pk.store(largest, pk.max(t))
        pk.store(least, pk.min(t))
        pk.store(first_largest, pk.argmax(t))
        pk.store(first_least, pk.argmin(t))

    return Case(
        f"reduce-extremes-{_size(shape, spread)}-{dtype}-{warps}",
        ("max", "min", "argmax", "argmin"),
        reduce,
        lambda rng: [coarse(rng, shape, dtype)],
        (((1,), dtype), ((1,), dtype), ((1,), int32), ((1,), int32)),
        lambda x: [np.array([f(wide(x))]) for f in (np.max, np.min, np.argmax, np.argmin)],
    )


def _whole_totals(dtype: DType, shape: tuple[int, ...], warps: int, spread: Any = pk.plain) -> Case:
    load = _loaded(shape, spread)

    @pk.kernel(warps=warps)
    def reduce(x, y, total, product):
        pk.grid(1)
        pk.store(total, pk.sum(load(x)))
        pk.store(product, pk.prod(load(y)))

    def bound(exact: list[Array], x: Array, y: Array) -> list[Array]:
        return [
            sum_bound(dtype, exact[0], np.abs(wide(x)).sum(), x.size),
            product_bound(dtype, exact[1], x.size),
        ]

    return Case(
        f"reduce-totals-{_size(shape, spread)}-{dtype}-{warps}",
        ("sum", "prod"),
        reduce,
        lambda rng: [summands(rng, shape, dtype), factors(rng, shape, dtype)],
        (((1,), dtype), ((1,), dtype)),
        lambda x, y: [np.array([wide(x).sum()]), np.array([wide(y).prod()])],
        bound,
    )


def _size(shape: tuple[int, ...], spread: Any) -> str:
    return (
        "x".join(map(str, shape))
        if len(shape) == 2
        else f"{spread}".replace(" ", "_") + f"_{shape[0]}"
    )


# -- truths ----------------------------------------------------------------------------------------


def _truths(rows: int, cols: int, warps: int) -> Case:
    @pk.kernel(warps=warps)
    def reduce(x, row_any, row_all, col_any, col_all, some, every):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        pk.store(row_any, pk.row_any(t))
        pk.store(row_all, pk.row_all(t))
        pk.store(col_any, pk.col_any(t))
        pk.store(col_all, pk.col_all(t))
        pk.store(some, pk.any(t))
        pk.store(every, pk.all(pk.row_any(t)))

    def inputs(rng: np.random.Generator) -> list[Array]:
        x = rng.random((rows, cols)) < 1 / cols
        x[3], x[:, 5] = True, True
        x[7] = False
        return [x]

    def exact(x: Array) -> list[Array]:
        whole = [np.array([x.any()]), np.array([x.any(1).all()])]
        return [x.any(1), x.all(1), x.any(0), x.all(0), *whole]

    vectors = tuple(((n,), bool_) for n in (rows, rows, cols, cols, 1, 1))
    ops = ("row_any", "row_all", "col_any", "col_all", "any", "all")
    return Case(f"reduce-truths-{rows}x{cols}-{warps}", ops, reduce, inputs, vectors, exact)


CASES = [
    make(d, axis, 64, columns(d), 4)
    for make in (_extremes, _totals)
    for d in NUMBERS
    for axis in (0, 1)
]
CASES += [
    make(d, axis, rows, 32, warps)
    for make in (_extremes, _totals)
    for d in (bf16, f32, int64)
    for axis in (0, 1)
    for rows, warps in ((32, 1), (128, 8))
]
CASES += [make(d, (64, columns(d)), 4) for make in (_whole, _whole_totals) for d in NUMBERS]
CASES += [
    make(d, (n,), warps)
    for make in (_whole, _whole_totals)
    for n, warps, dtypes in (
        (1, 4, (f32,)),
        (33, 1, (bf16, int8)),
        (1000, 4, (bf16, f32, int64)),
        (3001, 8, (f32,)),
    )
    for d in dtypes
]
CASES += [
    make(d, (64,), warps, spread)
    for make in (_whole, _whole_totals)
    for d, spread, warps in (
        (bf16, pk.per_row, 4),
        (int32, pk.per_row, 1),
        (bf16, pk.per_column, 4),
        (int32, pk.per_column, 1),
    )
]
CASES += [_truths(64, 48, 4), _truths(32, 16, 1), _truths(128, 32, 8)]
