"""Fourier transforms of a few tiles, element by element: butterflies with constants, at shifted points.

    z_j = sum over a of exp(-2 pi i a (j + shift) / R) x_a

of R = 2, 4, 8, ... tiles. With a and a + R/2 taken together it is x_a +- exp(-pi i shift) x_(a + R/2): the points of
even j are those of the sums, at half of the shift, and the points of odd j those of the differences, at half of
shift + 1. Source: Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965.
"""

from __future__ import annotations

import cmath
from typing import Any

from pykittens.lang.std.complex_tile import ComplexTile


def points_of(x: list[Any], shift: float) -> list[Any]:
    """The points of R tiles, which are complex, or real if the shift is not 0."""
    if len(x) == 1:
        return x
    half = len(x) // 2
    pairs = list(zip(x[:half], (turned(b, -shift / 2) for b in x[half:]), strict=True))
    even = points_of([_sum(a, b) for a, b in pairs], shift / 2)
    odd = points_of([_difference(a, b) for a, b in pairs], (shift + 1) / 2)
    return [z for both in zip(even, odd, strict=True) for z in both]


def from_points(z: list[Any], shift: float) -> list[Any]:
    """R times the complex tiles of which these are the points."""
    if len(z) == 1:
        return z
    even, odd = from_points(z[::2], shift / 2), from_points(z[1::2], (shift + 1) / 2)
    pairs = list(zip(even, odd, strict=True))
    return [a + b for a, b in pairs] + [turned(a - b, shift / 2) for a, b in pairs]


def turned(z: Any, turns: float) -> Any:
    """z exp(2 pi i turns), without products where that is 1, -1, i or -i."""
    quarters = 4 * turns
    if isinstance(z, ComplexTile) and quarters == int(quarters):
        ways = z, ComplexTile(-z.im, z.re), -z, ComplexTile(z.im, -z.re)
        return ways[int(quarters) % 4]
    root = cmath.exp(2j * cmath.pi * turns)
    if not isinstance(z, ComplexTile):
        return ComplexTile(z * root.real, z * root.imag)
    return ComplexTile(z.re * root.real - z.im * root.imag, z.re * root.imag + z.im * root.real)


def _sum(a: Any, b: ComplexTile) -> ComplexTile:
    return a + b if isinstance(a, ComplexTile) else ComplexTile(b.re + a, b.im)


def _difference(a: Any, b: ComplexTile) -> ComplexTile:
    return a - b if isinstance(a, ComplexTile) else ComplexTile(a - b.re, -b.im)
