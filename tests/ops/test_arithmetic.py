"""Arithmetic element by element: operands of every spread, integers that wrap, powers and fused products."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import pytest

import pykittens as pk
from pykittens.ops.arithmetic import fused
from pykittens.runtime import nvrtc
from tests import tolerance
from tests.ops.kernels import F32, INT32, normal, on_tiles, on_vectors
from tests.refusals import refused
from tests.running import first, put, stored
from tests.targets.clean import frame
from tests.tolerance import assert_within

COMPILES = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
S, NUMBER = 0.75, 2.5


def spreads(t, s, reduce_rows, reduce_cols):
    """A tile, a vector per row and one per column, a scalar and a number."""
    return [t, reduce_rows(t), reduce_cols(t), s, NUMBER]


def every_pair(function, kinds=range(5)):
    """A kernel that stores `function` of operands of these kinds and of all to out[i, j], as tiles."""

    @pk.kernel
    def kernel(x, y, out, s):
        pk.grid(1)
        a, b = (pk.load(t[0], rows=64, cols=16) for t in (x, y))
        for i, p in enumerate(spreads(a, s, pk.row_max, pk.col_max)):
            for j, q in enumerate(spreads(b, s, pk.row_max, pk.col_max)):
                if i in kinds and (i < 4 or j < 4):
                    pk.store(out[i, j, 0, 0], pk.zeros(pk.f32, 64, 16) + function(p, q))

    return kernel


def numpy_spreads(x):
    return spreads(
        x,
        np.float32(S),
        lambda t: t.max(axis=1, keepdims=True),
        lambda t: t.max(axis=0, keepdims=True),
    )


PAIRS = {
    "sub": (lambda a, b: a - b, lambda a, b: a - b, 0),
    "div": (lambda a, b: a / b, lambda a, b: a.astype(float) / b, 3),
    "where": (lambda a, b: pk.where(a < b, a, b), np.minimum, 0),
    "pow": (lambda a, b: abs(a) ** b, lambda a, b: np.abs(a).astype(float) ** b, 9),
}


@pytest.mark.parametrize("name", PAIRS)
def test_operands_of_every_two_kinds_go_together(name):
    ours, theirs, roundings = PAIRS[name]
    x, y = normal(0, (64, 16)), normal(1, (64, 16))
    out = np.full((5, 5, 64, 16), np.nan, np.float32)
    every_pair(ours)(x, y, out, S)
    for i, p in enumerate(numpy_spreads(x)):
        for j, q in enumerate(numpy_spreads(y)):
            if i < 4 or j < 4:
                wanted = np.broadcast_to(theirs(np.float32(p), np.float32(q)), (64, 16)).astype(
                    float
                )
                assert_within(out[i, j], wanted, tolerance.rounding(F32, wanted, roundings))


@COMPILES
@pytest.mark.parametrize("kinds", [(0, 1), (2, 3, 4)])
@pytest.mark.parametrize("name", PAIRS)
def test_operands_of_every_two_kinds_compile(name, kinds):
    x, out = normal(0, (64, 16)), np.zeros((5, 5, 64, 16), np.float32)
    assert frame(every_pair(PAIRS[name][0], kinds).compile(x, x, out, S)) == 0


KINDS = [(i, j, k) for i in range(4) for j in range(4) for k in range(4)]


@pk.kernel
def every_three(x, y, choices, products, s, *, kinds=tuple(KINDS)):
    """Choices and fused products of operands of every three kinds, as tiles."""
    pk.grid(1)
    a, b = (pk.load(t[0], rows=64, cols=16) for t in (x, y))
    zero = pk.zeros(pk.f32, 64, 16)
    left, right = (spreads(t, s, pk.row_max, pk.col_max) for t in (a, b))
    for at, (i, j, k) in enumerate(kinds):
        pk.store(choices[at, 0, 0], zero + pk.where(left[i] > 0.5, right[j], left[k]))
        pk.store(products[at, 0, 0], zero + pk.fma(left[i], right[j], left[k]))


def test_operands_of_every_three_kinds_go_together():
    x, y = normal(0, (64, 16)), normal(1, (64, 16))
    choices, products = (np.full((64, 64, 16), np.nan, np.float32) for _ in range(2))
    every_three(x, y, choices, products, S)
    for at, (i, j, k) in enumerate(KINDS):
        p, q, r = (
            np.broadcast_to(numpy_spreads(t)[n], (64, 16)) for t, n in ((x, i), (y, j), (x, k))
        )
        assert np.array_equal(choices[at], np.where(p > 0.5, q, r))
        assert np.array_equal(products[at], fused(p, q, r))


@COMPILES
@pytest.mark.parametrize(
    "rest", [0, *(pytest.param(i, marks=pytest.mark.units) for i in range(1, 4))]
)
def test_operands_of_every_three_kinds_compile(rest):
    """A quarter of them in a program, in which every two kinds meet: one with all takes longer than four."""
    x, out = normal(0, (64, 16)), np.zeros((16, 64, 16), np.float32)
    kinds = tuple(k for k in KINDS if sum(k) % 4 == rest)
    made = every_three.compile(x, x, out, out.copy(), S, kinds=kinds)
    assert frame(made) == 0


def test_a_plain_vector_goes_with_a_vector_a_scalar_and_a_number():
    @pk.kernel(warps=1)
    def kernel(x, y, out, s):
        pk.grid(1)
        a, b = (pk.load(t, cols=37) for t in (x, y))
        results = [a - b, a - s, s - a, a - 2.0, 2.0 - a, pk.where(a < s, b, 0.0), pk.fma(a, s, b)]
        for i, result in enumerate(results):
            pk.store(out[i], result)

    x, y = normal(0, (37,)), normal(1, (37,))
    out = np.full((7, 37), np.nan, np.float32)
    kernel(x, y, out, S)
    s = np.float32(S)
    wanted = [x - y, x - s, s - x, x - 2, 2 - x, np.where(x < s, y, 0), fused(x, s, y)]
    assert np.array_equal(out, wanted)
    if nvrtc.available() is None:
        assert frame(kernel.compile(x, y, out, S)) == 0


# -- integers --------------------------------------------------------------------------------------


def test_integers_of_tiles_wrap():
    a = np.full((64, 48), -(2**31), np.int32)
    a[1:] = 2**31 - 1
    b = np.full_like(a, 7)
    for function in (operator.add, operator.sub, operator.mul):
        assert np.array_equal(on_tiles(function, a, b), function(a, b))
    assert np.array_equal(on_tiles(lambda x, y: abs(x) + -y, a, b), np.abs(a) - b)


def test_an_integer_of_a_tile_divided_by_zero_is_zero():
    a = np.random.default_rng(0).integers(-50, 50, (64, 48), INT32)
    b = np.random.default_rng(1).integers(-3, 4, (64, 48), INT32)
    safe = np.where(b == 0, 1, b)
    assert np.array_equal(on_tiles(operator.floordiv, a, b), np.where(b == 0, 0, a // safe))
    assert np.array_equal(on_tiles(operator.mod, a, b), np.where(b == 0, 0, a % safe))


def test_the_least_integer_by_minus_one_stays():
    a, b = np.full((64, 48), -(2**31), np.int32), np.full((64, 48), -1, np.int32)
    assert np.array_equal(on_tiles(operator.floordiv, a, b), a)
    assert np.array_equal(on_tiles(operator.mod, a, b), np.zeros_like(a))


def test_a_vector_of_integers_is_divided_by_a_number():
    a = np.arange(-20, 20, dtype=np.int32)
    assert np.array_equal(
        on_vectors(lambda x: x // 7 * 10 + x % 7, a, length=40), a // 7 * 10 + a % 7
    )


def test_a_scalar_that_overflows_is_an_error():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, abs(n))

    with pytest.raises(pk.KernelError, match="abs: 2147483648 overflows an int32"):
        first(kernel, -(2**31))


# -- fused products, powers and bounds -------------------------------------------------------------


def test_a_fused_product_is_rounded_once():
    rng = np.random.default_rng(3)
    size = np.exp2(rng.integers(-20, 20, (3, 3000)))
    a, b, c = (rng.standard_normal((3, 3000)) * size).astype(np.float32)
    c[:1500] = -(a[:1500] * b[:1500])
    exact = [
        Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    for found, value in zip(fused(a, b, c), exact, strict=True):
        error = abs(Fraction(float(found)) - value)
        for neighbour in (
            np.nextafter(found, F32.type(np.inf)),
            np.nextafter(found, -F32.type(np.inf)),
        ):
            assert error <= abs(Fraction(float(neighbour)) - value)


def test_a_fused_product_where_two_roundings_would_be_one_too_many():
    # The sum in float64 is half way between two of float32; what it dropped says which is nearer.
    a, b = np.float32(1 + 2.0**-12), np.float32(2.0**-60)
    found = fused(np.float32(1), np.float32(1 + 2.0**-23), np.float32(0))
    assert found == np.float32(1 + 2.0**-23)
    half = np.float32(2.0**-24)
    assert fused(b, a, np.float32(1)) == 1
    assert fused(half, np.float32(1), np.float32(1)) == 1  # a tie, to even
    above = fused(np.float32(2.0**-24 * (1 + 2.0**-23)), np.float32(1 + 2.0**-23), np.float32(1))
    assert above == np.float32(1 + 2.0**-23)


def test_a_fused_product_is_rounded_once_near_zero_and_half_way():
    rng = np.random.default_rng(5)
    signs = rng.choice([-1.0, 1.0], (3, 4000))
    ranges = (-75, -62), (-75, -62), (-149, -126)  # of exponents
    size = np.exp2([rng.integers(*ends, 4000) for ends in ranges])
    a, b, c = (signs * size * rng.integers(1, 2**12, (3, 4000))).astype(np.float32)
    a[:2000], b[:2000] = rng.integers(1, 2**12, (2, 2000))  # sums of few bits are often half way
    c[:2000] = np.exp2(rng.integers(20, 48, 2000))
    found = fused(a.reshape(40, 100), b.reshape(40, 100), c.reshape(40, 100)).ravel()
    for x, y, z, one in zip(a, b, c, found, strict=True):
        value = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(one)) - value)
        for end in (np.inf, -np.inf):
            other = abs(Fraction(float(np.nextafter(one, F32.type(end)))) - value)
            assert error < other or (error == other and one.view(np.int32) % 2 == 0)


def test_a_fused_product_of_what_is_not_finite():
    operands = np.array([[np.inf, 0, np.nan, 1], [2, np.inf, 1, 2], [1, 1, 1, -np.inf]], F32)
    with np.errstate(invalid="ignore"):
        found = fused(*operands)
    assert np.array_equal(found, [np.inf, np.nan, np.nan, -np.inf], equal_nan=True)


def test_a_power_of_special_numbers_follows_c():
    a = np.zeros((64, 48), np.float32)
    a[0, :6] = [0, -0.0, np.inf, -np.inf, np.nan, -8]
    for exponent in (0.0, 2, 3.0, 0.5, -1.0, 1 / 3):
        with np.errstate(all="ignore"):
            wanted = np.power(a.astype(float), np.float32(exponent)).astype(np.float32)
        found = on_tiles(lambda t, n=exponent: t**n, a)
        assert np.array_equal(found, wanted, equal_nan=True)


def test_a_number_to_the_power_of_a_tile():
    a = normal(0)
    wanted = 2.0 ** a.astype(float)
    assert_within(on_tiles(lambda t: 2.0**t, a), wanted, tolerance.rounding(F32, wanted, 9))


def test_a_clamp_keeps_what_is_no_number():
    a = normal(0)
    a[0, :3] = np.nan, np.inf, -np.inf
    found = on_tiles(lambda t: pk.clamp(t, -0.5, 0.25), a)
    assert np.array_equal(found, np.clip(a, -0.5, 0.25), equal_nan=True)
    assert np.isnan(on_tiles(lambda t: pk.clamp(t, pk.row_max(t), 2.0), a)[0]).all()


# -- numbers of Python -----------------------------------------------------------------------------


def test_on_numbers_of_python_they_are_done_at_once():
    results = [
        pk.abs(-3),
        pk.clamp(7, 0, 5),
        pk.fma(2, 3, 4),
        pk.floor_div(-7, 2),
        pk.floor_mod(-7, 2),
    ]
    assert results == [3, 5, 10, -4, 1]
    assert {type(r) for r in results} == {int}
    assert pk.pow(2.0, 0.5) == 2**0.5
    assert type(pk.pow(2.0, 3)) is float


def test_the_operators_of_scalars():
    @pk.kernel
    def kernel(out, n, x):
        pk.grid(1)
        put(out, 0, abs(n) % 4)
        put(out, 1, (abs(x) ** 2 * 4.0).to(pk.int32))
        put(out, 2, (2.0**x).to(pk.int32))

    assert stored(kernel, -7, -1.5)[:3] == [3, 9, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: t.to(pk.int32) ** 2, "(?s)`a` must be float, not int32.*a product"),
        (lambda t: pk.fma(t.to(pk.int32), 2, 1), "(?s)`a` must be float, not int32.*for integers"),
        (lambda t: t // 2, "(?s)`a` must be an integer, not rt<f32, 64x48>.*`/`"),
        (lambda t: t.to(pk.int32) // t, "`b` must be an integer, not rt<f32, 64x48>"),
        (lambda t: pk.cdiv(t.to(pk.int32), 2), "`a` must be a scalar"),
        (lambda t: abs(t > 0.0), "`a` must be float or int, not bool"),
        (lambda t: pk.clamp(t, 0, "1"), "`high` must be a register tile"),
    ],
)
def test_operands_that_do_not_fit_are_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))
