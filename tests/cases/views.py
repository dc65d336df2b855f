"""Parts of shared vectors and rows of shared tiles: loaded, stored, and as operands and scales of products."""

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


# -- rows of tiles ---------------------------------------------------------------------------------


def _rows(dtype: DType, cols: int, warps: int) -> Case:
    """Rows in the opposite order: a tile that is written by rows and read by tiles, and the other way round."""
    rows, part = 16 * warps, min(cols, 64)

    @pk.kernel(warps=warps)
    def turned(x, y):
        tile = pk.shared(pk.st(dtype, rows, cols))
        pk.grid(1)
        for i in pk.range(1, rows):
            pk.store(tile.row(rows - 1 - i), pk.load(x[i], cols=cols))
        pk.store(tile.row(rows - 1), pk.load(x[0], cols=cols))
        pk.sync()
        for j in pk.range(cols // part):
            pk.store(y[0, j], pk.load(tile.tiles(rows, part)[0, j]))
        pk.sync()
        for j in pk.range(cols // part):
            pk.store(tile.tiles(rows, part)[0, j], pk.load(x[0, j], rows=rows, cols=part))
        pk.sync()
        for i in pk.range(rows - 1):
            pk.store(y[2 * rows - 1 - i], pk.load(tile.row(i)))
        pk.store(y[rows], pk.load(tile.row(rows - 1)))

    return Case(
        f"views-rows-{dtype}-{cols}-{warps}",
        ("shared_row", "load", "store"),
        turned,
        lambda rng: [numbers(rng, (rows, cols), dtype)],
        (((2 * rows, cols), dtype),),
        lambda x: (np.concatenate([x[::-1], x[::-1]]),),
    )


def _rows_of_views(dtype: DType, part: int) -> Case:
    """A tile that is written by rows of its parts and by rows of parts of them, and read by tiles."""

    @pk.kernel(warps=1)
    def of_views(x, y):
        tile = pk.shared(pk.st(dtype, 64, 128))
        pk.grid(1)
        for i in pk.range(32):
            for j in pk.range(128 // part):
                row = tile.tiles(16, part)[i // 16, j].row(i % 16)
                pk.store(row, pk.load(x[i, j], cols=part))
                outer = tile.tiles(32, 128)[1]
                row = outer.tiles(8, part)[i // 8, j].row(i % 8)
                pk.store(row, pk.load(x[32 + i, j], cols=part))
        pk.sync()
        for j in pk.range(128 // part):
            for i in pk.range(4):
                pk.store(y[i, j], pk.load(tile.tiles(16, part)[i, j]))
        pk.store(y[4 * 16, 0], pk.load(tile.tiles(16, part)[2, 1].row(3)))

    def reference(x: Array) -> tuple[Array]:
        y = unwritten((65, 128), dtype)
        y[:64], y[64, :part] = x, x[35, part : 2 * part]
        return (y,)

    return Case(
        f"views-rows_of_views-{dtype}-{part}",
        ("shared_row", "view", "load", "store"),
        of_views,
        lambda rng: [numbers(rng, (64, 128), dtype)],
        (((65, 128), dtype),),
        reference,
    )


def _rows_of_arrays(dtype: DType) -> Case:
    """Rows of shared tiles that an index selects, moved from one tile to the next."""

    @pk.kernel(warps=2)
    def of_arrays(x, y):
        tiles = pk.shared(pk.st(dtype, 16, 48), count=3)
        pk.grid(1)
        for i in pk.range(48):
            pk.store(tiles[i // 16].row(i % 16), pk.load(x[i], cols=48))
        pk.sync()
        for i in pk.range(48):
            pk.store(y[i], pk.load(tiles[(i + 1) % 3].row(i // 3)))

    def reference(x: Array) -> tuple[Array]:
        i = np.arange(48)
        return (x[(i + 1) % 3 * 16 + i // 3],)

    return Case(
        f"views-rows_of_arrays-{dtype}",
        ("shared_row", "load", "store"),
        of_arrays,
        lambda rng: [numbers(rng, (48, 48), dtype)],
        (((48, 48), dtype),),
        reference,
    )


def _rows_of_stages(dtype: DType) -> Case:
    """Two warps fill the stages of a ring by rows, which a warpgroup reads by tiles and a warp by rows."""

    @pk.kernel
    def of_stages(x, y):
        ring = pk.pipeline(2, a=pk.st(dtype, 64, 64), b=pk.st(dtype, 16, 32))
        back = pk.pipeline(2, pk.st(dtype, 64, 64))
        pk.grid(1)
        with pk.warps(2) as w:
            for k in pk.range(3):
                with ring.fill() as s:
                    for i in pk.range(32):
                        pk.store(s.a.row(2 * i + w), pk.load(x[64 * k + 2 * i + w], cols=64))
                    for i in pk.range(8):
                        pk.store(s.b.row(8 * w + i), pk.load(x[64 * k + 8 * w + i], cols=32))
        with pk.consumers(1):
            for k in pk.range(3):
                with ring.drain() as s:
                    t, row = pk.load(s.a), pk.load(s.b.row(k))
                pk.store(y[192 + k], row)
                with back.fill() as s:
                    pk.store(s, t)
        with pk.warps(1):
            for k in pk.range(3):
                with back.drain() as s:
                    for i in pk.range(64):
                        pk.store(y[64 * k + 63 - i], pk.load(s.row(i)))

    def reference(x: Array) -> tuple[Array]:
        y = unwritten((195, 64), dtype)
        y[:192] = x.reshape(3, 64, 64)[:, ::-1].reshape(192, 64)
        y[192:, :32] = x[[0, 65, 130], :32]
        return (y,)

    return Case(
        f"views-rows_of_stages-{dtype}",
        ("shared_row", "load", "store"),
        of_stages,
        lambda rng: [numbers(rng, (192, 64), dtype)],
        (((195, 64), dtype),),
        reference,
    )


@pk.kernel
def products_with_rows(A, B, index, out):
    """out = A @ B[index].T over blocks of 64 columns: two warps bring the rows of B, a warpgroup multiplies."""
    left = pk.pipeline(2, pk.st(bf16, 64, 64))
    right = pk.pipeline(2, pk.st(bf16, 16, 64))
    pk.grid(1)
    blocks = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(blocks):
            with left.fill() as s:
                pk.load_async(s, A[0, k])
    with pk.warps(2) as w:
        for k in pk.range(blocks):
            with right.fill() as s:
                for i in range(8):
                    at = pk.load(index[8 * w + i])
                    pk.store(s.row(8 * w + i), pk.load(B[at, k], cols=64))
    with pk.consumers(1):
        total = pk.zeros(f32, 64, 16)
        for _ in pk.range(blocks):
            with left.drain() as a, right.drain() as b:
                total = pk.mma_ABt(a, b, total)
        pk.store(out, total)


def _products_with_rows() -> Case:
    def inputs(rng: np.random.Generator) -> list[Array]:
        a, b = (rng.integers(-4, 5, (rows, 192)).astype(bf16.numpy) for rows in (64, 40))
        return [a, b, rng.permutation(40)[:16].astype(np.int32)]

    return Case(
        "views-products_with_rows-bf16",
        ("shared_row", "store", "mma_ABt"),
        products_with_rows,
        inputs,
        (((64, 16), f32),),
        lambda a, b, index: (a.astype(np.float64) @ b[index].astype(np.float64).T,),
    )


CASES = [_reversed(d, 128, s, 4) for d in NUMBERS for s in (pk.plain, pk.per_row, pk.per_column)]
CASES += [_reversed(d, n, pk.plain, 1) for d in (bf16, f32, e4m3, int64) for n in (3, 4, 6, 96)]
CASES += [_reversed(d, 32, s, 1) for d in (bf16, int64) for s in (pk.per_row, pk.per_column)]
CASES += [_elements(d) for d in NUMBERS]
CASES += [_largest(d) for d in (bf16, f32, int32)]
CASES += [_shared_out(d) for d in (bf16, f32, int32)]
CASES += [_scaled()]
CASES += [_rows(d, 64, 4) for d in NUMBERS]
# Of each swizzle, and of several panels; with chunks of 2, 4 and 8 elements.
CASES += [_rows(d, n, 1) for d in (bf16, f32, e4m3) for n in (16, 32, 48, 64, 128, 256, 1024)]
CASES += [_rows(int64, n, 1) for n in (16, 128, 512)]
CASES += [_rows(d, n, 8) for d in (bf16, e4m3) for n in (16, 256)]
CASES += [_rows_of_views(d, n) for d in (bf16, f32, e4m3) for n in (16, 32, 64)]
CASES += [_rows_of_arrays(d) for d in (bf16, f32, int64)]
CASES += [_rows_of_stages(d) for d in (bf16, f32, e4m3)]
CASES += [_products_with_rows()]
