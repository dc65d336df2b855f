"""Arithmetic element by element, and broadcasts of operands of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import (
    DType,
    bf16,
    converted,
    e4m3,
    e5m2,
    f16,
    f32,
    int8,
    int32,
    int64,
    uint8,
)
from tests import tolerance
from tests.cases.core import FULL, Array, Case, columns
from tests.cases.functions import numbers as floats

FLOATS, INTS = (bf16, f16, f32, e4m3, e5m2), (int8, uint8, int32, int64)
NUMBERS = FLOATS + INTS


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of a dtype: floats of every size, ints of the whole range, small ones and both ends."""
    if dtype.is_float:
        values = floats(rng, shape, dtype)
        # Special numbers beside ordinary ones and beside one another.
        special = values.reshape(-1)[:40].copy()
        values.reshape(-1)[:40] = rng.permuted(special)
        return values
    whole = rng.integers(
        int(dtype.least), int(dtype.largest), shape, dtype=dtype.numpy, endpoint=True
    )
    values = np.where(rng.random(shape) < 0.5, whole, whole % dtype.numpy.type(16))
    values.reshape(-1)[:3] = dtype.least, dtype.largest, 0
    return np.asarray(rng.permuted(values.reshape(-1)).reshape(shape), dtype.numpy)


def rounded(function: Callable[..., Array], dtype: DType, to: DType) -> Callable[..., Array]:
    """A function computed in the type for a dtype, and rounded to another; integers wrap."""
    wide = np.dtype(np.float32) if dtype.is_float else np.dtype(np.int64)

    def result(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            values = function(*(x.astype(wide) for x in operands))
            return converted(values, to) if to.is_float else values.astype(to.numpy)

    return result


def on_tiles(x: Any, y: Any, z: Any, out: Any, *functions: Any, cols: int = 48) -> None:
    """In a kernel: store function k of three tiles to out[k]."""
    pk.grid(1)
    tiles = [pk.load(a[0, 0], rows=64, cols=cols) for a in (x, y, z)]
    for k, function in enumerate(functions):
        pk.store(out[k, 0, 0], function(*tiles))


LENGTH = 37  # of plain vectors: more than one element for some lanes of a warp


def on_vectors(x: Any, y: Any, z: Any, out: Any, *functions: Any) -> None:
    """In a kernel: store function k of three plain vectors to out[k]."""
    pk.grid(1)
    vectors = [pk.load(a, cols=LENGTH) for a in (x, y, z)]
    for k, function in enumerate(functions):
        pk.store(out[k], function(*vectors))


Table = dict[str, tuple[Callable[..., Any], Callable[..., Array]]]  # a function and its meaning
TWO: Table = {
    "add": (lambda a, b, c: a + b, lambda a, b, c: a + b),
    "sub": (lambda a, b, c: a - b, lambda a, b, c: a - b),
    "mul": (lambda a, b, c: a * b, lambda a, b, c: a * b),
    "maximum": (lambda a, b, c: pk.maximum(a, b), lambda a, b, c: np.maximum(a, b)),
    "minimum": (lambda a, b, c: pk.minimum(a, b), lambda a, b, c: np.minimum(a, b)),
}
ONE: Table = {
    "neg": (lambda a, b, c: -a, lambda a, b, c: -a),
    "abs": (lambda a, b, c: abs(a), lambda a, b, c: np.abs(a)),
    "clamp": (pk.clamp, lambda a, b, c: np.minimum(np.maximum(a, b), c)),
}
DIVISION: Table = {"div": (lambda a, b, c: a / b, lambda a, b, c: a / b)}


def _over(b: Array) -> Array:
    return np.where(b == 0, 1, b)


WHOLE: Table = {
    "floor_div": (lambda a, b, c: a // b, lambda a, b, c: np.where(b == 0, 0, a // _over(b))),
    "floor_mod": (lambda a, b, c: a % b, lambda a, b, c: np.where(b == 0, 0, a % _over(b))),
}


def table_cases(
    title: str, table: Table, dtypes: tuple[DType, ...], to: DType | None = None
) -> list[Case]:
    """A case a dtype and size of a kernel that stores every function of a table."""
    ours, theirs = [f for f, _ in table.values()], [f for _, f in table.values()]

    @pk.kernel
    def panels(x, y, z, out):
        on_tiles(x, y, z, out, *ours)

    @pk.kernel
    def panel(x, y, z, out):
        on_tiles(x, y, z, out, *ours, cols=16)

    @pk.kernel(warps=1)
    def vectors(x, y, z, out):
        on_vectors(x, y, z, out, *ours)

    def case(kernel: Any, extents: tuple[int, ...], dtype: DType) -> Case:
        meanings = [rounded(f, dtype, to or dtype) for f in theirs]
        return Case(
            f"map-{title}-{dtype}-{'x'.join(map(str, extents))}",
            tuple(table),
            kernel,
            lambda rng: [numbers(rng, extents, dtype) for _ in range(3)],
            (((len(table), *extents), to or dtype),),
            lambda *xs: [np.stack([f(*xs) for f in meanings])],
        )

    return [
        *(case(panels if d in FULL else panel, (64, columns(d)), d) for d in dtypes),
        *(case(panels if d in FULL else panel, (33, columns(d) - 8), d) for d in dtypes[::2]),
        *(case(vectors, (LENGTH,), d) for d in dtypes),
    ]


# -- fused products and powers ---------------------------------------------------------------------


@pk.kernel
def fused(x, y, z, out):
    on_tiles(x, y, z, out, pk.fma, cols=pk.static(x.cols))


@pk.kernel
def power(x, y, z, out):
    on_tiles(x, y, z, out, lambda a, b, c: a**b, cols=pk.static(x.cols))


@pk.kernel
def powers(x, y, z, out):
    functions = (lambda a, b, c, n=n: a**n for n in (2, 3, 4))
    on_tiles(x, y, z, out, *functions, cols=pk.static(x.cols))


def _near_products(rng: np.random.Generator, dtype: DType) -> list[Array]:
    """a, b and about -a * b, so that a rounding of the product would be most of the result."""
    shape = 64, columns(dtype)
    a, b = (rng.standard_normal(shape).astype(dtype.numpy) for _ in range(2))
    return [a, b, (-a.astype(np.float32) * b.astype(np.float32)).astype(dtype.numpy)]


def _bases(rng: np.random.Generator, dtype: DType) -> list[Array]:
    shape = 64, columns(dtype)
    exponents = np.where(
        rng.random(shape) < 0.3, rng.integers(-4, 5, shape), rng.uniform(-3, 3, shape)
    )
    a = numbers(rng, shape, dtype)
    return [np.where(rng.random(a.shape) < 0.5, np.abs(a), a), exponents.astype(dtype.numpy), a]


def _wide(function: Callable[..., Array], dtype: DType) -> Callable[..., Array]:
    def values(*xs: Array) -> Array:
        with np.errstate(all="ignore"):
            exact = function(*(x.astype(np.float64) for x in xs))
            return np.where(np.isfinite(converted(exact, dtype)), exact, converted(exact, dtype))

    return values


def _within(units: float, dtype: DType) -> Callable[..., Array]:
    def most(wanted: Array) -> Array:
        size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
        unit = np.spacing(size.astype(np.float32)).astype(np.float64)
        rounding = tolerance.rounding(np.float32, size) + 2.0**-52 * size
        narrow = tolerance.rounding(dtype.numpy, size) if dtype is not f32 else 0
        return units * unit + rounding + narrow

    return most


def _approximate(dtype: DType) -> list[Case]:
    exact = [_wide(lambda a, b, c, n=n: a**n, dtype) for n in (2, 3, 4)]
    cols = columns(dtype)
    out = ((1, 64, cols), dtype)
    return [
        Case(
            f"map-fma-{dtype}-64x{cols}",
            ("fma",),
            fused,
            lambda rng: _near_products(rng, dtype),
            (out,),
            lambda *xs: [_wide(lambda a, b, c: a * b + c, dtype)(*xs)[None]],
            lambda wanted, *xs: [_within(0, dtype)(wanted[0])],
        ),
        Case(
            f"map-pow-{dtype}-64x{cols}",
            ("pow",),
            power,
            lambda rng: _bases(rng, dtype),
            (out,),
            lambda *xs: [_wide(lambda a, b, c: np.power(a, b), dtype)(*xs)[None]],
            lambda wanted, *xs: [_within(4, dtype)(wanted[0])],
        ),
        Case(
            f"map-powers-{dtype}-64x{cols}",
            ("pow",),
            powers,
            lambda rng: _bases(rng, dtype),
            (((3, 64, cols), dtype),),
            lambda *xs: [np.stack([f(*xs) for f in exact])],
            lambda wanted, *xs: [_within(2, dtype)(wanted[0])],
        ),
    ]


# -- scalars and spreads ---------------------------------------------------------------------------


@pk.kernel(warps=1)
def of_scalars(out, floats, n, m, s):
    pk.grid(1)
    whole = [n // m, n % m, pk.cdiv(n, m), abs(n), pk.clamp(n, -5, m), n * m - n + m, -n]
    for i, value in enumerate(whole):
        pk.store(out[i], pk.zeros(int32, 8) + value)
    for i, value in enumerate([s / 3.0, abs(s), pk.fma(s, s, -1.0), s**2, pk.maximum(s, 0.0)]):
        pk.store(floats[i], pk.zeros(f32, 8) + value)


def _of_scalars(n: int, m: int, s: float) -> list[Array]:
    whole = [n // m, n % m, -(-n // m), abs(n), min(max(n, -5), m), n * m - n + m, -n]
    x = np.float32(s)
    # One third is a constant of the kernel, so x / 3 is a product: 1.5 units of the quotient.
    found = [float(x) / 3, abs(x), float(x) * float(x) - 1, float(x) ** 2, max(x, 0)]
    return [np.repeat(np.array(v)[:, None], 8, 1) for v in (whole, np.array(found, np.float64))]


def _scalars(n: int, m: int, s: float) -> Case:
    return Case(
        f"map-scalars-{n}-{m}",
        ("floor_div", "floor_mod", "cdiv", "abs", "clamp", "fma", "pow"),
        of_scalars,
        lambda rng: [],
        (((7, 8), int32), ((5, 8), f32)),
        lambda *_: _of_scalars(n, m, s),
        lambda wanted: [np.zeros((7, 8)), 2 * tolerance.rounding(np.float32, wanted[1])],
        scalars=(n, m, s),
    )


CASES = [
    *table_cases("arithmetic", TWO, NUMBERS),
    *table_cases("one", ONE, NUMBERS),
    *table_cases("div", DIVISION, FLOATS),
    *table_cases("whole", WHOLE, INTS),
    *(case for dtype in (bf16, f16, f32) for case in _approximate(dtype)),
    *(
        _scalars(n, m, s)
        for n, m, s in ((17, 5, 0.3), (-17, 5, -7.25), (17, -5, 1e-20), (-15, -5, 1.5))
    ),
]
