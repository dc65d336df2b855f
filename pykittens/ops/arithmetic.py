"""Arithmetic element by element. Integers of tiles and vectors wrap; a scalar that overflows is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import ScalarMeaning
from pykittens.ops.core import op
from pykittens.ops.map import FLOAT, MAP, Operand, computed, float_map, in_double, rounded


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a, b: a + b, "{0} + {1}", wrapping="wrapping_add({0}, {1})"),
    operator="+",
)
def add(a: Operand, b: Operand) -> Any:
    """a + b."""


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a, b: a - b, "{0} - {1}", wrapping="wrapping_sub({0}, {1})"),
    operator="-",
)
def sub(a: Operand, b: Operand) -> Any:
    """a - b."""


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a, b: a * b, "{0} * {1}", wrapping="wrapping_mul({0}, {1})"),
    operator="*",
)
def mul(a: Operand, b: Operand) -> Any:
    """a * b."""


@op(
    family=MAP,
    scalar=ScalarMeaning(
        lambda a, b: a / b,
        "{0} / {1}",
        kinds=FLOAT,
        hint="integers are divided with `//`, which floors",
    ),
    operator="/",
)
def div(a: Operand, b: Operand) -> Any:
    """a / b, rounded once. Where b is one value for many of a (a vector beside a tile, a scalar beside either) it is
    a * (1 / b): one reciprocal each, within 1.5 units in the last place of the quotient for |b| from 2**-126 to
    2**126."""


@div.numpy
def _div(a: Any, b: Any) -> Any:
    x, y = computed([a, b])
    if np.size(y) < np.broadcast(x, y).size:
        return rounded(x * (np.float32(1) / y), [a, b])
    return rounded(x / y, [a, b])


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a: -a, "-{0}", wrapping="wrapping_neg({0})"),
    operator="neg",
)
def neg(a: Operand) -> Any:
    """-a; the least integer of a tile or vector stays."""


@op(family=MAP, scalar=ScalarMeaning(np.abs, "absolute({0})"), operator="abs")
def abs_(a: Operand) -> Any:
    """|a|; the least integer of a tile or vector stays."""


_power = in_double(np.power)


@op(
    family=MAP,
    scalar=float_map(
        lambda a, b: _power(a, b),
        "pow_accurate({0}, {1})",
        hint="an integer to a power is a product, as in `x * x`; 2 to the power n is `1 << n`",
    ),
    operator="**",
)
def pow_(a: Operand, b: Operand) -> Any:
    """a to the power b: within 4 units in the last place of the rounded result; 1 where b is 0 or a is 1, NaN where
    a < 0 and b is no whole number. Source: CUDA's powf; for b = 2, 3, 4 of Python products, within 2 units."""


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once: the sum in float64 is rounded to odd, so that the second rounding is right.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd", 2008.
    """
    x, y, z = (np.asarray(v, np.float64) for v in (a, b, c))
    product = x * y  # exact: 48 bits
    total = np.asarray(product + z)
    part = total - product
    error = (product - (total - part)) + (z - part)
    even = total.view(np.int64) & 1 == 0
    inexact = np.isfinite(total) & (error != 0) & even
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    # A sum that was rounded away from the exact one has an odd neighbour on the other side; else it is odd already.
    return np.where(inexact, odd, total).astype(np.float32)


@op(
    family=MAP,
    scalar=float_map(
        lambda a, b, c: fused(a, b, c) if isinstance(a, np.ndarray) else a * b + c,
        "fma_rounded({0}, {1}, {2})",
        hint="integers need no rounding: `a * b + c`",
    ),
)
def fma(a: Operand, b: Operand, c: Operand) -> Any:
    """a * b + c, rounded once to f32 and once to the dtype."""


@op(family=MAP, scalar=ScalarMeaning(np.maximum, "max_nan({0}, {1})"), operator="maximum")
def maximum(a: Operand, b: Operand) -> Any:
    """The larger of a and b; NaN if one of them is."""


@op(family=MAP, scalar=ScalarMeaning(np.minimum, "min_nan({0}, {1})"), operator="minimum")
def minimum(a: Operand, b: Operand) -> Any:
    """The smaller of a and b; NaN if one of them is."""


@op(
    family=MAP,
    scalar=ScalarMeaning(
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
        "min_nan(max_nan({0}, {1}), {2})",
    ),
)
def clamp(x: Operand, low: Operand, high: Operand) -> Any:
    """x where it lies from low to high, else the nearer of them (high where low > high); NaN if one of the three is."""
