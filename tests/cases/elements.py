"""Elements of tensors and of shared vectors by index: gathered, scattered, and combined."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bool_, f32, int8, int32, int64, uint8
from tests import tolerance
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten

LENGTH = 40  # elements of the memory that indices name
SPREADS = {"plain": pk.plain, "per_row": pk.per_row, "per_column": pk.per_column}
COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum}


def indices(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Elements of the memory, some of them twice, and some that it does not have."""
    found = rng.integers(0, LENGTH, count).astype(dtype.numpy)
    found[[3, 9, 20]] = -1, LENGTH, dtype.largest
    return found


def distinct(rng: np.random.Generator, count: int, dtype: DType = int32) -> Array:
    """Different elements of the memory, and some that it does not have."""
    found = rng.permutation(LENGTH + 12).astype(dtype.numpy)[:count]
    found[found == LENGTH + 2] = -1
    return found


# -- tensors ---------------------------------------------------------------------------------------


@pk.kernel
def gathered(x, index, y, *, spread):
    pk.grid(1)
    at = pk.load(index, cols=64, spread=spread, fill=-1)
    pk.store(y, pk.gather(x, at, fill=1))


@pk.kernel
def gathered_from_rows(x, index, y):
    """Row 2 of a matrix of which there are elements 3 to 30 only, and a row that it does not have."""
    pk.grid(1)
    at = pk.load(index, rows=64, cols=48, fill=-1)
    part = x.window(1, 3, 31)
    pk.store(y[0, 0, 0], pk.gather(part[2], at, fill=1))
    pk.store(y[1, 0, 0], pk.gather(part[5], at, fill=1))


def _found(x: Array, index: Array) -> Array:
    y = np.ones(index.shape, x.dtype)
    inside = (index >= 0) & (index < len(x))
    y[inside] = x[index[inside]]
    return y


def _gather(dtype: DType, index_dtype: DType, spread: str) -> Case:
    def reference(x: Array, index: Array, **_: Any) -> tuple[Array]:
        return (np.concatenate([_found(x, index), np.ones(9, x.dtype)]),)

    return Case(
        f"elements-gather-{dtype}-{index_dtype}-{spread}",
        ("gather",),
        gathered,
        lambda rng: [numbers(rng, (LENGTH,), dtype), indices(rng, index_dtype, 55)],
        (((64,), dtype),),
        reference,
        constants={"spread": SPREADS[spread]},
    )


def _gather_rows(index_dtype: DType) -> Case:
    def inputs(rng: np.random.Generator) -> list[Array]:
        index = rng.integers(-3, 40, (64, 48)).astype(index_dtype.numpy)
        index[5, 6:8] = index_dtype.least, index_dtype.largest
        return [numbers(rng, (5, LENGTH), f32), index]

    return Case(
        f"elements-gather-rows-{index_dtype}",
        ("gather",),
        gathered_from_rows,
        inputs,
        (((2, 64, 48), f32),),
        lambda x, index: (np.stack([_found(x[2, 3:31], index), np.ones(index.shape, x.dtype)]),),
    )


@pk.kernel
def scattered(x, index, y, z, *, spread):
    pk.grid(1)
    at = pk.load(index, cols=64, spread=spread, fill=-1)
    pk.scatter(y, at, pk.load(x, cols=64, spread=spread))
    pk.scatter(z[1], at, 3)


def _scatter(dtype: DType, index_dtype: DType, spread: str) -> Case:
    def reference(x: Array, index: Array, **_: Any) -> tuple[Array, Array]:
        y, z = unwritten((LENGTH,), dtype), unwritten((2, LENGTH), dtype)
        inside = (index >= 0) & (index < LENGTH)
        y[index[inside]], z[1, index[inside]] = x[:52][inside], 3
        return y, z

    return Case(
        f"elements-scatter-{dtype}-{index_dtype}-{spread}",
        ("scatter",),
        scattered,
        lambda rng: [numbers(rng, (64,), dtype), distinct(rng, 52, index_dtype)],
        (((LENGTH,), dtype), ((2, LENGTH), dtype)),
        reference,
        constants={"spread": SPREADS[spread]},
    )


@pk.kernel
def accumulated(x, index, y, *, op, spread):
    pk.grid(1)
    for i in range(2):
        at = pk.load(index[i], cols=64, spread=spread)
        pk.scatter(y, at, pk.load(x[i], cols=64, spread=spread), op=op)


def _meeting(rng: np.random.Generator, dtype: DType) -> list[Array]:
    """Many values for few elements."""
    x = rng.standard_normal(128) * 8
    return [x.astype(dtype.numpy), rng.integers(0, 7, 128).astype(np.int32)]


def _combined(x: Array, index: Array, op: str, **_: Any) -> tuple[Array]:
    y = np.ones(9)
    COMBINE[op].at(y, index, x.astype(np.float64))
    return (y,)


def _most(exact: list[Array], x: Array, index: Array) -> list[Array]:
    total = np.ones(9)
    np.add.at(total, index, np.abs(x.astype(np.float64)))
    return [tolerance.rounding(x.dtype, total) * (np.bincount(index, minlength=9) + 1)]


