"""Matrix products: every pair of operand dtypes, every transposition, operands in shared memory and in registers."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.ops.mma import ACCUMULATORS
from pykittens.types.dtypes import DType, bf16, converted, e4m3, e5m2, f16, f32, int8, uint8
from tests import tolerance
from tests.cases.core import Array, Case

PRODUCTS = {"AB": pk.mma_AB, "ABt": pk.mma_ABt, "AtB": pk.mma_AtB, "AtBt": pk.mma_AtBt}
F32 = np.dtype(np.float32)


def product(
    word: str,
    a_type: DType,
    b_type: DType,
    acc_type: DType,
    sizes: tuple[int, int, int],
    registers: bool = False,
    warps: int = 4,
) -> Case:
    """One product onto an accumulator, and once more onto its result."""
    rows, cols, depth = sizes
    a_shape = (depth, rows) if word.startswith("At") else (rows, depth)
    b_shape = (cols, depth) if word.endswith("Bt") else (depth, cols)
    multiply = PRODUCTS[word]

    @pk.kernel(warps=warps)
    def kernel(A, B, C, D):
        ring = pk.pipeline(1, a=pk.st(a_type, *a_shape), b=pk.st(b_type, *b_shape))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.a, A[0])
            pk.load_async(s.b, B[0])
        acc = pk.load(C[0], rows=rows, cols=cols)
        a = pk.load(A[0], rows=a_shape[0], cols=a_shape[1]) if registers else None
        with ring.drain() as s:
            acc = multiply(a if registers else s.a, s.b, acc)
            acc = multiply(a if registers else s.a, s.b, acc)
        pk.store(D[0], acc)

    def inputs(rng: np.random.Generator) -> list[Array]:
        return [
            values(rng, a_shape, a_type),
            values(rng, b_shape, b_type),
            values(rng, (rows, cols), acc_type),
        ]

    def exact(A: Array, B: Array, C: Array) -> list[Array]:
        a, b = (x.astype(np.float64) for x in (A, B))
        a, b = (a.T if word.startswith("At") else a), (b.T if word.endswith("Bt") else b)
        return [C.astype(np.float64) + 2 * (a @ b)]

    def bound(wanted: list[Array], A: Array, B: Array, C: Array) -> list[Array]:
        a, b = (np.abs(x.astype(np.float64)) for x in (A, B))
        a, b = (a.T if word.startswith("At") else a), (b.T if word.endswith("Bt") else b)
        magnitude = 2 * (a @ b) + np.abs(C.astype(np.float64))
        return [error(wanted[0], magnitude, a_type, acc_type, 2 * depth)]

    place = "registers" if registers else "shared"
    types = f"{a_type}" if a_type is b_type else f"{a_type}-{b_type}"
    return Case(
        f"mma-{word}-{types}-{acc_type}-{place}-{rows}x{cols}x{depth}-{warps}",
        (f"mma_{word}",),
        kernel,
        inputs,
        (((rows, cols), acc_type),),
        exact,
        None if acc_type.is_int else bound,
    )


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Random numbers that a product of a dtype can be made of."""
    if dtype.is_int:
        low, high = max(int(dtype.least), -1000), min(int(dtype.largest), 1000)
        return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    return converted(rng.standard_normal(shape), dtype)


def error(exact: Array, magnitude: Array, operand: DType, acc: DType, depth: int) -> Array:
    """The error of a product of inner length `depth`."""
    bound = tolerance.product(F32, exact, magnitude, depth)
    if operand is f32:  # either operand loses what tf32 has no bits for
        bound = bound + 2 * 2.0**-10 * magnitude
    if operand.is_float and operand.bits == 8:  # 14 bits while accumulating, each 32 of the depth
        bound = bound + 2.0**-13 * (depth / 32 + 1) * magnitude
    if acc is f16:
        bound = bound + 2.0**-11 * (depth / 8 + 2) * magnitude
    return bound


SIZES = ((64, 16, 32), (64, 48, 96), (128, 128, 64))
# Where Hopper takes the product of a warp for fp8, ptxas makes it of f16 and needs registers for that.
NARROW = (*SIZES[:2], (128, 64, 64))


def _sizes(word: str, dtype: DType) -> tuple[tuple[int, int, int], ...]:
    if dtype is bf16 or (dtype is e4m3 and word == "ABt"):
        return SIZES
    return NARROW if dtype is e4m3 else SIZES[1:2]


