"""Windows of tensors: views with bounds known when the kernel runs, and edges there."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, f32, int32, int64, uint8
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten

SHAPE = (130, 80)
# Bounds of the rows and of the columns: inside the tensor, at its ends, over them, before it, none.
BOUNDS = {
    "inside": (17, 100, 8, 60),
    "ends": (0, 130, 0, 80),
    "beyond": (100, 999, 48, 99),
    "before": (-20, 30, -5, 21),
    "tile": (64, 128, 16, 64),
    "empty": (50, 40, 3, 70),
}


def cut(x: Array, start: int, stop: int, axis: int, fill: Any, size: int) -> Array:
    """`size` elements of an axis from `start` on, those at or beyond `stop` or outside the array replaced."""
    at = np.arange(start, start + size)
    there = (at >= 0) & (at < x.shape[axis]) & (at < stop)
    found = np.take(x, np.where(there, at, 0), axis)
    shape = [1] * x.ndim
    shape[axis] = size
    return np.where(there.reshape(shape), found, np.asarray(fill, x.dtype))


@pk.kernel
def moved(x, y, z, r0, r1, c0, c1):
    """Tile (1, 1) of a window of x to y; and a tile of x to tile (0, 1) of that window of z."""
    pk.grid(1)
    inside = x.window(0, r0, r1).window(-1, c0, c1)
    pk.store(y, pk.load(inside[1, 1], rows=64, cols=16, fill=1))
    z = z.window(1, c0, c1).window(0, r0, r1)
    pk.store(z[0, 1], pk.load(x, rows=64, cols=16))


def _written(z: Array, tile: Array, bounds: tuple[int, ...], row: int, col: int) -> Array:
    """An array with a tile written at a row and a column of its window."""
    r0, r1, c0, c1 = bounds
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            at = r0 + row + i, c0 + col + j
            if 0 <= at[0] < min(r1, z.shape[0]) and 0 <= at[1] < min(c1, z.shape[1]):
                z[at] = tile[i, j]
    return z


def _moved(dtype: DType, name: str) -> Case:
    def reference(x: Array, *bounds: int) -> tuple[Array, Array]:
        r0, r1, c0, c1 = bounds
        y = cut(cut(x, r0 + 64, r1, 0, 1, 64), c0 + 16, c1, 1, 1, 16)
        # A window's own start is an edge, too, but nothing lies before its coordinate 0 here.
        return y, _written(unwritten(SHAPE, dtype), x[:64, :16], bounds, 0, 16)

    return Case(
        f"window-tile-{dtype}-{name}",
        ("load", "store"),
        moved,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        (((64, 16), dtype), (SHAPE, dtype)),
        reference,
        scalars=BOUNDS[name],
    )


@pk.kernel
def before_the_start(x, y, start, stop):
    """Tiles -1 and 0 of a window of rows: before the start is outside, whatever the tensor has there."""
    pk.grid(1)
    part = x.window(0, start, stop)
    for i in range(2):
        pk.store(y[i], pk.load(part[i - 1], rows=64, cols=80, fill=1))


def _before(dtype: DType) -> Case:
    def reference(x: Array, start: int, stop: int) -> tuple[Array]:
        return (np.concatenate([np.ones((64, 80), x.dtype), cut(x, start, stop, 0, 1, 64)]),)

    return Case(
        f"window-before-{dtype}",
        ("load",),
        before_the_start,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        (((128, 80), dtype),),
        reference,
        scalars=(70, 120),
    )


@pk.kernel
def sequences(x, starts, y):
    """Sequence b lies in rows starts[b] to starts[b + 1] of x; to rows 0 and on of y[b], the rest of which is 0."""
    (b,) = pk.grid(y.shape[0])
    start, stop = pk.load(starts[b]).to(pk.int32), pk.load(starts[b + 1]).to(pk.int32)
    part = x.window(0, start, stop)
    for i in pk.range(pk.cdiv(part.rows, 64)):
        pk.store(y[b, i, 0], pk.load(part[i], rows=64, cols=80))


def _sequences(dtype: DType) -> Case:
    bounds = [0, 30, 30, 100, 130]

    def reference(x: Array, starts: Array) -> tuple[Array]:
        y = unwritten((4, 128, 80), bf16)
        for b in range(4):
            part = x[bounds[b] : bounds[b + 1]]
            y[b, : -(-len(part) // 64) * 64] = 0
            y[b, : len(part)] = part
        return (y,)

    return Case(
        f"window-sequences-{dtype}",
        ("load",),
        sequences,
        lambda rng: [numbers(rng, SHAPE, bf16), np.array(bounds, dtype.numpy)],
        (((4, 128, 80), bf16),),
        reference,
    )


@pk.kernel
def every_way(x, index, y, start, stop):
    """Vectors, elements and gathered rows of windows, the leading axis one of them, a window of a window another."""
    pk.grid(1)
    part = x.window(0, 1, 3).window(1, start, stop).window(1, 2, 99)
    pk.store(y[0], pk.load(part[1, 3, 0], cols=64, spread=pk.per_column, fill=1))
    pk.store(y[1], pk.load(part.at(0)[part.rows], cols=64, fill=1))
    pk.store(y[2, 5], pk.load(part[1, 2, 9]))
    rows = pk.load(index, cols=64, spread=pk.per_row)
    tile = pk.gather(part.at(1), rows, cols=64, fill=1)
    pk.store(y.window(0, 64, 128)[0], tile)


def _every_way(dtype: DType) -> Case:
    start, stop = 5, 30

    def reference(x: Array, index: Array, *_: int) -> tuple[Array]:
        y = unwritten((128, 64), dtype)
        part = x[1:3, start + 2 : stop]
        y[0, :] = 1
        y[0, : x.shape[2]] = part[1, 3]
        y[1] = 1
        y[2, 5] = part[1, 2, 9]
        y[64:] = 1
        for i, row in enumerate(index):
            if 0 <= row < part.shape[1]:
                y[64 + i, : x.shape[2]] = part[1, row]
        return (y,)

    return Case(
        f"window-every_way-{dtype}",
        ("load", "store", "gather"),
        every_way,
        lambda rng: [
            numbers(rng, (4, 40, 50), dtype),
            rng.integers(-3, 28, 64).astype(np.int32),
        ],
        (((128, 64), dtype),),
        reference,
        scalars=(start, stop),
    )


def _async(dtype: DType, name: str, axis: int) -> Case:
    """Every tile of a window of x, through a stage, to the same tile of that window of y."""

    @pk.kernel
    def copied(x, y, start, stop):
        ring = pk.pipeline(2, t=pk.st(dtype, 64, 64), v=pk.sv(dtype, 64))
        pk.grid(1)
        with pk.producer():
            part = x.window(axis, start, stop)
            rows, cols = part.tiles(64, 64)
            for i in pk.range(rows):
                for j in pk.range(cols):
                    with ring.fill() as s:
                        pk.load_async(s.t, part[i, j])
                        pk.load_async(s.v, part[0, j])
        with pk.storer():
            part = y.window(axis, start, stop)
            rows, cols = part.tiles(64, 64)
            for i in pk.range(rows):
                for j in pk.range(cols):
                    with ring.drain() as s:
                        pk.store_async(part[i, j], s.t)
                        pk.store_wait()  # one of the tiles has the same row
                        pk.store_async(part[0, j], s.v)
                        pk.store_wait()

    def reference(x: Array, start: int, stop: int) -> tuple[Array]:
        y = unwritten(x.shape, dtype)
        inside = slice(max(start, 0), max(stop, 0))
        where = (inside, slice(None)) if axis == 0 else (slice(None), inside)
        y[where] = x[where]
        return (y,)

    return Case(
        f"window-async-{dtype}-{axis}-{name}",
        ("load_async", "store_async"),
        copied,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        ((SHAPE, dtype),),
        reference,
        scalars=BOUNDS[name][2 * axis : 2 * axis + 2],
    )


CASES = [_moved(f32, name) for name in BOUNDS]
CASES += [_moved(d, name) for d in (bf16, uint8, int32) for name in ("inside", "before")]
CASES += [_before(d) for d in (f32, bf16)]
CASES += [_sequences(d) for d in (int32, int64)]
CASES += [_every_way(d) for d in (f32, bf16, uint8)]
CASES += [_async(d, name, axis) for d in (f32, bf16) for axis in (0, 1) for name in BOUNDS]
