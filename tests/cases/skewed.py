"""Rows at any address: views that start between multiples of 16 bytes, and rows of odd length."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, f32, int8, int64
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten


def _rows(dtype: DType, warps: int, length: int) -> Case:
    """Rows that end before the vector, to others that end earlier."""
    wide, narrow = length - 3, length - 36

    @pk.kernel(warps=warps)
    def rows(x, y):
        pk.grid(1)
        for i in pk.range(x.rows):
            pk.store(y[i], pk.load(x[i], cols=length, fill=1))

    return Case(
        f"skewed-rows-{dtype}-{length}-{warps}",
        ("load", "store"),
        rows,
        lambda rng: [numbers(rng, (9, wide + 2), dtype)[:, 1:-1]],
        (((9, narrow), dtype),),
        lambda x: (x[:, :narrow],),
    )


def _parts(dtype: DType) -> Case:
    """Tiles of a window that starts and ends anywhere, in the other order; the last is cut."""
    length, low, high = 100, 7, 291

    @pk.kernel(warps=1)
    def parts(x, y, low, high):
        pk.grid(1)
        part = x.window(1, low, high)
        for i in pk.range(x.rows):
            for j in pk.range(3):
                pk.store(y[i, 2 - j], pk.load(part[i, j], cols=length, fill=1))

    def reference(x: Array, low: int, high: int) -> tuple[Array]:
        y = np.ones((len(x), 3, length), x.dtype)
        y.reshape(len(x), -1)[:, : high - low] = x[:, low:high]
        return (y[:, ::-1].reshape(len(x), -1),)

    return Case(
        f"skewed-parts-{dtype}",
        ("load", "store"),
        parts,
        lambda rng: [numbers(rng, (3, 305), dtype)],
        (((3, 3 * length), dtype),),
        reference,
        scalars=(low, high),
    )


def _row_of_window(dtype: DType) -> Case:
    """A vector to the middle of rows: before and after it nothing is written."""
    length, low, high = 256, 5, 203

    @pk.kernel(warps=2)
    def middle(x, y, low, high):
        pk.grid(1)
        for i in pk.range(x.rows):
            pk.store(y.window(1, low, high)[i], pk.load(x[i], cols=length))

    def reference(x: Array, low: int, high: int) -> tuple[Array]:
        y = unwritten((len(x), 211), dtype)
        y[:, low:high] = x[:, : high - low]
        return (y,)

    return Case(
        f"skewed-middle-{dtype}",
        ("load", "store"),
        middle,
        lambda rng: [numbers(rng, (8, length), dtype)],
        (((8, 211), dtype),),
        reference,
        scalars=(low, high),
    )


def _stages(dtype: DType, cols: int, step: int | None = None) -> Case:
    """Tiles through stages to other columns, all cut by edges at the end; the matrices have different pitches.

    step: bytes of which the rows of the first start at multiples; it ends in the middle of so many.
    """

    @pk.kernel
    def stages(x, y):
        ring = pk.pipeline(2, pk.st(dtype, 32, cols))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(3):
                for j in pk.range(2):
                    with ring.fill() as s:
                        pk.load_async(s, x[i, j])
        with pk.storer():
            for i in pk.range(3):
                for j in pk.range(2):
                    with ring.drain() as s:
                        pk.store_async(y[i, 1 - j], s)

    height, width = 90, 2 * cols - 3

    def reference(x: Array) -> tuple[Array]:
        moved = np.zeros((height, 2 * cols), x.dtype)
        moved[:, :cols], moved[:, cols : 2 * cols] = 0, x[:, :cols]
        moved[:, : width - cols] = x[:, cols:]
        return (moved[:, : width - 2],)

    def matrix(rng: np.random.Generator) -> Array:
        if step is None:
            return numbers(rng, (height, width + 1), dtype)[:, 1:]
        return numbers(rng, (height, 2 * cols + step // dtype.bytes), dtype)[:, :width]

    return Case(
        f"skewed-stages-{dtype}-{cols}" + (f"-by-{step}" if step else ""),
        ("load_async", "store_async"),
        stages,
        lambda rng: [matrix(rng)],
        (((height, width - 2), dtype),),
        reference,
    )


def _turned(dtype: DType, copy_warps: int | None = None) -> Case:
    """A matrix of odd pitch transposed by a group, from stages that four warps fill, or a number of them."""

    @pk.kernel
    def turned(x, y):
        ring = pk.pipeline(2, pk.st(dtype, 64, 64))
        pk.grid(1)
        with pk.producer(copy_warps=copy_warps):
            for i in pk.range(2):
                with ring.fill() as s:
                    pk.load_async(s, x[i, 0])
        with pk.consumers(1):
            for i in pk.range(2):
                with ring.drain() as s:
                    tile = pk.load(s, transposed=True)
                pk.store(y[0, i], tile)

    return Case(
        f"skewed-turned-{dtype}" + (f"-{copy_warps}" if copy_warps else ""),
        ("load_async", "load"),
        turned,
        lambda rng: [numbers(rng, (101, 63), dtype)],
        (((63, 101), dtype),),
        lambda x: (x.T,),
    )


def _beside(dtype: DType) -> Case:
    """Two matrices of odd pitch side by side, from stages of a tile of each; lanes have both tiles in flight."""

    @pk.kernel
    def beside(x, y, z):
        ring = pk.pipeline(2, a=pk.st(dtype, 64, 32), b=pk.st(dtype, 64, 32))
        pk.grid(1)
        with pk.producer(copy_warps=4, registers=168):
            for i in pk.range(2):
                with ring.fill() as s:
                    pk.load_async(s.a, x[i, 0])
                    pk.load_async(s.b, y[i, 0])
        with pk.consumers(1):
            for i in pk.range(2):
                with ring.drain() as s:
                    pk.store(z[i, 0], pk.load(s.a))
                    pk.store(z[i, 1], pk.load(s.b))

    def reference(x: Array, y: Array) -> tuple[Array]:
        return (np.hstack([x, np.zeros((101, 1), x.dtype), y[:, :29]]),)

    return Case(
        f"skewed-beside-{dtype}",
        ("load_async",),
        beside,
        lambda rng: [numbers(rng, (101, n), dtype)[:, 1:] for n in (32, 34)],
        (((101, 61), dtype),),
        reference,
    )


CASES = [_rows(d, w, 300) for d in DTYPES.values() for w in (1, 2)]
CASES += [
    _rows(d, w, n) for d in (bf16, f32, int8, int64) for w, n in ((1, 48), (1, 100), (4, 1100))
]
CASES += [_parts(d) for d in (bf16, f32, int8, int64)]
CASES += [_stages(d, n) for d in (bf16, f32, int8, int64) for n in (16, 64)]
CASES += [_stages(d, 64, step) for d in (bf16, int8) for step in (4, 8)]
CASES += [_stages(f32, 16, 8)]
CASES += [_turned(d) for d in (bf16, f32, int8)]
CASES += [_turned(d, n) for d, n in ((bf16, 8), (bf16, 16), (f32, 8), (int8, 1))]
CASES += [_beside(d) for d in (bf16, f32, int8)]
CASES += [_row_of_window(d) for d in (bf16, f32, int8)]
