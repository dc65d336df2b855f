"""Operations element by element against NumPy in float64."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import pykittens as pk
from tests import tolerance
from tests.ops.kernels import BF16, F16, F32, INT32, normal, on_tiles, on_vectors
from tests.refusals import refused
from tests.tolerance import assert_within

FLOATS = pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
BINARY = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "div": (operator.truediv, np.divide),
    "maximum": (pk.maximum, np.maximum),
    "minimum": (pk.minimum, np.minimum),
}
UNARY = {
    "neg": (operator.neg, np.negative, 0),
    "exp": (pk.exp, np.exp, 3),
    "exp2": (pk.exp2, np.exp2, 3),
    "rsqrt": (lambda t: pk.rsqrt(t * t + 1.0), lambda x: 1 / np.sqrt(x * x + 1), 3),
}
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def wide(x):
    return x.astype(np.float64)


@FLOATS
@pytest.mark.parametrize("name", BINARY)
def test_a_binary_operation_is_rounded_once(name, dtype):
    ours, theirs = BINARY[name]
    a, b = normal(0, dtype=dtype), normal(1, dtype=dtype)
    exact = theirs(wide(a), wide(b))
    bound = tolerance.rounding(dtype, exact) + tolerance.rounding(F32, exact)
    assert_within(on_tiles(ours, a, b), exact, bound)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_unary_operation_is_computed_in_f32(name, dtype):
    ours, theirs, roundings = UNARY[name]
    a = normal(0, dtype=dtype)
    exact = theirs(wide(a))
    if name == "rsqrt":  # its operand is a sum of the tile's dtype, rounded twice
        x = (a.astype(np.float32) ** 2).astype(dtype).astype(np.float32)
        exact = 1 / np.sqrt(wide((x + np.float32(1)).astype(dtype)))
    bound = tolerance.rounding(dtype, exact) + tolerance.rounding(F32, exact, roundings)
    assert_within(on_tiles(ours, a), exact, bound)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum"])
def test_integers_are_exact(name):
    ours, theirs = BINARY[name]
    a, b = (np.random.default_rng(s).integers(-1000, 1000, (64, 48), INT32) for s in (0, 1))
    assert np.array_equal(on_tiles(ours, a, b), theirs(a, b))


@FLOATS
@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_a_comparison_chooses_element_by_element(compare, dtype):
    a, b = (normal(s, dtype=dtype).round(0).astype(dtype) for s in (0, 1))
    found = on_tiles(lambda x, y: pk.where(compare(x, y), x, y), a, b)
    assert np.array_equal(found, np.where(compare(a, b), a, b))


def test_maximum_and_minimum_propagate_nan():
    a, b = normal(0), normal(1)
    a[3], b[:, 5] = np.nan, np.nan
    for ours in (pk.maximum, pk.minimum):
        for found in (on_tiles(ours, a, b), on_tiles(ours, b, a)):
            assert np.array_equal(np.isnan(found), np.isnan(a) | np.isnan(b))


def test_a_number_of_python_takes_the_dtype_of_the_tile():
    a = normal(0, dtype=BF16)
    tenth = np.float32(BF16.type(0.1))
    expected = (a.astype(np.float32) * tenth).astype(BF16)
    assert np.array_equal(on_tiles(lambda t: t * 0.1, a), expected)
    assert np.array_equal(on_tiles(lambda t: 0.1 * t, a), expected)
    assert np.array_equal(on_tiles(lambda t: 1 - t, a), (1 - a.astype(np.float32)).astype(BF16))


def test_a_row_vector_is_spread_over_the_columns():
    a = normal(0)
    sums = a.max(axis=1, keepdims=True)
    assert np.array_equal(on_tiles(lambda t: t - pk.row_max(t), a), a - sums)
    assert np.array_equal(on_tiles(lambda t: pk.row_max(t) - t, a), sums - a)


@FLOATS
def test_dividing_by_one_value_for_many_takes_one_reciprocal(dtype):
    a = normal(0, dtype=dtype)
    found = on_tiles(lambda t: t / pk.row_max(t), a)
    exact = wide(a) / wide(a.max(axis=1, keepdims=True))
    assert_within(
        found, exact, tolerance.rounding(dtype, exact) + tolerance.rounding(F32, exact, 3)
    )


def test_a_scalar_goes_with_tiles_and_vectors():
    @pk.kernel
    def kernel(x, y, factor):
        pk.grid(1)
        row = pk.load(x, cols=40)
        pk.store(y, row * factor + pk.max(row))

    x, y = normal(0, (40,)), np.full(40, np.nan, np.float32)
    kernel(x, y, 0.1)
    assert np.array_equal(y, x * np.float32(0.1) + x.max())


@pytest.mark.parametrize("length", [1, 2, 31, 128, 1000, 5000])
def test_vectors_of_any_length(length):
    a, b = normal(0, (length,)), normal(1, (length,))
    assert np.array_equal(
        on_vectors(lambda x, y: x * y + 1.0, a, b, length=length), a * b + np.float32(1)
    )


def test_where_takes_numbers_for_either_side():
    a = normal(0)
    assert np.array_equal(on_tiles(lambda t: pk.where(t > 0.0, t, 0.0), a), np.maximum(a, 0))
    assert np.array_equal(
        on_tiles(lambda t: pk.where(t > 0.0, -pk.inf, t), a), np.where(a > 0, -np.inf, a)
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: pk.where(t, t, t), "`condition` must be a bool"),
        (lambda t: pk.where(t > 0.0, 1.0, 2.0), "`a` or `b` must be a value of the kernel"),
        (lambda t: pk.where(t > 0.0, t, t[:, 0:16]), "`b` must be 64x48 like `condition`, not"),
        (lambda t: (t > 0.0) + t, "`a` must be float or int, not bool"),
        (lambda t: (t > 0.0) + (t > 1.0), "`a` must be float or int, not bool"),
        (lambda t: t + "1", "must be a register tile"),
        (lambda t: t[0], "`index` must be as in `tile"),
        (lambda t: t[:, 0:64], "must be a compile-time slice of the 48 columns, not 0:64"),
        (lambda t: pk.exp(t.to(pk.int32)), "`a` must be float, not int32"),
    ],
)
def test_operands_that_do_not_fit_are_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))


def test_columns_of_a_tile():
    a = normal(0)

    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=48)
        pk.store(y[0, 0], t[:, 32:48])
        pk.store(y[0, 1], t[:, :16])

    y = np.full((64, 32), np.nan, np.float32)
    kernel(a, y)
    assert np.array_equal(y, np.hstack([a[:, 32:], a[:, :16]]))
