"""Parts of shared vectors: loaded in every spread, stored, an element at a time, and as the scales of a product."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, e4m3, f32, int32, int64
from tests.cases.convert import numbers
from tests.cases.core import Array, Case, unwritten

NUMBERS = [d for d in DTYPES.values() if d is not bool_]
LENGTH = 384


def _reversed(dtype: DType, part: int, spread: Any, warps: int) -> Case:
    """The parts of a row in the opposite order, through registers."""

    @pk.kernel(warps=warps)
    def mirror(x, y):
        source, target = (pk.shared(pk.sv(dtype, LENGTH)) for _ in range(2))
        pk.grid(1)
        pk.store(source, pk.load(x, cols=LENGTH))
        pk.sync()
        count = LENGTH // part
        for i in pk.range(count):
            v = pk.load(source.parts(part)[i], spread=spread)
            pk.store(target.parts(part)[count - 1 - i], v)
        pk.sync()
        pk.store(y, pk.load(target))

    return Case(
        f"views-reversed-{dtype}-{part}-{str(spread).replace(' ', '_')}-{warps}",
        ("vector_part", "load", "store"),
        mirror,
        lambda rng: [numbers(rng, (LENGTH,), dtype)],
        (((LENGTH,), dtype),),
        lambda x: (x.reshape(-1, part)[::-1].reshape(-1),),
    )


def _elements(dtype: DType) -> Case:
    """Every element of a row by itself, also as a part of a part, by run-time indices and two by known ones."""

    @pk.kernel(warps=2)
    def elements(x, y):
        row = pk.shared(pk.sv(dtype, 48))
        pk.grid(1)
        pk.store(row, pk.load(x, cols=48))
        pk.sync()
        for i in pk.range(48):
            pk.store(y[0, i], pk.load(row.parts(1)[i]))
            pk.store(y[1, i], pk.load(row.parts(16)[i // 16].parts(1)[i % 16]))
        pk.store(y[2, 0], pk.load(row.parts(1)[47]))
        pk.store(y[2, 1], pk.load(row.parts(24)[1].parts(1)[0]))

    def reference(x: Array) -> tuple[Array]:
        y = unwritten((3, 48), dtype)
        y[:2] = x
        y[2, :2] = x[47], x[24]
        return (y,)

    return Case(
        f"views-elements-{dtype}",
        ("vector_part", "load"),
        elements,
        lambda rng: [numbers(rng, (48,), dtype)],
        (((3, 48), dtype),),
        reference,
    )


def _largest(dtype: DType) -> Case:
    """An element that a loop carries and a branch changes."""

    @pk.kernel(warps=1)
    def largest(x, y):
        row = pk.shared(pk.sv(dtype, 64))
        pk.grid(1)
        pk.store(row, pk.load(x, cols=64))
        pk.sync()
        best = pk.load(row.parts(1)[0])
        for i in pk.range(1, 64):
            new = pk.load(row.parts(1)[i])
            if new > best:
                best = new
        pk.store(y[0], best)

    return Case(
        f"views-largest-{dtype}",
        ("vector_part", "load"),
        largest,
        lambda rng: [rng.permutation(64).astype(dtype.numpy)],
        (((1,), dtype),),
        lambda x: (np.array([63]).astype(dtype.numpy),),
    )


def _shared_out(dtype: DType) -> Case:
    """Two groups take a half each of what a producer brings."""

    @pk.kernel
    def shared_out(x, y):
        ring = pk.pipeline(2, a=pk.sv(dtype, 16), v=pk.sv(dtype, 256))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(3):
                with ring.fill() as s:
                    pk.load_async(s.a, x[i])
                    pk.load_async(s.v, x[i])
        with pk.consumers(2) as half:
            for i in pk.range(3):
                with ring.drain() as s:
                    part = pk.load(s.v.parts(128)[half], spread=pk.per_row)
                pk.store(y[i, half], part)

    return Case(
        f"views-shared_out-{dtype}",
        ("vector_part", "load"),
        shared_out,
        lambda rng: [numbers(rng, (3, 256), dtype)],
        (((3, 256), dtype),),
        lambda x: (x,),
    )


@pk.kernel
def scaled(A, B, R, C, out):
    """out = the sum of A_k @ B_k.T over blocks of 64 columns, each scaled by a row's and by the block's number."""
    ring = pk.pipeline(
        2, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 64, 64), r=pk.sv(f32, 128), c=pk.sv(f32, 16)
    )
    pk.grid(1)
    blocks = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(blocks):
            with ring.fill() as s:
                pk.load_async(s.a, A[0, k])
                pk.load_async(s.b, B[0, k])
                pk.load_async(s.r, R[k])
                pk.load_async(s.c, C[k // 16])
    with pk.consumers(2) as w:
        total = pk.zeros(f32, 64, 64)
        for k in pk.range(blocks):
            with ring.drain() as s:
                product = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b)
                of_rows = pk.load(s.r.parts(64)[w], spread=pk.per_row)
                of_block = pk.load(s.c.parts(1)[k % 16])
                total = total + product * (of_rows * of_block)
        pk.store(out[w], total)


def _scaled() -> Case:
    blocks = 3

    def inputs(rng: np.random.Generator) -> list[Array]:
        # Small whole numbers and powers of two: every sum is exact.
        a, b = (rng.integers(-4, 5, (rows, 64 * blocks)).astype(bf16.numpy) for rows in (128, 64))
        r, c = (2.0 ** rng.integers(-3, 4, shape) for shape in ((blocks, 128), (1, 16)))
        return [a, b, r.astype(np.float32), c.astype(np.float32)]

    def reference(a: Array, b: Array, r: Array, c: Array) -> tuple[Array]:
        left, right = (x.astype(np.float64).reshape(len(x), blocks, 64) for x in (a, b))
        scales = r.T.astype(np.float64) * c[0, :blocks]
        return (np.einsum("mkd,nkd,mk->mn", left, right, scales),)

    return Case(
        "views-scaled-bf16",
        ("vector_part", "load"),
        scaled,
        inputs,
        (((128, 64), f32),),
        reference,
    )


CASES = [_reversed(d, 128, s, 4) for d in NUMBERS for s in (pk.plain, pk.per_row, pk.per_column)]
CASES += [_reversed(d, n, pk.plain, 1) for d in (bf16, f32, e4m3, int64) for n in (3, 4, 6, 96)]
CASES += [_reversed(d, 32, s, 1) for d in (bf16, int64) for s in (pk.per_row, pk.per_column)]
CASES += [_elements(d) for d in NUMBERS]
CASES += [_largest(d) for d in (bf16, f32, int32)]
CASES += [_shared_out(d) for d in (bf16, f32, int32)]
CASES += [_scaled()]
