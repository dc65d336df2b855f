"""Tiles over any two axes of a tensor: `x[:, h]`, `x[:, :, d]`, and vectors with a stride, `x[:, j]`."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, f16, f32, int32, int64, uint8
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten

SHAPE = (100, 3, 40)
DTYPES = (f32, bf16, uint8, int64)
# The matrix of a tensor of rank 3, by the axis that an index fixes; the same of an array.
FIXED: tuple[Any, ...] = (lambda x, i: x[i, :], lambda x, i: x[:, i], lambda x, i: x[:, :, i])


def cut(x: Array, rows: int, cols: int, fill: Any) -> Array:
    """The first rows and columns of a matrix, the fill outside it."""
    found = np.full((rows, cols), fill, x.dtype)
    part = x[:rows, :cols]
    found[: part.shape[0], : part.shape[1]] = part
    return found


def _tiles(dtype: DType, axis: int) -> Case:
    """A tile at the end of the matrix with index 1, which is stored whole and to the matrix with index 2 of z."""

    @pk.kernel(warps=2)
    def tiles(x, y, z):
        pk.grid(1)
        i = pk.cdiv(FIXED[axis](x, 1).rows, 64) - 1
        t = pk.load(FIXED[axis](x, 1)[i, 0], rows=64, cols=32, fill=1)
        pk.store(y, t)
        pk.store(FIXED[axis](z, 2)[i, 0], t)

    def reference(x: Array) -> tuple[Array, Array]:
        part = FIXED[axis](x, 1)
        first = (part.shape[0] - 1) // 64 * 64
        z = unwritten(SHAPE, dtype)
        FIXED[axis](z, 2)[first:, :32] = part[first:, :32]
        return cut(part[first:], 64, 32, 1), z

    return Case(
        f"plane-tile-{dtype}-{axis}",
        ("load", "store"),
        tiles,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        (((64, 32), dtype), (SHAPE, dtype)),
        reference,
    )


def _transposed(dtype: DType, axis: int) -> Case:
    """A window of rows, loaded and stored transposed, to the same rows of another matrix; and a matrix to a third."""

    @pk.kernel(warps=2)
    def transposed(x, y, z, start, stop):
        pk.grid(1)
        window = FIXED[axis](x, 1).window(0, start, stop)
        t = pk.load(window, rows=32, cols=64, fill=1, transposed=True)
        pk.store(y, t)
        pk.store(FIXED[axis](z, 2).window(0, start, stop), t, transposed=True)
        pk.store(FIXED[axis](z, 0), pk.load(x.at(0), rows=32, cols=64), transposed=True)

    def reference(x: Array, start: int, stop: int) -> tuple[Array, Array]:
        part = FIXED[axis](x, 1)[start:stop]
        z = unwritten(SHAPE, dtype)
        to = FIXED[axis](z, 2)[start:stop]
        to[:, :32] = part[:, :32]
        other = cut(x[0], 32, 64, 0).T
        to = FIXED[axis](z, 0)
        to[:64, :32] = other[: to.shape[0], : min(32, to.shape[1])]
        return cut(part, 64, 32, 1).T, z

    return Case(
        f"plane-transposed-{dtype}-{axis}",
        ("load", "store"),
        transposed,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        (((32, 64), dtype), (SHAPE, dtype)),
        reference,
        scalars=(1, 30),
    )


@pk.kernel
def columns(x, y, z):
    """Columns of a matrix as vectors of every spread, and as elements, to rows and to columns of others."""
    pk.grid(1)
    for i, spread in enumerate((pk.plain, pk.per_row, pk.per_column)):
        v = pk.load(x[:, i][1], cols=64, spread=spread, fill=1)
        pk.store(y[i], v)
        pk.store(z[:, i][1], v)
    pk.store(y[3, 0], pk.load(x[:, 1].window(0, 5, 60)[7]))
    pk.store(y[:, 1][3], pk.load(x[:, 2][100], fill=1))
    pk.store(z[:, 3].window(0, 90, 200), pk.load(x[2, :], cols=16))
    pk.store(z[:, 3][2], 1)


def _columns(dtype: DType) -> Case:
    def reference(x: Array) -> tuple[Array, Array]:
        y, z = unwritten((4, 64), dtype), unwritten((100, 4), dtype)
        y[:3] = 1
        y[:3, :36] = x[64:, :3].T
        y[3, :2] = x[12, 1], 1
        z[64:, :3] = x[64:, :3]
        z[90:, 3] = cut(x[2:3], 1, 16, 0)[0, :10]
        z[2, 3] = 1
        return y, z

    return Case(
        f"plane-columns-{dtype}",
        ("load", "store"),
        columns,
        lambda rng: [numbers(rng, (100, 4), dtype)],
        (((4, 64), dtype), ((100, 4), dtype)),
        reference,
    )


@pk.kernel(warps=2)
def by_index(x, index, y, z, v):
    """Rows of a matrix of a view, and elements of a column, by index."""
    pk.grid(1)
    rows = pk.load(index, cols=32, spread=pk.per_row)
    t = pk.gather(x[:, 1], rows, cols=32, fill=1)
    pk.store(y[0, 0], t)
    pk.store(y[0, 1], pk.gather(x[..., :, 2], rows, cols=32, fill=1))
    pk.scatter(z[:, 2], rows, t)
    pk.scatter(z[:, :, 39], rows, pk.load(x[:, 0], rows=32, cols=32))
    named = pk.load(index, cols=32)
    pk.store(v, pk.gather(x[:, 1, 3], named, fill=1))
    pk.scatter(z[:, 0][:, 1], named, pk.gather(x[:, 2][:, 4], named))
    pk.scatter(z[:, 0, 5].window(0, 10, 100), rows, 1)
    pk.scatter(z[:, 1, 7], pk.load(index, cols=16), 1)


def _by_index(dtype: DType) -> Case:
    def reference(x: Array, index: Array) -> tuple[Array, Array, Array]:
        y, z, v = unwritten((32, 64), dtype), unwritten(SHAPE, dtype), unwritten((32,), dtype)
        y[:], v[:] = 1, 1
        for i, row in enumerate(index.tolist()):
            if 0 <= row < 100:
                y[i, :32], v[i] = x[row, 1, :32], x[row, 1, 3]
                y[i, 32:35] = x[row, :, 2]
                z[row, :, 39] = x[i, 0, :3]
                z[row, 2, :32] = x[row, 1, :32]
                z[row, 0, 1] = x[row, 2, 4]
            if 0 <= row < 90:
                z[10 + row, 0, 5] = 1
            if 0 <= row < 100 and i < 16:
                z[row, 1, 7] = 1
        return y, z, v

    return Case(
        f"plane-by_index-{dtype}",
        ("gather", "scatter"),
        by_index,
        lambda rng: [
            numbers(rng, SHAPE, dtype),
            np.concatenate([[-1, 100], rng.permutation(100)[:30]]).astype(np.int32),
        ],
        (((32, 64), dtype), (SHAPE, dtype), ((32,), dtype)),
        reference,
    )


@pk.kernel
def combined(x, y, z):
    """Rows and columns added to the two columns of a table, and to a matrix of a view."""
    i, h = pk.grid(2, z.shape[1])
    t = pk.load(x[i, 0], rows=64, cols=32)
    pk.store(y[:, 1][i], pk.row_sum(t.to(f32)).to(t.dtype), op="add")
    pk.store(y[:, 0], pk.load(x[:, 0], cols=64, spread=pk.per_row), op="max")
    pk.store(y[:, 0][100], 5, op="add")
    pk.store(z[:, h][i, 0], t, op="add")
    pk.scatter(z[:, h, 33], pk.iota(64), 2, op="add")


def _combined(dtype: DType) -> Case:
    def reference(x: Array) -> tuple[Array, Array]:
        y, z = np.zeros((128, 2), dtype.numpy), np.zeros((128, 3, 40), dtype.numpy)
        y[:100, 1] = 3 * x[:, :32].sum(1)
        y[:64, 0] = np.maximum(x[:64, 0], 0)
        y[100, 0] = 6 * 5
        z[:100, :, :32] = x[:, None, :32]
        z[:64, :, 33] = 4
        return y, z

    return Case(
        f"plane-combined-{dtype}",
        ("store", "scatter"),
        combined,
        lambda rng: [rng.integers(-3, 4, (100, 40)).astype(dtype.numpy)],
        (((128, 2), dtype), ((128, 3, 40), dtype)),
        reference,
        before=0,
    )


@pk.kernel
def counted(flags, y):
    """Flags and counters in the columns of a table."""
    (i,) = pk.grid(4)
    found = pk.atomic_add(flags[:, 1][2], 3)
    pk.signal(flags[:, 0][i], i + 1)
    pk.wait(flags[:, 0][3 - i], 4 - i)
    pk.store(y[i], pk.where(found >= 0, pk.atomic_load(flags[:, 0][i]), 0))


def _counted() -> Case:
    def reference() -> tuple[Array, Array]:
        flags = np.zeros((4, 2), np.int32)
        flags[:, 0] = range(1, 5)
        flags[2, 1] = 12
        return flags, np.arange(1, 5, dtype=np.int32)

    return Case(
        "atomic-returning-plane",
        ("signal", "wait", "atomic_add", "atomic_load"),
        counted,
        lambda rng: [],
        (((4, 2), int32), ((4,), int32)),
        reference,
        before=0,
    )


def _async(dtype: DType, axis: int, op: str | None, bounds: tuple[int, int]) -> Case:
    """Every tile of a window of the rows of each matrix, and a column of it, through a stage to the same place."""

    @pk.kernel
    def copied(x, y, z, start, stop):
        ring = pk.pipeline(2, t=pk.st(dtype, 64, 32), v=pk.sv(dtype, 64))
        (i,) = pk.grid(x.shape[axis])
        part = FIXED[axis](x, i).window(0, start, stop)
        rows, cols = part.tiles(64, 32)
        with pk.producer():
            for r in pk.range(rows):
                for c in pk.range(cols):
                    with ring.fill() as s:
                        pk.load_async(s.t, part[r, c])
                        pk.load_async(s.v, part[:, 0][r])
        with pk.storer():
            for r in pk.range(rows):
                for c in pk.range(cols):
                    with ring.drain() as s:
                        pk.store_async(FIXED[axis](y, i).window(0, start, stop)[r, c], s.t)
                        pk.store_async(z[:, i].window(0, start, stop)[r], s.v, op=op)
                        pk.store_wait()

    def reference(x: Array, start: int, stop: int) -> tuple[Array, Array]:
        y, z = np.zeros(SHAPE, dtype.numpy), np.zeros((100, 40), dtype.numpy)
        for i in range(SHAPE[axis]):
            part = FIXED[axis](x, i)
            FIXED[axis](y, i)[start:stop] = part[start:stop]
            times = -(-part.shape[1] // 32) if op == "add" else 1
            column = part[start:stop, 0]
            z[start : start + len(column), i] = times * column
        return y, z

    return Case(
        f"plane-async-{dtype}-{axis}-{op or 'store'}-{bounds[1]}",
        ("load_async", "store_async"),
        copied,
        lambda rng: [rng.integers(-3, 4, SHAPE).astype(dtype.numpy)],
        ((SHAPE, dtype), ((100, 40), dtype)),
        reference,
        scalars=bounds,
        before=0,
    )


CASES = [_tiles(d, axis) for d in DTYPES for axis in range(3)]
CASES += [_transposed(d, axis) for d in (f32, bf16, uint8) for axis in range(3)]
CASES += [_columns(d) for d in DTYPES]
CASES += [_by_index(d) for d in (f32, f16, uint8)]
CASES += [_combined(d) for d in (f32, int32)]
CASES += [_counted()]
CASES += [
    _async(d, axis, op, bounds)
    for d in (f32, f16)
    for axis in (1, 2)
    for op in (None, "add")
    for bounds in ((0, 100), (7, 90))
]
CASES += [_async(uint8, axis, None, (0, 100)) for axis in (1, 2)]
