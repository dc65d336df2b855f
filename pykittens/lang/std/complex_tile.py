"""Complex tiles: a pair of tiles, real and imaginary part, with the arithmetic of complex numbers.

Each operation is written with those of real tiles, so it costs what these cost: a product of two complex matrices is
four real products. A complex tile of register tiles is a value of the kernel; one of shared tiles is an operand of
products, as real tiles are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, SharedTile, describe
from pykittens.ops.convert import to
from pykittens.ops.core import composed
from pykittens.ops.memory import load, store
from pykittens.ops.mma import mma_AB, mma_ABt
from pykittens.types.dtypes import DType

Part = Any  # a register tile, or what combines with one: a vector, a scalar or a Python number


@dataclass(frozen=True, eq=False)
class ComplexTile:
    """re + i im. Both parts have one shape and one dtype."""

    re: Any
    im: Any

    @composed
    def __add__(self, other: ComplexTile) -> ComplexTile:
        other = _complex("other", other)
        return ComplexTile(self.re + other.re, self.im + other.im)

    @composed
    def __sub__(self, other: ComplexTile) -> ComplexTile:
        other = _complex("other", other)
        return ComplexTile(self.re - other.re, self.im - other.im)

    def __mul__(self, other: ComplexTile | Part) -> ComplexTile:
        """The product element by element, with a complex tile or with anything that a real tile combines with."""
        if not isinstance(other, ComplexTile):
            return ComplexTile(self.re * other, self.im * other)
        re = self.re * other.re - self.im * other.im
        return ComplexTile(re, self.re * other.im + self.im * other.re)

    __rmul__ = __mul__

    def __neg__(self) -> ComplexTile:
        return ComplexTile(-self.re, -self.im)

    def conj(self) -> ComplexTile:
        """re - i im."""
        return ComplexTile(self.re, -self.im)

    @composed
    def times_conj(self, other: ComplexTile) -> ComplexTile:
        """self * other.conj(), without a negation."""
        other = _complex("other", other)
        re = self.re * other.re + self.im * other.im
        return ComplexTile(re, self.im * other.re - self.re * other.im)

    def to(self, dtype: DType) -> ComplexTile:
        """Both parts, converted to a dtype."""
        return ComplexTile(to(self.re, dtype), to(self.im, dtype))

    def loaded(self) -> ComplexTile:
        """The register tiles of a pair of shared tiles."""
        return ComplexTile(load(self.re), load(self.im))

    @composed
    def store(self, value: ComplexTile) -> None:
        """Write register tiles to a pair of shared tiles."""
        value = _complex("value", value)
        store(self.re, value.re)
        store(self.im, value.im)


def _complex(name: str, x: Any, help: str | None = None) -> ComplexTile:
    """The operand; an error unless it is a complex tile."""
    if isinstance(x, ComplexTile):
        return x
    raise Mismatch(f"`{name}` must be a complex tile, not {describe(x)}", help=help)


def side_by_side(tile: RegTile) -> ComplexTile:
    """The complex tile whose parts are the halves of a tile's columns."""
    half = tile.cols // 2
    return ComplexTile(tile[:, :half], tile[:, half:])


@composed
def complex_mma_AB(
    a: ComplexTile | RegTile, b: ComplexTile | SharedTile, acc: ComplexTile | None = None
) -> ComplexTile:
    """a @ b + acc of matrices of which at least one is complex: `b` shared, `a` in registers, or shared if one is real.

    A real operand takes two products, two complex ones take four, of which one is with -a.im in registers.
    """
    re, im = (None, None) if acc is None else (_complex("acc", acc).re, acc.im)
    if not isinstance(a, ComplexTile):
        b = _complex("b", b, help="pk.mma_AB is the product of real matrices")
        return ComplexTile(mma_AB(a, b.re, re), mma_AB(a, b.im, im))
    if not isinstance(b, ComplexTile):
        return ComplexTile(mma_AB(a.re, b, re), mma_AB(a.im, b, im))
    re, im = mma_AB(a.re, b.re, re), mma_AB(a.re, b.im, im)
    return ComplexTile(mma_AB(-a.im, b.im, re), mma_AB(a.im, b.re, im))


def real_form_mma_AB(a: ComplexTile, b: SharedTile) -> ComplexTile:
    """a @ B of a complex k x n matrix B in its real form, `b` = [[B.re, B.im], [-B.im, B.re]] of 2k x 2n.

    Two products of twice the width, in place of four: instructions of 2n columns read `a` half as often.
    """
    halves = b.tiles(b.rows // 2, b.cols)
    return side_by_side(mma_AB(a.im, halves[1, 0], mma_AB(a.re, halves[0, 0])))


def real_form_mma_ABh(a: ComplexTile, b: SharedTile) -> ComplexTile:
    """a @ B^H, with the conjugate transpose of a complex n x k matrix B in its real form, as of real_form_mma_AB."""
    halves = b.tiles(b.rows, b.cols // 2)
    return side_by_side(mma_ABt(a.im, halves[0, 1], mma_ABt(a.re, halves[0, 0])))