def _accumulate(name: str, kernel: Any, dtype: DType, op: str, spread: str) -> Case:
    return Case(
        f"elements-{name}-{op}-{dtype}-{spread}",
        ("scatter",),
        kernel,
        lambda rng: _meeting(rng, dtype),
        (((9,), dtype),),
        _combined,
        _most if op == "add" and dtype.is_float else None,
        {"op": op, "spread": SPREADS[spread]},
        before=1,
    )


@pk.kernel
def counted(x, y, scale):
    """Bytes of a tile, each of which counts for `scale`."""
    pk.grid(1)
    pk.scatter(y, pk.load(x, rows=64, cols=64).to(int32), scale, op="add")


def _count() -> Case:
    return Case(
        "elements-count-int32-uint8",
        ("scatter",),
        counted,
        lambda rng: [rng.integers(0, 40, (64, 64), np.uint8)],
        (((30,), int32),),
        lambda x, scale: (scale * np.bincount(x.reshape(-1), minlength=30)[:30],),
        scalars=(5,),
        before=0,
    )


# -- shared memory ---------------------------------------------------------------------------------


@pk.kernel
def accumulated_in_shared(x, index, y, *, op, spread):
    part = pk.shared(pk.sv(x.dtype, 16))
    pk.grid(1)
    pk.store(part, pk.load(y, cols=16))
    pk.sync()
    for i in range(2):
        at = pk.load(index[i], cols=64, spread=spread)
        pk.scatter(part, at, pk.load(x[i], cols=64, spread=spread), op=op)
    pk.sync()
    pk.store(y, pk.gather(part, pk.iota(9)))


@pk.kernel
def permuted(x, index, y, *, spread):
    """The second half of a shared vector, by an index of which some lie outside; the rest of it is 1."""
    whole = pk.shared(pk.sv(x.dtype, 128))
    pk.grid(1)
    half = whole.parts(64)[1]
    pk.store(half, pk.load(x, cols=64))
    pk.sync()
    at = pk.load(index, cols=64, spread=spread)
    found = pk.gather(half, at, fill=1)
    pk.sync()
    pk.scatter(half, pk.iota(64), pk.spread(found, pk.plain))
    pk.sync()
    pk.store(y, pk.load(half))


def _permute(dtype: DType, spread: str) -> Case:
    def inputs(rng: np.random.Generator) -> list[Array]:
        index = rng.permutation(70).astype(np.int32)[:64]
        return [numbers(rng, (64,), dtype), np.where(index == 66, -2, index).astype(np.int32)]

    return Case(
        f"elements-shared-permute-{dtype}-{spread}",
        ("gather", "scatter"),
        permuted,
        inputs,
        (((64,), dtype),),
        lambda x, index, **_: (_found(x, index),),
        constants={"spread": SPREADS[spread]},
    )


def _histogram(warps: int) -> Case:
    """A block counts in shared memory and adds its counts to a tensor."""

    @pk.kernel(warps=warps)
    def histogram(x, y):
        part = pk.shared(pk.sv(int32, 256))
        pk.grid(1)
        pk.store(part, pk.zeros(int32, 256))
        pk.sync()
        for j in pk.range(pk.cdiv(x.cols, 500)):
            at = pk.load(x[j], cols=500).to(int32)
            inside = j * 500 + pk.iota(500) < x.cols
            pk.scatter(part, pk.where(inside, at, -1), 1, op="add")
        pk.sync()
        pk.store(y, pk.load(part), op="add")

    return Case(
        f"elements-shared-histogram-{warps}",
        ("scatter",),
        histogram,
        lambda rng: [rng.integers(0, 256, 1700, np.uint8)],
        (((256,), int32),),
        lambda x: (np.bincount(x, minlength=256),),
        before=0,
    )


CASES = [_gather(d, int32, "plain") for d in DTYPES.values()]
CASES += [_gather(d, int64, s) for d in (f32, int8) for s in SPREADS]
CASES += [_gather_rows(d) for d in (int32, int64)]
CASES += [_scatter(d, int32, "plain") for d in DTYPES.values() if d is not bool_]
CASES += [_scatter(d, int64, s) for d in (f32, int8) for s in ("per_row", "per_column")]
ATOMIC = [d for d in DTYPES.values() if d.bits >= 16]
CASES += [_accumulate("scatter", accumulated, d, op, "plain") for d in ATOMIC for op in COMBINE]
CASES += [_accumulate("scatter", accumulated, f32, "add", s) for s in ("per_row", "per_column")]
CASES += [_count()]
CASES += [
    _accumulate("shared", accumulated_in_shared, d, op, "plain")
    for d in (f32, int32, int64)
    for op in COMBINE
]
CASES += [
    _accumulate("shared", accumulated_in_shared, int32, "add", s) for s in ("per_row", "per_column")
]
CASES += [_permute(d, "plain") for d in DTYPES.values() if d is not bool_]
CASES += [_permute(uint8, s) for s in ("per_row", "per_column")]
CASES += [_histogram(w) for w in (1, 4)]
