"""Shared tiles and vectors, to and from registers and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, f32, int8, int32
from tests.cases.convert import numbers
from tests.cases.core import Array, Case

NUMBERS = [d for d in DTYPES.values() if d is not bool_]
ROWS, COLS = 70, 72  # of a matrix; a tile of 64 columns ends inside its second one


def _parts(x: Array, rows: int, cols: int, outside: Any = 0) -> Array:
    """A matrix cut to, or filled up to, rows x cols."""
    whole = np.full((rows, cols), outside, x.dtype)
    part = x[:rows, :cols]
    whole[: part.shape[0], : part.shape[1]] = part
    return whole


def _read(dtype: DType, cols: int) -> Case:
    """Tensor, stage, registers, tensor."""

    @pk.kernel
    def read(x, y):
        ring = pk.pipeline(2, pk.st(dtype, 64, cols))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[0, 1])
        with ring.drain() as s:
            t = pk.load(s)
        pk.store(y[0], t)

    return Case(
        f"shared-read-{dtype}-{cols}",
        ("load", "load_async"),
        read,
        lambda rng: [numbers(rng, (ROWS, COLS), dtype)],
        (((64, cols), dtype),),
        lambda x: (_parts(x[:, cols:], 64, cols),),
    )


def _write(dtype: DType, cols: int) -> Case:
    """Tensor, registers, stage, tensor."""

    @pk.kernel
    def write(x, y):
        ring = pk.pipeline(1, pk.st(dtype, 64, cols))
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=cols)
        with ring.fill() as s:
            pk.store(s, t)
        with ring.drain() as s:
            pk.store_async(y[0], s)

    return Case(
        f"shared-write-{dtype}-{cols}",
        ("store", "store_async"),
        write,
        lambda rng: [numbers(rng, (ROWS, COLS), dtype)],
        (((50, cols), dtype),),
        lambda x: (_parts(x, 50, cols),),
    )


def _halves(dtype: DType) -> Case:
    """Two groups read a half each of what a producer brings; of the next stage its columns."""

    @pk.kernel
    def halves(x, y):
        ring = pk.pipeline(2, pk.st(dtype, 128, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(3):
                with ring.fill() as s:
                    pk.load_async(s, x[i])
        with pk.consumers(2) as half:
            for i in pk.range(3):
                with ring.drain() as s:
                    part = pk.load(s.tiles(64, 64)[half])
                    left = pk.load(s.tiles(64, 32)[half, 0])
                pk.store(y[2 * i + half], part)
                pk.store(y[2 * i + half], left)

    return Case(
        f"shared-halves-{dtype}",
        ("load", "view"),
        halves,
        lambda rng: [numbers(rng, (384, 64), dtype)],
        (((384, 64), dtype),),
        lambda x: (x,),
    )


def _vector(dtype: DType, length: int, spread: Any, width: int) -> Case:
    """A row of a tensor to a stage, to registers, to another stage and to the other tensor."""

    @pk.kernel
    def vector(x, y):
        ring = pk.pipeline(1, pk.sv(dtype, length))
        out = pk.pipeline(1, t=pk.st(f32, 16, 16), v=pk.sv(dtype, length))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[1])
        with ring.drain() as s:
            v = pk.load(s, spread=spread)
        with out.fill() as s:
            pk.store(s.v, v)
        with out.drain() as s:
            pk.store_async(y, s.v)

    return Case(
        f"shared-vector-{dtype}-{length}-{str(spread).replace(' ', '_')}-{width}",
        ("load", "store", "load_async", "store_async"),
        vector,
        lambda rng: [numbers(rng, (2, width), dtype)],
        (((width,), dtype),),
        lambda x: (_parts(x[1:], 1, width)[0] if width <= length else x[1],),
    )


CASES = [_read(d, 64) for d in NUMBERS]
CASES += [_read(d, 48) for d in (bf16, f32, int8)]
CASES += [_write(d, 64) for d in NUMBERS]
CASES += [_write(d, 48) for d in (bf16, f32, int8)]
CASES += [_halves(d) for d in (bf16, f32, int8, int32)]
CASES += [_vector(d, 192, s, 192) for d in NUMBERS for s in (pk.plain, pk.per_row, pk.per_column)]
CASES += [_vector(d, n, pk.plain, n) for d in (bf16, f32) for n in (48, 1024)]
CASES += [_vector(d, 192, pk.plain, w) for d in (bf16, f32, int8) for w in (77, 160)]
