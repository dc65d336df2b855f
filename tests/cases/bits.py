"""Bits of integers: tiles, vectors and scalars."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, int8, int32, int64, uint8
from tests.cases.arithmetic import INTS, Table, numbers, on_tiles, table_cases
from tests.cases.core import Array, Case, columns

BITS: Table = {
    "bitwise_and": (lambda a, b, c: a & b, lambda a, b, c: a & b),
    "bitwise_or": (lambda a, b, c: a | b, lambda a, b, c: a | b),
    "bitwise_xor": (lambda a, b, c: a ^ b, lambda a, b, c: a ^ b),
    "bitwise_not": (lambda a, b, c: ~a, lambda a, b, c: ~a),
}


@pk.kernel
def shifts(x, y, z, out):
    left, right = (lambda a, n, c: a << n), (lambda a, n, c: a >> n)
    on_tiles(x, y, z, out, left, right, lambda a, n, c: a >> 3 << 1, cols=pk.static(x.cols))


def shifted(a: Array, n: Array, dtype: DType, left: bool) -> Array:
    """Shifts of Python's integers, wrapped to the dtype; a count outside 0 to bits - 1 shifts everything out."""
    results = []
    for value, count in zip(a.reshape(-1).tolist(), n.reshape(-1).tolist(), strict=True):
        places = count if 0 <= count < dtype.bits else dtype.bits
        result = value << places if left else value >> places
        results.append((result - int(dtype.least)) % 2**dtype.bits + int(dtype.least))
    return np.array(results, dtype.numpy).reshape(a.shape)


def _counts(rng: np.random.Generator, dtype: DType) -> Array:
    low = -3 if dtype.least else 0
    return rng.integers(low, dtype.bits + 5, (64, columns(dtype))).astype(dtype.numpy)


def _shifts(dtype: DType) -> Case:
    shape = 64, columns(dtype)
    return Case(
        f"map-shifts-{dtype}-64x{shape[1]}",
        ("shift_left", "shift_right"),
        shifts,
        lambda rng: [
            numbers(rng, shape, dtype),
            _counts(rng, dtype),
            np.zeros(shape, dtype.numpy),
        ],
        (((3, *shape), dtype),),
        lambda a, n, _: [
            np.stack(
                [
                    shifted(a, n, dtype, left=True),
                    shifted(a, n, dtype, left=False),
                    shifted(a >> 3, np.ones_like(n), dtype, left=True),
                ]
            )
        ],
    )


@pk.kernel(warps=1)
def of_scalars(out, n, m):
    pk.grid(1)
    values = [n & m, n | m, n ^ m, ~n, n << 7, n >> 3, n << m, n >> m, 1 << m, n << 31]
    for i, value in enumerate(values):
        pk.store(out[i], pk.zeros(int32, 8) + value)


def _of_scalars(n: int, m: int) -> list[Array]:
    a, b = np.array([n], np.int32), np.array([m], np.int32)

    def shift(x: Array, by: int, left: bool) -> int:
        return int(shifted(x, np.array([by]), int32, left)[0])

    values = [n & m, n | m, n ^ m, ~n, shift(a, 7, True), shift(a, 3, False)]
    values += [shift(a, m, True), shift(a, m, False), shift(b * 0 + 1, m, True), shift(a, 31, True)]
    return [np.repeat(np.array(values)[:, None], 8, 1)]


def _scalars(n: int, m: int) -> Case:
    return Case(
        f"map-bits-scalars-{n}-{m}",
        tuple(BITS) + ("shift_left", "shift_right"),
        of_scalars,
        lambda rng: [],
        (((10, 8), int32),),
        lambda *_: _of_scalars(n, m),
        scalars=(n, m),
    )


CASES = [
    *table_cases("bits", BITS, INTS),
    *(_shifts(dtype) for dtype in (int8, uint8, int32, int64)),
    *(_scalars(n, m) for n, m in ((12345, 3), (-12345, 31), (2**31 - 1, 32), (-(2**31), -1))),
]
