"""Vectors in every spread, and single elements, between tensors and registers."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, f32, int32, int64, uint8
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten

SPREADS = (pk.plain, pk.per_row, pk.per_column)


@pk.kernel
def row_of_64(x, y, *, spread, fill):
    pk.grid(1)
    pk.store(y[1], pk.load(x[1], cols=64, spread=spread, fill=fill))


def _spread(dtype: DType, spread: Any, width: int) -> Case:
    """A row of a tensor that ends before the vector does, to one that is longer or ends before it, too."""
    out = 100 if width == 48 else 61

    def reference(x: Array, spread: Any, fill: int) -> tuple[Array]:
        y = unwritten((2, out), dtype)
        row = np.full(64, fill, dtype.numpy)
        row[:width] = x[1]
        y[1, : min(out, 64)] = row[:out]
        return (y,)

    return Case(
        f"memory-{str(spread).replace(' ', '_')}-{dtype}-{width}",
        ("load", "store"),
        row_of_64,
        lambda rng: [numbers(rng, (2, width), dtype)],
        (((2, out), dtype),),
        reference,
        constants={"spread": spread, "fill": 1},
    )


def _outer_sum(warps: int) -> Case:
    rows, cols = 32 * warps, 48

    @pk.kernel(warps=warps)
    def outer_sum(x, w, y):
        pk.grid(1)
        r = pk.load(x, cols=rows, spread=pk.per_row)
        c = pk.load(w[1], cols=cols, spread=pk.per_column)
        pk.store(y[0], r + c)

    return Case(
        f"memory-outer_sum-int32-{warps}",
        ("load",),
        outer_sum,
        lambda rng: [rng.integers(-99, 99, n, dtype=np.int32) for n in (rows, (2 * cols,))],
        (((rows, cols), int32),),
        lambda x, w: (x[:, None] + w[cols:],),
    )


@pk.kernel
def elements(x, y, i):
    pk.grid(1)
    v = pk.load(x[1, i])
    pk.store(y[i, 2], v)
    pk.store(y[0, 0], pk.load(x[2, i], fill=1))  # outside
    pk.store(y[i, 3], v)  # outside
    pk.store(y[1, 1], 1)


def _element(dtype: DType) -> Case:
    def reference(x: Array, i: int) -> tuple[Array]:
        y = unwritten((4, 3), dtype)
        y[i, 2], y[0, 0], y[1, 1] = x[1, i], 1, 1
        return (y,)

    return Case(
        f"memory-element-{dtype}",
        ("load", "store"),
        elements,
        lambda rng: [numbers(rng, (2, 17), dtype)],
        (((4, 3), dtype),),
        reference,
        scalars=(3,),
    )


def _element_of_rank(rank: int) -> Case:
    @pk.kernel
    def element(x, y, i):
        pk.grid(1)
        index = (i,) * rank
        pk.store(y[index], pk.load(x[index]))

    def reference(x: Array, i: int) -> tuple[Array]:
        y = unwritten(x.shape, f32)
        y[(i,) * rank] = x[(i,) * rank]
        return (y,)

    shape = (3,) * rank
    return Case(
        f"memory-element-rank_{rank}",
        ("load", "store"),
        element,
        lambda rng: [rng.standard_normal(shape).astype(np.float32)],
        ((shape, f32),),
        reference,
        scalars=(2,),
    )


@pk.kernel
def looked_up(x, index, y):
    """y = the tiles of x that an index names: the first two by themselves, the third by a sum."""
    (i,) = pk.grid(3)
    at = pk.load(index[i])
    if i == 2:
        pk.store(y[i], pk.load(x[at.to(pk.int32) + 1], rows=64, cols=16))
    else:
        pk.store(y[i], pk.load(x[at], rows=64, cols=16))


def _looked_up(dtype: DType) -> Case:
    def reference(x: Array, index: Array) -> tuple[Array]:
        tiles = x.reshape(4, 64, 16)
        return (np.concatenate([tiles[3], tiles[1], tiles[1]]),)

    return Case(
        f"memory-looked_up-{dtype}",
        ("load",),
        looked_up,
        lambda rng: [
            rng.standard_normal((256, 16)).astype(np.float32),
            np.array([3, 1, 0], dtype.numpy),
        ],
        (((192, 16), f32),),
        reference,
    )


@pk.kernel
def chased(index, y):
    """Where five steps lead from each place, as an index says: an element that a loop carries."""
    (i,) = pk.grid(index.shape[0])
    at = pk.load(index[i])
    for _ in pk.range(4):
        at = pk.load(index[at])
    pk.store(y[i], at)


def _chased(dtype: DType) -> Case:
    def reference(index: Array) -> tuple[Array]:
        at = np.arange(len(index))
        for _ in range(5):
            at = index[at]
        return (at,)

    return Case(
        f"memory-chased-{dtype}",
        ("load",),
        chased,
        lambda rng: [rng.permutation(9).astype(dtype.numpy)],
        (((9,), dtype),),
        reference,
    )


@pk.kernel
def before_the_roles(x, index, y):
    """Each role moves the tiles that an element read for all of them names."""
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    (i,) = pk.grid(2)
    at = pk.load(index[i])
    with pk.producer(), ring.fill() as s:
        pk.load_async(s, x[at])
    with pk.consumers(1):
        with ring.drain() as s:
            t = pk.load(s)
        pk.store(y[1 - at], t)


def _before_the_roles(dtype: DType) -> Case:
    return Case(
        f"memory-before_the_roles-{dtype}",
        ("load",),
        before_the_roles,
        lambda rng: [
            rng.standard_normal((128, 64)).astype(np.float32),
            np.array([1, 0], dtype.numpy),
        ],
        (((128, 64), f32),),
        lambda x, index: (np.concatenate([x[64:], x[:64]]),),
    )


@pk.kernel
def producer_gathers(x, index, y):
    """A producer that brings rows by lanes and tiles by copies into one stage."""
    ring = pk.pipeline(2, a=pk.st(f32, 16, 32), b=pk.st(f32, 64, 32))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(3):
            rows = pk.load(index[i], cols=16, spread=pk.per_row)
            with ring.fill() as s:
                pk.store(s.a, pk.gather(x, rows, cols=32))
                pk.load_async(s.b, x[i])
    with pk.storer():
        for i in pk.range(3):
            with ring.drain() as s:
                pk.store_async(y[5 * i], s.a)
                for k in range(4):
                    pk.store_async(y[5 * i + 1 + k], s.b.tiles(16, 32)[k, 0])


def _producer_gathers() -> Case:
    def reference(x: Array, index: Array) -> tuple[Array]:
        return (
            np.concatenate([p for i in range(3) for p in (x[index[i]], x[64 * i : 64 * i + 64])]),
        )

    return Case(
        "memory-producer_gathers-f32",
        ("gather", "store"),
        producer_gathers,
        lambda rng: [
            rng.standard_normal((192, 32)).astype(np.float32),
            rng.integers(0, 192, (3, 16)).astype(np.int32),
        ],
        (((240, 32), f32),),
        reference,
    )


@pk.kernel
def copies_long_vectors(x, y):
    """Vectors of more elements than a box has, inside rows and cut by their ends."""
    (i,) = pk.grid(x.shape[0])
    ring = pk.pipeline(2, pk.sv(x.dtype, 1024))
    with pk.producer():
        for j in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[i, j])
    with pk.storer():
        for j in pk.range(3):
            with ring.drain() as s:
                pk.store_async(y[i, 2 - j], s)


def _copies_long_vectors(dtype: DType) -> Case:
    def reference(x: Array) -> tuple[Array]:
        parts = np.zeros((4, 3, 1024), x.dtype)
        parts.reshape(4, -1)[:, :2112] = x
        return (parts[:, ::-1].reshape(4, -1)[:, :3008],)

    return Case(
        f"memory-long_vectors-{dtype}",
        ("load_async", "store_async"),
        copies_long_vectors,
        lambda rng: [rng.integers(0, 99, (4, 2112)).astype(dtype.numpy)],
        (((4, 3008), dtype),),
        reference,
    )


CASES = [_spread(d, s, 48) for d in DTYPES.values() for s in SPREADS]
CASES += [_spread(d, s, 37) for d in (bf16, f32, uint8) for s in SPREADS]
CASES += [_outer_sum(w) for w in (1, 4, 8)]
CASES += [_element(d) for d in DTYPES.values()]
CASES += [_element_of_rank(rank) for rank in range(1, 6)]
CASES += [_looked_up(d) for d in (int32, int64)]
CASES += [_chased(d) for d in (int32, int64)]
CASES += [_before_the_roles(int64), _producer_gathers()]
CASES += [_copies_long_vectors(d) for d in (bf16, f32, uint8)]
