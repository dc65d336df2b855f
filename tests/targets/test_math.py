"""The functions that math.cuh works out itself, in NumPy's float32 step by step, against float64: their stated errors.

What CUDA's functions and instructions may be off by is added where they are used, in either direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from pykittens.ops.arithmetic import fused
from pykittens.types.dtypes import f32
from tests.cases.functions import FUNCTIONS, exact
from tests.tolerance import assert_within

Array = np.ndarray[Any, Any]
TEXT = files("pykittens.targets.cuda").joinpath("math.cuh").read_text()
F, U, W = np.float32, np.uint32, np.uint64
BELOW_INFINITY = np.float32(3.4028235e38)


GELU = re.findall(r"p = __fmaf_rn\(p, t, (\S+f)\);", TEXT)  # coefficients, the highest power first


def constant(literal: str) -> Any:
    """A number as the header writes it."""
    assert literal in TEXT, f"math.cuh has no {literal}"
    return F(literal.rstrip("f"))


def word(literal: str) -> Any:
    """An integer as the header writes it."""
    assert literal in TEXT, f"math.cuh has no {literal}"
    return int(literal.rstrip("ul"), 16)


# -- sine and cosine -------------------------------------------------------------------------------

WORDS = [0] + [
    word(w)
    for w in (
        "0xa2f9836eu",
        "0x4e441529u",
        "0xfc2757d1u",
        "0xf534ddc0u",
        "0xdb629599u",
        "0x3c439041u",
        "0xfe5163abu",
    )
]


def funnel(low: Array, high: Array, shift: Array) -> Array:
    pair = high.astype(W) << W(32) | low.astype(W)
    return (pair << shift.astype(W) >> W(32)).astype(W)


def turns_of(x: Array) -> Array:
    bits = x.view(U)
    at = (bits >> U(23) & U(255)) - U(120)
    shift = at & U(31)
    mantissa = ((bits & U(0x7FFFFF)) | U(0x800000)).astype(W)
    c = [np.array(WORDS, U)[np.minimum((at >> U(5)) + k, 7)] for k in range(4)]
    low = mantissa * funnel(c[3], c[2], shift)
    middle = mantissa * funnel(c[2], c[1], shift) + (low >> W(32))
    high = mantissa * funnel(c[1], c[0], shift) + (middle >> W(32))
    return high << W(32) | middle & W(0xFFFFFFFF)


def reduce_small(x: Array) -> tuple[Array, Array]:
    shift = constant("12582912.0f")
    whole = fused(x, constant("0.63661975f"), shift)
    n, r = whole - shift, x
    for part in ("1.570796251296997f", "7.549789415861596e-08f", "5.390302953474238e-15f"):
        r = fused(n, -constant(part), r)
    return r, whole.view(U)


def reduce_large(x: Array) -> tuple[Array, Array]:
    turns = turns_of(x)
    nearest = (turns + W(1 << 61)) >> W(62)
    rest = (turns << W(2)).view(np.int64)
    size = np.abs(rest).view(W)
    # Below 2**63 the float64 nearest to a number may be the next power of two, never a smaller one.
    zeros = 64 - np.frexp(size.astype(np.float64))[1].astype(np.int64)
    zeros += (size << zeros.astype(W)) >> W(63) == 0
    top = size << zeros.astype(W) >> W(32)
    angle = (top * W(word("0xc90fdaa2ull"))).astype(F)
    angle = angle * ((64 - zeros).astype(U) << U(23)).view(F)
    quarter = nearest.astype(U)
    angle = np.where((rest < 0) != (x < 0), -angle, angle)
    return angle, np.where(x < 0, U(0) - quarter, quarter)


def sine_of(r: Array, n: Array) -> Array:
    s = r * r
    a = fused(constant("-1.9515296e-4f"), s, constant("8.3321609e-3f"))
    a = fused(a, s, constant("-0.16666655f"))
    b = fused(constant("2.4433157e-5f"), s, constant("-1.3887316e-3f"))
    b = fused(b, s, constant("0.041666646f"))
    sine = fused(fused(a, s, F(0)), r, r)
    cosine = fused(fused(b, s, F(-0.5)), s, F(1))
    y = np.where(n & U(1), cosine, sine)
    return np.where(n & U(2), -y, y)


def near_multiples() -> Array:
    """The three numbers nearest to each multiple of pi / 2 for which the angle is reduced in three parts."""
    at = (np.arange(1, 41722) * (math.pi / 2)).astype(F)
    values = np.concatenate([at, np.nextafter(at, F(0)), np.nextafter(at, BELOW_INFINITY)])
    return values[values <= 65536]


RNG = np.random.default_rng(5)
SMALL = {
    "an eighth": np.linspace(-math.pi / 4, math.pi / 4, 400_001).astype(F),
    "near multiples": np.concatenate([near_multiples(), -near_multiples()]),
    "up to 65536": RNG.uniform(-65536, 65536, 400_000).astype(F),
    "tiny": np.exp2(RNG.uniform(-149, -10, 10_000)).astype(F),
}
ALL = np.exp2(RNG.uniform(16, 128, 400_000)).astype(F)


@pytest.mark.parametrize("place", SMALL)
@pytest.mark.parametrize(("name", "turn"), [("sin", 0), ("cos", 1)])
def test_the_sine_of_a_small_angle_is_within_two_units(name, turn, place):
    x = SMALL[place]
    r, n = reduce_small(x)
    wanted = exact(FUNCTIONS[name], x, f32)
    unit = np.spacing(np.abs(wanted).astype(F)).astype(np.float64)
    assert_within(sine_of(r, n + U(turn)), wanted, 2 * unit)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("name", "turn"), [("sin", 0), ("cos", 1)])
def test_the_sine_of_a_large_angle_is_within_two_units(name, turn, sign):
    # 2**89.something, the number nearest to a multiple of pi / 2 for its size among all of float32.
    worst = np.array([16367173.0 * 2.0**72], F)
    x = sign * np.concatenate([ALL[(ALL > 65536) & (ALL < BELOW_INFINITY)], worst])
    r, n = reduce_large(x)
    wanted = exact(FUNCTIONS[name], x, f32)
    unit = np.spacing(np.abs(wanted).astype(F)).astype(np.float64)
    assert_within(sine_of(r, n + U(turn)), wanted, 2 * unit)


def test_the_words_are_those_of_two_over_pi():
    # pi to 300 bits by Machin's formula in whole numbers.
    def arctangent_of_one_over(n: int, unit: int) -> int:
        total, term, k = 0, unit // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    unit = 1 << 400
    pi = 4 * (4 * arctangent_of_one_over(5, unit) - arctangent_of_one_over(239, unit))
    bits = (2 * unit << 224) // pi
    assert [bits >> 32 * (6 - k) & 0xFFFFFFFF for k in range(7)] == WORDS[1:]


def test_the_sine_of_minus_zero_is_minus_zero():
    r, n = reduce_small(np.array([-0.0, 0.0], F))
    assert np.signbit(sine_of(r, n)).tolist() == [True, False]


# -- activations -----------------------------------------------------------------------------------


def off(values: Any, units: float) -> Array:
    """Numbers rounded to f32 and moved by `units` in the last place; 0 and infinities stay, as on a GPU."""
    rounded = np.asarray(values).astype(F)
    moved = rounded.astype(np.float64) + units * np.spacing(np.abs(rounded)).astype(np.float64)
    moves = np.isfinite(rounded) & (rounded != 0)
    return np.where(moves, np.maximum(moved, 0), rounded).astype(F)


def double(x: Array) -> Array:
    return x.astype(np.float64)


def times_sigmoid(x: Array, v: Array, way: int) -> Array:
    e = off(np.exp(-np.abs(double(v))), 2 * way)
    reciprocal = off(1 / double(F(1) + e), way)
    return x * np.where(v < 0, e, F(1)) * reciprocal


def silu(x: Array, way: int) -> Array:
    bounded = np.maximum(x, constant("-128.0f"))
    return times_sigmoid(bounded, bounded, way)


def gelu_erf(x: Array, way: int) -> Array:
    z = np.minimum(np.abs(x), constant("16.0f"))
    t = off(1 / double(fused(constant("0.4f"), z, F(1))), way)
    p = np.full_like(t, constant("0.27235895f"))
    for c in GELU:
        p = fused(p, t, constant(c))
    tail = t * off(np.exp2(double(fused(-constant("0.72134752f") * z, z, p))), 2 * way)
    return fused(-z, tail, np.maximum(x, F(0)))


def gelu_tanh(x: Array, way: int) -> Array:
    bounded = np.maximum(x, constant("-16.0f"))
    factor = fused(constant("0.071354814f"), bounded * bounded, constant("1.5957691f"))
    return times_sigmoid(bounded, bounded * factor, way)


def softplus(x: Array, way: int) -> Array:
    e = off(np.exp(-np.abs(double(x))), 2 * way)
    return np.maximum(x, F(0)) + off(np.log1p(double(e)), way)


ACTIVATIONS: dict[str, Callable[[Array, int], Array]] = {
    "sigmoid": lambda x, way: times_sigmoid(np.ones_like(x), x, way),
    "silu": silu,
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "softplus": softplus,
}


@pytest.mark.parametrize("way", [-1, 1])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_keeps_its_error_whatever_cuda_s_functions_do_within_theirs(name, way):
    x = np.concatenate([np.linspace(-120, 120, 100_001), np.linspace(-12, 12, 50_001)]).astype(F)
    with np.errstate(all="ignore"):
        found = ACTIVATIONS[name](x, way)
    wanted = exact(FUNCTIONS[name], x, f32)
    f = FUNCTIONS[name]
    most = np.maximum(f.relative(double(x)) * np.abs(wanted), f.absolute)
    assert_within(found, wanted, most)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_of_what_is_not_finite(name):
    x = np.array([np.inf, -np.inf, np.nan], F)
    with np.errstate(all="ignore"):
        found = ACTIVATIONS[name](x, 0)
    assert np.array_equal(found, [1 if name == "sigmoid" else np.inf, 0, np.nan], equal_nan=True)
