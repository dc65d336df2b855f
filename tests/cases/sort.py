"""Rows of tiles in order, whole or their first elements, in all dtypes: with ties, NaN and infinities."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, converted, f16, f32, int8, int32, int64, uint8
from tests.cases.core import Array, Case, columns
from tests.cases.reduce import NUMBERS, coarse, wide
from tests.mistakes.operands import boolean, compile_time_int, register_tile
from tests.mistakes.rows import NUMBER, row


def ordered(x: Array, descending: bool) -> Array:
    """The columns of each row in order, by Python's sort: of equals the smaller first, NaN above all."""

    def place(line: Array, j: int) -> tuple[bool, float | int, int]:
        nan = bool(line[j] != line[j])
        value = 0 if nan else line[j].item()
        return (not nan, -value, j) if descending else (nan, value, j)

    return np.array([sorted(range(len(line)), key=lambda j: place(line, j)) for line in wide(x)])  # noqa: B023


def _mixed(rng: np.random.Generator, shape: tuple[int, int], dtype: DType) -> Array:
    """Many ties above, different numbers below, and a row of NaN."""
    x = coarse(rng, shape, dtype)
    half = shape[0] // 2
    if dtype.is_int:
        ends = np.iinfo(dtype.numpy)
        x[half:] = rng.integers(ends.min, ends.max, (shape[0] - half, shape[1]), dtype.numpy, True)
    else:
        x[half:] = converted(rng.standard_normal((shape[0] - half, shape[1])) * 8, dtype)
        x[3] = np.nan
        x[4] = converted(rng.choice([0.0, -0.0, 1.0, -1.0], shape[1]), dtype)
    return x


def _first(
    dtype: DType, rows: int, cols: int, k: int, warps: int, ways: tuple[bool, ...] = (True, False)
) -> Case:
    @pk.kernel(warps=warps)
    def take(x, *outputs):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        for n, largest in enumerate(ways):
            values, indices = pk.row_topk(t, k, largest=largest)
            pk.store(outputs[2 * n][0], values)
            pk.store(outputs[2 * n + 1][0], indices)

    width = -(-k // 16) * 16

    def exact(x: Array) -> list[Array]:
        found = []
        for largest in ways:
            order = ordered(x, largest)[:, :k]
            last = -np.inf if largest else np.inf
            if dtype.bits == 8 or dtype.is_int:
                last = dtype.least if largest else dtype.largest
            values = np.full((rows, width), last, np.int64 if dtype.is_int else np.float64)
            indices = np.full((rows, width), -1)
            values[:, :k], indices[:, :k] = np.take_along_axis(wide(x), order, 1), order
            found += [values, indices]
        return found

    return Case(
        f"sort-topk-{dtype}-{rows}x{cols}-{k}-{warps}{'' if len(ways) == 2 else f'-{ways[0]}'}",
        ("row_topk",),
        take,
        lambda rng: [_mixed(rng, (rows, cols), dtype)],
        tuple(((rows, width), d) for d in (dtype, int32) * len(ways)),
        exact,
    )


def _sorted(
    dtype: DType, rows: int, cols: int, warps: int, descending: bool, stored: str = "both"
) -> Case:
    @pk.kernel(warps=warps)
    def sort(x, *outputs):
        pk.grid(1)
        values, indices = pk.row_sort(pk.load(x[0], rows=rows, cols=cols), descending)
        found = {"both": (values, indices), "values": (values,), "indices": (indices,)}[stored]
        for y, t in zip(outputs, found, strict=True):
            pk.store(y[0], t)

    def exact(x: Array) -> list[Array]:
        order = ordered(x, descending)
        values = np.take_along_axis(wide(x), order, 1)
        return {"both": [values, order], "values": [values], "indices": [order]}[stored]

    dtypes = {"both": (dtype, int32), "values": (dtype,), "indices": (int32,)}[stored]
    return Case(
        f"sort-{'down' if descending else 'up'}-{stored}-{dtype}-{rows}x{cols}-{warps}",
        ("row_sort",),
        sort,
        lambda rng: [_mixed(rng, (rows, cols), dtype)],
        tuple(((rows, cols), d) for d in dtypes),
        exact,
    )


CASES = [_first(d, 64, columns(d), 5, 4) for d in NUMBERS]
CASES += [
    _first(d, rows, cols, k, warps)
    for rows, cols, k, warps, dtypes in (
        (16, 16, 1, 1, (f32, bf16)),
        (16, 16, 16, 1, (f32, int64)),
        (32, 16, 3, 1, (f32, int64)),
        (64, 256, 8, 4, (f16,)),
        (64, 48, 17, 4, (f32, int8)),
        (128, 48, 32, 8, (f32, uint8)),
    )
    for d in dtypes
]
CASES += [_first(f32, 64, 256, 8, 4, (way,)) for way in (True, False)]
# More than 32 columns with keys of each type.
CASES += [
    _sorted(d, 64, 64 if d in (bf16, int8, f32, int64) else 32, 4, down)
    for d in NUMBERS
    for down in (False, True)
]
CASES += [
    _sorted(f32, 16, 16, 1, False),
    _sorted(int64, 16, 16, 1, True),
    _sorted(f32, 64, 128, 4, True),
    _sorted(bf16, 128, 128, 8, False),
    _sorted(f32, 64, 256, 4, False, "values"),
    _sorted(f32, 64, 128, 4, True, "indices"),
    _sorted(f16, 64, 128, 4, False, "values"),
]

_TILE = register_tile(*NUMBER)
row(
    "row_topk",
    "pk.row_topk({tile}, {k}, largest={largest})",
    tile=("tile", _TILE),
    k=("3", compile_time_int(1, 32)),
    largest=("True", boolean),
)
row(
    "row_sort",
    "pk.row_sort({tile}, {descending})",
    tile=("tile", _TILE),
    descending=("True", boolean),
)
