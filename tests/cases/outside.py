"""Copies of tiles and vectors that are wholly or partly outside their tensors, on every side."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, f32, int8
from tests.cases.convert import numbers
from tests.cases.core import Array, Case

SHAPE = (100, 144)
ROWS, COLS = 64, 64


def _copied(dtype: DType, vectors: bool) -> Case:
    """All tiles from one before the first to one behind the last, in both axes, from x to y."""

    @pk.kernel
    def copied(x, y):
        tile = pk.sv(dtype, COLS) if vectors else pk.st(dtype, ROWS, COLS)
        ring = pk.pipeline(2, tile)
        pk.grid(1)
        rows = x.rows if vectors else pk.cdiv(x.rows, ROWS)
        cols = pk.cdiv(x.cols, COLS)
        with pk.producer():
            for i in pk.range(-1, rows + 1):
                for j in pk.range(-1, cols + 1):
                    with ring.fill() as s:
                        pk.load_async(s, x[i, j])
        with pk.storer():
            for i in pk.range(-1, rows + 1):
                for j in pk.range(-1, cols + 1):
                    with ring.drain() as s:
                        pk.store_async(y[i, j], s)

    return Case(
        f"outside-{'vectors' if vectors else 'tiles'}-{dtype}",
        ("load_async", "store_async"),
        copied,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        ((SHAPE, dtype),),
        lambda x: [x],
    )


def _zeros(dtype: DType, row: int, col: int) -> Case:
    """A tile before or behind the tensor reads as zero."""

    @pk.kernel
    def read(x, y):
        ring = pk.pipeline(1, pk.st(dtype, ROWS, COLS))
        pk.grid(1)
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, x[row, col])
        with pk.consumers(1), ring.drain() as s:
            pk.store(y[0], pk.load(s))

    def reference(x: Array) -> list[Array]:
        padded = np.zeros((5 * ROWS, 7 * COLS), x.dtype)
        padded[ROWS : ROWS + x.shape[0], COLS : COLS + x.shape[1]] = x
        top, left = (row + 1) * ROWS, (col + 1) * COLS
        return [padded[top : top + ROWS, left : left + COLS]]

    return Case(
        f"outside-read-{dtype}-{row}-{col}",
        ("load_async", "load"),
        read,
        lambda rng: [numbers(rng, SHAPE, dtype)],
        (((ROWS, COLS), dtype),),
        reference,
    )


CASES = [_copied(dtype, vectors) for dtype in (bf16, f32, int8) for vectors in (False, True)]
# Two corners, two sides, and across the end.
CASES += [_zeros(bf16, *at) for at in ((-1, -1), (3, 4), (-1, 2), (1, -1), (1, 2))]
