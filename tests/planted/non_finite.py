"""Kernels that write NaN or infinity for finite inputs; a note names the line at which it arises."""

import numpy as np

import pykittens as pk
from pykittens import f16, f32
from pykittens.emulate.finding import Kind, Level
from tests.planted.core import empty, planted, whole


def softmax(x):
    """Softmax of each row in float64."""
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@planted(
    Kind.NON_FINITE,
    "e = pk.exp(t - highest if not broken else t)",
    "pk.store(y[row], e / pk.row_sum(e))",
    arguments=lambda rng: (whole(rng, (128, 64), f32) * 40, empty((128, 64), f32)),
    expected=lambda x, y: {"y": softmax(x)},
    bound=lambda y, *_: 1e-6 + 0 * y,
    level=Level.NOTE,
)
@pk.kernel
def softmax_without_the_maximum(x, y, *, broken):
    """Broken: exp of a large score is infinite, and infinity divided by infinity is NaN."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    highest = pk.row_max(t)
    e = pk.exp(t - highest if not broken else t)
    pk.store(y[row], e / pk.row_sum(e))


def with_a_row_of_zeros(rng):
    """x with one row of zeros, and y."""
    x = whole(rng, (64, 64), f32)
    x[5] = 0
    return x, empty((64, 64), f32)


def shares(x):
    """Each element as a share of the sum of absolute values of its row; 0 in a row of zeros."""
    return x / np.maximum(np.abs(x).sum(1, keepdims=True), 1)


@planted(
    Kind.NON_FINITE,
    "pk.store(y[row], t / (total if broken else pk.maximum(total, 1)))",
    arguments=with_a_row_of_zeros,
    expected=lambda x, y: {"y": shares(x)},
    bound=lambda y, *_: 1e-6 + 0 * y,
    level=Level.NOTE,
)
@pk.kernel
def row_of_zeros(x, y, *, broken):
    """Broken: the elements of a row of zeros are divided by their sum, 0."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    total = pk.row_sum(pk.abs(t))
    pk.store(y[row], t / (total if broken else pk.maximum(total, 1)))


@planted(
    Kind.NON_FINITE,
    "squares = (t * t * (1 if broken else 2**-6)).to(f16)",
    arguments=lambda rng: (whole(rng, (64, 64), f32) * 100, empty((64, 64), f16)),
    expected=lambda x, y: {"y": x * x / 64},
    level=Level.NOTE,
)
@pk.kernel
def squares_beyond_f16(x, y, *, broken):
    """Broken: squares of more than 65504 become infinite when they are converted to f16."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    squares = (t * t * (1 if broken else 2**-6)).to(f16)
    pk.store(y[row], squares)
