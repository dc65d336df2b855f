"""Rows gathered by index to tiles, and tiles scattered to rows."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, f16, f32, int8, int32, int64
from tests import tolerance
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, columns, unwritten

NAMED, HEIGHT = 55, 40  # rows that an index names, rows of the matrix


def indices(rng: np.random.Generator, dtype: DType) -> Array:
    """Rows of the matrix, some of them twice, and some that it does not have."""
    found = rng.integers(0, HEIGHT, NAMED).astype(dtype.numpy)
    found[[3, 9, 20]] = -1, HEIGHT, dtype.largest
    return found


@pk.kernel
def gathered(x, index, y):
    """64 rows, the last of which the index does not name: it reads as -1 there."""
    (j,) = pk.grid(2)
    rows = pk.load(index, cols=64, spread=pk.per_row, fill=-1)
    pk.store(y[0, j], pk.gather(x[..., j], rows, cols=32, fill=1))


def _gather(dtype: DType, index_dtype: DType, cols: int) -> Case:
    def reference(x: Array, index: Array) -> tuple[Array]:
        y = np.ones((64, 64), dtype.numpy)
        for i, row in enumerate(index.tolist()):
            if 0 <= row < HEIGHT:
                y[i, :cols] = x[row]
        return (y,)

    return Case(
        f"gather-{dtype}-{index_dtype}-{cols}",
        ("gather",),
        gathered,
        lambda rng: [numbers(rng, (HEIGHT, cols), dtype), indices(rng, index_dtype)],
        (((64, 64), dtype),),
        reference,
    )


def _of_rank_3(warps: int) -> Case:
    """Heads of a cache: the row of each comes from the same index."""

    @pk.kernel(warps=warps)
    def heads(x, index, y):
        (h,) = pk.grid(x.shape[0])
        rows = pk.load(index, cols=128, spread=pk.per_row)
        pk.store(y[h, 0, 0], pk.gather(x.at(h), rows, cols=16))

    return Case(
        f"gather-rank_3-{warps}",
        ("gather",),
        heads,
        lambda rng: [numbers(rng, (3, HEIGHT, 16), f32), rng.integers(0, HEIGHT, 128)],
        (((3, 128, 16), f32),),
        lambda x, index: (x[:, index],),
    )


@pk.kernel
def scattered(x, index, y):
    (j,) = pk.grid(2)
    rows = pk.load(index, cols=64, spread=pk.per_row, fill=-1)
    pk.scatter(y[..., j], rows, pk.load(x[0, j], rows=64, cols=32))


def _scatter(dtype: DType, index_dtype: DType, cols: int) -> Case:
    def once(rng: np.random.Generator) -> Array:
        found = rng.permutation(64).astype(index_dtype.numpy)[:NAMED]  # some outside the matrix
        found[found == HEIGHT] = -5
        return found

    def reference(x: Array, index: Array) -> tuple[Array]:
        y = unwritten((HEIGHT, cols), dtype)
        for i, row in enumerate(index.tolist()):
            if 0 <= row < HEIGHT:
                y[row] = x[i]
        return (y,)

    return Case(
        f"scatter-{dtype}-{index_dtype}-{cols}",
        ("scatter",),
        scattered,
        lambda rng: [numbers(rng, (64, cols), dtype), once(rng)],
        (((HEIGHT, cols), dtype),),
        reference,
    )


@pk.kernel
def accumulated(x, index, y, *, op):
    (i,) = pk.grid(2)
    rows = pk.load(index[i], cols=64, spread=pk.per_row)
    pk.scatter(y, rows, pk.load(x[i], rows=64, cols=pk.static(y.cols)), op=op)


def _accumulate(dtype: DType, op: str) -> Case:
    """Many rows meet at few."""
    cols = columns(dtype)

    def inputs(rng: np.random.Generator) -> list[Array]:
        x = rng.standard_normal((128, cols)) * 8
        return [x.astype(dtype.numpy), rng.integers(0, 7, 128).astype(np.int32)]

    def reference(x: Array, index: Array, op: str) -> tuple[Array]:
        y = np.ones((9, cols))
        function = {"add": np.add, "max": np.maximum, "min": np.minimum}[op]
        function.at(y, index, x.astype(np.float64))
        return (y,)

    def most(exact: list[Array], x: Array, index: Array) -> list[Array]:
        total = np.ones((9, cols))
        np.add.at(total, index, np.abs(x.astype(np.float64)))
        meeting = np.bincount(index, minlength=9)[:, None]
        return [tolerance.rounding(dtype.numpy, total) * (meeting + 1)]

    return Case(
        f"scatter-{op}-{dtype}",
        ("scatter",),
        accumulated,
        inputs,
        (((9, cols), dtype),),
        reference,
        most if op == "add" and dtype.is_float else None,
        {"op": op},
        before=1,
    )


CASES = [_gather(d, int32, 64) for d in DTYPES.values()]
CASES += [_gather(d, int64, 53) for d in (bf16, f32, int8)]
CASES += [_of_rank_3(w) for w in (1, 4, 8)]
CASES += [_scatter(d, int32, 64) for d in DTYPES.values() if d is not bool_]
CASES += [_scatter(d, int64, 53) for d in (bf16, f32, int8)]
CASES += [_accumulate(d, "add") for d in (f32, f16, bf16, int32, int64)]
CASES += [_accumulate(d, op) for d in (f32, bf16, int32) for op in ("max", "min")]
