"""Arithmetic element by element. Integers in tiles and vectors wrap; a scalar that overflows is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.combining import Operand, X, binary, ternary
from pykittens.ir.op import ScalarMeaning
from pykittens.ops.core import op
from pykittens.ops.map import MAP, computed, float_map, in_double, rounded


def _wrapping(function: Any, c: str, name: str) -> ScalarMeaning:
    """The meaning of an operation whose result wraps for the integers of tiles and vectors."""
    return ScalarMeaning(function, c, wrapping=f"wrapping_{name}({{0}}, {{1}})")


@op(
    family=MAP,
    scalar=_wrapping(lambda a, b: a + b, "{0} + {1}", "add"),
    operator="+",
    linear=(("a", "b"),),
)
@binary
def add(a: Operand, b: Operand) -> Any:
    """a + b."""


@op(
    family=MAP,
    scalar=_wrapping(lambda a, b: a - b, "{0} - {1}", "sub"),
    operator="-",
    linear=(("a", "b"),),
)
@binary
def sub(a: Operand, b: Operand) -> Any:
    """a - b."""


@op(
    family=MAP,
    scalar=_wrapping(lambda a, b: a * b, "{0} * {1}", "mul"),
    operator="*",
    linear=(("a",), ("b",)),
)
@binary
def mul(a: Operand, b: Operand) -> Any:
    """a * b."""


@op(
    family=MAP,
    scalar=float_map(lambda a, b: a / b, "{0} / {1}", hint="use `//` for integers; it rounds down"),
    operator="/",
    linear=(("a",),),
)
@binary
def div(a: Operand, b: Operand) -> Any:
    """a / b, rounded once. If one value of b divides several of a (a tile / a vector, or either / a scalar), it is
    a * (1 / b), with one reciprocal per value of b: within 1.5 units in the last place of the quotient for |b| from
    2**-126 to 2**126."""


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
    linear=(("a",),),
)
def neg(a: X) -> X:
    """-a; in tiles and vectors the smallest integer stays as it is."""


@op(family=MAP, scalar=ScalarMeaning(np.abs, "absolute({0})"), operator="abs")
def abs_(a: X) -> X:
    """|a|; in tiles and vectors the smallest integer stays as it is."""


_power = in_double(np.power)


@op(
    family=MAP,
    scalar=float_map(
        lambda a, b: _power(a, b),
        "pow_accurate({0}, {1})",
        hint="write a power of an integer as a product, `x * x`; 2 to the power n is `1 << n`",
    ),
    operator="**",
)
@binary
def pow_(a: Operand, b: Operand) -> Any:
    """a to the power b, within 4 units in the last place of the rounded result: 1 if b is 0 or a is 1, NaN if a < 0 and
    b is not a whole number. Source: CUDA's powf. If b is the Python number 2, 3 or 4, it is a product, within 2
    units."""


# The bits of a float64 that a float32 lacks, half of the last place of a float32, and its smallest normal number.
_CUT, _HALF, _NORMAL = 2**29 - 1, 2**28, np.float32(2**-126)


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once.

    The sum in float64, rounded again, is right unless it lies half-way between two float32 or is subnormal. Then it is
    first rounded to odd, so that rounding it again is exact. Source: Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums: proved algorithms using rounding to odd", 2008.
    """
    x, y, z = (np.asarray(v, np.float64) for v in (a, b, c))
    product = x * y  # exact: 48 bits
    total = np.asarray(product + z)
    found = total.astype(np.float32)
    unsure = (total.view(np.int64) & _CUT) == _HALF
    unsure |= np.abs(found) <= _NORMAL
    if (at := np.flatnonzero(unsure)).size:
        parts = (np.broadcast_to(v, total.shape).reshape(-1)[at] for v in (product, z, total))
        np.put(found, at, _rounded_to_odd(*parts))
    return found


def _rounded_to_odd(product: Any, z: Any, total: Any) -> Any:
    """product + z of float64, of which total is the sum rounded to nearest, rounded to the odd neighbour if inexact."""
    part = total - product
    error = (product - (total - part)) + (z - part)
    # An inexact sum with an even last bit has its odd neighbour on the side of the error.
    moved = np.isfinite(total) & (error != 0) & (total.view(np.int64) & 1 == 0)
    if not moved.any():
        return total
    return np.where(moved, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


@op(
    family=MAP,
    scalar=float_map(
        lambda a, b, c: fused(a, b, c) if isinstance(a, np.ndarray) else a * b + c,
        "fma_rounded({0}, {1}, {2})",
        hint="use `a * b + c` for integers",
    ),
    linear=(("a", "c"), ("b", "c")),
)
@ternary
def fma(a: Operand, b: Operand, c: Operand) -> Any:
    """a * b + c, rounded once to f32 and once to the dtype."""


@op(family=MAP, scalar=ScalarMeaning(np.maximum, "max_nan({0}, {1})"), operator="maximum")
@binary
def maximum(a: Operand, b: Operand) -> Any:
    """The larger of a and b; NaN if one of them is NaN."""


@op(family=MAP, scalar=ScalarMeaning(np.minimum, "min_nan({0}, {1})"), operator="minimum")
@binary
def minimum(a: Operand, b: Operand) -> Any:
    """The smaller of a and b; NaN if one of them is NaN."""


@op(
    family=MAP,
    scalar=ScalarMeaning(
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
        "min_nan(max_nan({0}, {1}), {2})",
    ),
)
def clamp(x: X, low: Operand, high: Operand) -> X:
    """min(max(x, low), high): x limited to the range from low to high; NaN if one of the three is NaN."""