CASES = [
    product(word, dtype, dtype, acc, sizes)
    for word in PRODUCTS
    for dtype, accs in ACCUMULATORS.items()
    for acc in accs
    for sizes in _sizes(word, dtype)
]
CASES += [
    product(word, dtype, dtype, acc, sizes, registers=True)
    for word in ("AB", "ABt")
    for dtype, accs in ACCUMULATORS.items()
    for acc in accs
    for sizes in SIZES[1:2]
]
CASES += [
    product("ABt", a, b, ACCUMULATORS[a][0], (64, 32, 64))
    for a, b in ((e4m3, e5m2), (e5m2, e4m3), (int8, uint8), (uint8, int8))
]
# One warp, two warps, and two warpgroups.
CASES += [
    product(word, dtype, dtype, ACCUMULATORS[dtype][0], sizes, warps=warps)
    for word in ("AB", "ABt")
    for dtype in (bf16, e4m3, f32)
    for warps, sizes in ((1, (16, 32, 64)), (2, (64, 48, 32)), (8, (128, 64, 64)))
]


def first_columns(word: str, cols: int, width: int, warps: int = 4) -> Case:
    """Products with the first columns of stages of whole lines, which overlap in the matrix."""
    rows, depth, count = max(16 * warps, 16), 64, 3
    shape = (depth, rows) if word == "AtB" else (rows, depth)
    multiply = PRODUCTS[word]

    @pk.kernel(warps=warps)
    def kernel(A, B, D):
        ring = pk.pipeline(1, a=pk.st(bf16, *shape), b=pk.st(bf16, depth, width))
        (column,) = pk.grid(count)
        with ring.fill() as s:
            pk.load_async(s.a, A[0])
            pk.load_async(s.b, B.window(1, cols * column, B.cols)[0, 0])
        with ring.drain() as s:
            pk.store(D[0, column], multiply(s.a, s.b[:, :cols]))

    end = count * cols - 8  # the last of the tiles is cut

    def exact(A: Array, B: Array) -> list[Array]:
        a, b = (x.astype(np.float64) for x in (A, B))
        return [(a.T if word == "AtB" else a) @ b]

    def bound(wanted: list[Array], A: Array, B: Array) -> list[Array]:
        magnitude = exact(np.abs(A), np.abs(B))[0]
        return [error(wanted[0], magnitude, bf16, f32, depth)]

    return Case(
        f"mma-{word}-first-{cols}-of-{width}-{warps}",
        (f"mma_{word}",),
        kernel,
        lambda rng: [values(rng, shape, bf16), values(rng, (depth, end), bf16)],
        (((rows, end), f32),),
        exact,
        bound,
    )


CASES += [
    first_columns(word, cols, width, warps)
    for word in ("AB", "AtB")
    for cols, width, warps in ((80, 128, 4), (16, 64, 4), (144, 192, 4), (240, 256, 4), (48, 64, 1))
]


def promoted(dtype: DType) -> Case:
    """A long product of fp8: each 128 of the depth is summed on the tensor cores, and those sums in f32."""
    depth = 1024

    @pk.kernel
    def kernel(A, B, D):
        ring = pk.pipeline(2, a=pk.st(dtype, 64, 128), b=pk.st(dtype, 64, 128))
        pk.grid(1)
        with pk.producer():
            for k in pk.range(pk.cdiv(A.cols, 128)):
                with ring.fill() as s:
                    pk.load_async(s.a, A[0, k])
                    pk.load_async(s.b, B[0, k])
        with pk.consumers(1):
            acc = pk.zeros(f32, 64, 64)
            for k in pk.range(pk.cdiv(A.cols, 128)):
                with ring.drain() as s:
                    acc = acc + pk.mma_ABt(s.a, s.b)
            pk.store(D[0], acc)

    def bound(wanted: list[Array], A: Array, B: Array) -> list[Array]:
        magnitude = np.abs(A.astype(np.float64)) @ np.abs(B.astype(np.float64)).T
        # What a sum of 128 loses on the tensor cores, and what the sums lose in f32.
        own = 2.0**-13 * (128 / 32 + 1) * magnitude
        return [own + tolerance.product(F32, wanted[0], magnitude, depth)]

    return Case(
        f"mma-promoted-{dtype}",
        ("mma_ABt",),
        kernel,
        lambda rng: [values(rng, (64, depth), dtype), values(rng, (64, depth), dtype)],
        (((64, 64), f32),),
        lambda A, B: [A.astype(np.float64) @ B.astype(np.float64).T],
        bound,
    )


CASES += [promoted(e4m3), promoted(e5m2)]
