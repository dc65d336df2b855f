"""Constants of all dtypes from numbers or scalars, and the positions of elements."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bool_, converted, f32, int32
from tests.cases.core import Case


def _value(dtype: DType) -> float:
    return True if dtype is bool_ else -2.7 if dtype.is_float else 93


def _constants(dtype: DType) -> Case:
    value = _value(dtype)

    @pk.kernel
    def make(tile, vector, nothing):
        pk.grid(1)
        pk.store(tile[0], pk.full(dtype, value, 64, 48))
        pk.store(vector, pk.full(dtype, value, 77))
        pk.store(nothing[0], pk.zeros(dtype, 64, 48))

    filled = converted(np.float32(value) if dtype.is_float else np.int64(value), dtype)
    return Case(
        f"creation-full-{dtype}",
        ("full", "zeros"),
        make,
        lambda rng: [],
        (((64, 48), dtype), ((77,), dtype), ((64, 48), dtype)),
        lambda: [np.full((64, 48), filled), np.full(77, filled), np.zeros((64, 48), dtype.numpy)],
    )


def _spread(dtype: DType, warps: int) -> Case:
    value = _value(dtype)

    @pk.kernel(warps=warps)
    def make(rows, cols, vector, nothing):
        pk.grid(1)
        pk.store(rows, pk.full(dtype, value, 128, spread=pk.per_row))
        pk.store(cols, pk.full(dtype, value, 48, spread=pk.per_column))
        pk.store(vector, pk.full(dtype, value, 77, spread=pk.plain))
        pk.store(nothing, pk.zeros(dtype, 128, spread=pk.per_row))

    filled = converted(np.float32(value) if dtype.is_float else np.int64(value), dtype)
    return Case(
        f"creation-spread-{dtype}-{warps}",
        ("full", "zeros"),
        make,
        lambda rng: [],
        tuple(((n,), dtype) for n in (128, 48, 77, 128)),
        lambda: [*(np.full(n, filled) for n in (128, 48, 77)), np.zeros(128, dtype.numpy)],
    )


def _scalar(dtype: DType, value: float) -> Case:
    @pk.kernel
    def make(tile, vector, value):
        pk.grid(1)
        pk.store(tile[0], pk.full(dtype, value, 64, 48))
        pk.store(vector, pk.full(dtype, value, 77))

    return Case(
        f"creation-full-scalar-{dtype}",
        ("full",),
        make,
        lambda rng: [],
        (((64, 48), dtype), ((77,), dtype)),
        lambda value: [np.full((64, 48), value, dtype.numpy), np.full(77, value, dtype.numpy)],
        scalars=(value,),
    )


def _iota(length: int, warps: int) -> Case:
    @pk.kernel(warps=warps)
    def make(y):
        pk.grid(1)
        pk.store(y, pk.iota(length))

    return Case(
        f"creation-iota-{length}-{warps}",
        ("iota",),
        make,
        lambda rng: [],
        (((length,), int32),),
        lambda: [np.arange(length)],
    )


def _positions(rows: int, cols: int, warps: int) -> Case:
    @pk.kernel(warps=warps)
    def make(y, below):
        pk.grid(1)
        row, col = pk.row_index(rows), pk.col_index(cols)
        pk.store(y[0], row * 1000 + col)
        pk.store(below[0], row >= col)

    row, col = np.mgrid[:rows, :cols]
    return Case(
        f"creation-positions-{rows}x{cols}-{warps}",
        ("row_index", "col_index"),
        make,
        lambda rng: [],
        (((rows, cols), int32), ((rows, cols), bool_)),
        lambda: [row * 1000 + col, row >= col],
    )


CASES = [_constants(d) for d in DTYPES.values()]
CASES += [_spread(d, w) for d in DTYPES.values() for w in (4, *(1, 8) * (d is f32))]
CASES += [_scalar(f32, -1.5), _scalar(int32, 2**31 - 1)]
CASES += [_iota(n, w) for n, w in ((1, 4), (33, 1), (1000, 4), (3001, 8))]
CASES += [_positions(*s) for s in ((64, 48, 4), (32, 16, 1), (128, 80, 8))]
