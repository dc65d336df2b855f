"""Tiles that are moved with rows and columns exchanged: to and from tensors and shared tiles."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, f32, int8
from tests.cases import atomic
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, columns

NUMBERS = [d for d in DTYPES.values() if d is not bool_]
ROWS, COLS = 150, 70  # of a matrix; the last tiles end outside, and no row but the first is aligned
SIDES = ((4, 64, 32), (4, 128, 16), (1, 16, 48), (2, 64, 64))  # warps, and the tile


def _there(dtype: DType, warps: int, rows: int, cols: int) -> Case:
    """A matrix in tiles, each stored transposed."""

    @pk.kernel(warps=warps)
    def there(x, y):
        pk.grid(1)
        for i in pk.range(pk.cdiv(x.rows, rows)):
            for j in pk.range(pk.cdiv(x.cols, cols)):
                pk.store(y[j, i], pk.load(x[i, j], rows=rows, cols=cols), transposed=True)

    return Case(
        f"transposed-tensor-store-{dtype}-{rows}x{cols}",
        ("store",),
        there,
        lambda rng: [numbers(rng, (ROWS, COLS), dtype)],
        (((COLS, ROWS), dtype),),
        lambda x: (x.T,),
    )


def _back(dtype: DType, warps: int, rows: int, cols: int) -> Case:
    """A matrix in tiles, each loaded transposed; what is outside is the fill."""
    height, width = -(-COLS // rows) * rows, -(-ROWS // cols) * cols

    @pk.kernel(warps=warps)
    def back(x, y):
        pk.grid(1)
        for i in pk.range(y.rows // rows):
            for j in pk.range(y.cols // cols):
                t = pk.load(x[j, i], rows=rows, cols=cols, fill=1, transposed=True)
                pk.store(y[i, j], t)

    def reference(x: Array) -> tuple[Array]:
        y = np.full((height, width), 1, dtype.numpy)
        y[:COLS, :ROWS] = x.T
        return (y,)

    return Case(
        f"transposed-tensor-load-{dtype}-{rows}x{cols}",
        ("load",),
        back,
        lambda rng: [numbers(rng, (ROWS, COLS), dtype)],
        (((height, width), dtype),),
        reference,
    )


@pk.kernel
def windows(x, y, start, stop):
    """Part of each matrix of x, to a part of another of y."""
    pk.grid(1)
    for i in pk.range(2):
        part = x.at(i).window(0, start, stop)
        t = pk.load(part[0, 1], rows=64, cols=32, fill=-1, transposed=True)
        pk.store(y.at(1 - i).window(1, 5, 40)[1, 0], t, transposed=True)


def _windows(dtype: DType) -> Case:
    def reference(x: Array, start: int, stop: int) -> tuple[Array]:
        y = np.full((2, 100, 50), -7, dtype.numpy)
        for i in range(2):
            tile = np.full((32, 64), -1, dtype.numpy)
            part = x[i, start:stop, 64:128]
            tile[: part.shape[0], : part.shape[1]] = part
            y[1 - i, 32:64, 5:40] = tile[:, :35]
        return (y,)

    return Case(
        f"transposed-tensor-windows-{dtype}",
        ("load", "store"),
        windows,
        lambda rng: [numbers(rng, (2, 60, 100), dtype)],
        (((2, 100, 50), dtype),),
        reference,
        scalars=(11, 30),
        before=-7,
    )


@pk.kernel
def combined(x, y, *, op):
    (i,) = pk.grid(x.shape[0])
    cols = pk.cdiv(pk.static(x.cols), 16) * 16
    pk.store(y, pk.load(x[i, 0, 0], rows=64, cols=cols), op=op, transposed=True)


def _combined(dtype: DType, op: str, rows: int, cols: int) -> Case:
    """Several blocks, one tile of a tensor."""
    most = atomic.bound(dtype, op)
    return Case(
        f"transposed-{op}-{dtype}-{rows}x{cols}",
        ("store",),
        combined,
        lambda rng: [atomic.values(rng, (atomic.BLOCKS, rows, cols), dtype)],
        (((cols, rows), dtype),),
        lambda x, op: (atomic.combined(x, op).T,),
        None if most is None else lambda exact, x: most(exact, x.transpose(0, 2, 1)),
        {"op": op},
        before=atomic.BEFORE,
    )


def _read(dtype: DType, rows: int, cols: int) -> Case:
    """Tensor, stage, registers, tensor."""

    @pk.kernel
    def read(x, y):
        ring = pk.pipeline(2, pk.st(dtype, cols, rows))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[0])
        with ring.drain() as s:
            t = pk.load(s, transposed=True)
        pk.store(y[0], t)

    return Case(
        f"transposed-shared-load-{dtype}-{rows}x{cols}",
        ("load",),
        read,
        lambda rng: [numbers(rng, (cols, rows), dtype)],
        (((rows, cols), dtype),),
        lambda x: (x.T,),
    )


def _write(dtype: DType, rows: int, cols: int) -> Case:
    """Tensor, registers, stage, tensor."""

    @pk.kernel
    def write(x, y):
        ring = pk.pipeline(1, pk.st(dtype, cols, rows))
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        with ring.fill() as s:
            pk.store(s, t, transposed=True)
        with ring.drain() as s:
            pk.store_async(y[0], s)

    return Case(
        f"transposed-shared-store-{dtype}-{rows}x{cols}",
        ("store",),
        write,
        lambda rng: [numbers(rng, (rows, cols), dtype)],
        (((cols, rows), dtype),),
        lambda x: (x.T,),
    )


def _halves(dtype: DType) -> Case:
    """Two groups, each with its columns of one tile, as rows of an accumulator become columns."""

    @pk.kernel
    def halves(x, y):
        ring = pk.pipeline(1, pk.st(dtype, 32, 128))
        pk.grid(1)
        with pk.consumers(2) as half:
            t = pk.load(x[half], rows=64, cols=32)
            with ring.fill() as s:
                pk.store(s.tiles(32, 64)[0, half], t, transposed=True)
        with pk.storer(), ring.drain() as s:
            pk.store_async(y, s)

    return Case(
        f"transposed-shared-halves-{dtype}",
        ("store", "view"),
        halves,
        lambda rng: [numbers(rng, (128, 32), dtype)],
        (((32, 128), dtype),),
        lambda x: (x.T,),
    )


CASES = [_there(d, 4, 64, 32) for d in DTYPES.values()]
CASES += [_back(d, 4, 64, 32) for d in DTYPES.values()]
CASES += [_there(d, *sides) for d in (bf16, f32, int8) for sides in SIDES[1:]]
CASES += [_back(d, *sides) for d in (bf16, f32, int8) for sides in SIDES[1:]]
CASES += [_windows(d) for d in (bf16, f32)]
CASES += [_combined(d, op, 64, columns(d)) for d in atomic.DTYPES for op in ("add", "max")]
CASES += [_combined(d, "add", 50, columns(d) - 11) for d in atomic.DTYPES]
CASES += [_read(d, 64, 48) for d in NUMBERS]
CASES += [_write(d, 64, 48) for d in NUMBERS]
CASES += [make(d, 128, 64) for d in (bf16, f32, int8) for make in (_read, _write)]
CASES += [_halves(d) for d in (bf16, f32, int8)]
