"""Parts of the kernels of long convolutions: transforms of a tile of sequences, and the scales of what is rounded.

What tensor cores multiply is rounded to f16, whose numbers are eight times as fine as those of bf16 and do not reach as
far. So sequences are divided by a power of two before, which rounds nothing, and results are multiplied by it. The
transforms keep sums of squares, so no element of a transform is above sqrt(2 M) times the largest of M elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.ir.values import RegTile, SharedTile
from pykittens.kernels.long_conv.tables import COLS
from pykittens.lang.std.complex_tile import (
    ComplexTile,
    complex_mma_AB,
    real_form_mma_AB,
    real_form_mma_ABh,
)

# The power of two to which sequences are scaled: f16 holds the sum of 2^20 elements, divided by 2^10.
LARGEST = 2
FARTHEST = 2.0**120  # from 1, of the largest element of a tile that is scaled to 2^LARGEST


@dataclass(frozen=True, eq=False)
class Transform:
    """The matrices of a transform, and memory for a tile of it: a group's own.

    left: a complex register tile, or a pair of shared tiles if no complex tiles come in. twiddle: one of both, too.
    right: a shared tile in real form. memory: a complex pair of shared tiles.
    """

    left: ComplexTile
    twiddle: ComplexTile
    right: Any
    memory: ComplexTile

    def forward(self, x: Any) -> ComplexTile:
        """The transform of a tile, real or complex: in f32, of what is rounded to f16."""
        return real_form_mma_AB(self.rows_forward(x).to(pk.f16), self.right)

    def forward_of_memory(self) -> ComplexTile:
        """The transform of the complex tile that memory holds."""
        a = complex_mma_AB(self.left, self.memory) * self._factors()
        return real_form_mma_AB(a.to(pk.f16), self.right)

    def inverse(self, x: ComplexTile, is_real: bool) -> ComplexTile:
        """The tile of which this is the transform; without its imaginary part if `is_real`."""
        return self.rows_inverse(real_form_mma_ABh(x.to(pk.f16), self.right), is_real)

    def rows_forward(self, x: Any) -> ComplexTile:
        """The part of the transform that is a product from the left, and the twiddle factors."""
        self._publish(x)
        is_complex = isinstance(x, ComplexTile)
        a = complex_mma_AB(self.left, self.memory if is_complex else self.memory.re)
        return a * self._factors()

    def rows_inverse(self, x: ComplexTile, is_real: bool) -> ComplexTile:
        """The inverse of `rows_forward`; without its imaginary part if `is_real`."""
        self._publish(x.times_conj(self._factors()))
        left, e = self.left, self.memory
        if not is_real and isinstance(left.re, RegTile):
            return complex_mma_AB(left.conj(), e)
        re = pk.mma_AB(left.im, e.im, pk.mma_AB(left.re, e.re))
        return ComplexTile(
            re, None if is_real else pk.mma_AB(left.re, e.im) - pk.mma_AB(left.im, e.re)
        )

    def _factors(self) -> ComplexTile:
        """The twiddle factors in f32."""
        is_shared = isinstance(self.twiddle.re, SharedTile)
        return (self.twiddle.loaded() if is_shared else self.twiddle).to(pk.f32)

    def _publish(self, x: Any) -> None:
        """Write a tile to memory in f16, once the products before have read it."""
        pk.mma_wait()
        pk.sync()
        if isinstance(x, ComplexTile):
            self.memory.store(x.to(pk.f16))
        else:
            pk.store(self.memory.re, x.to(pk.f16))
        pk.fence_async()
        pk.sync()


def matrix_of(parts: Any) -> ComplexTile:
    """The complex tile that a tensor of a real and an imaginary part holds."""
    return ComplexTile(*(pk.load(parts[i, 0, 0], rows=COLS, cols=COLS) for i in range(2)))


def scales_of(largest: Any) -> tuple[Any, Any]:
    """The power of two with which elements up to `largest` come to about 2^LARGEST, and the one that takes it back."""
    within = pk.clamp(largest, 1 / FARTHEST, FARTHEST)
    power = LARGEST - pk.log2(within).to(pk.int32).to(pk.f32)
    return pk.exp2(power), pk.exp2(-power)


def largest_of(x: Any) -> Any:
    """The largest magnitude of an element of a tile, or of a part of one of a complex tile."""
    if isinstance(x, ComplexTile):
        return pk.max(pk.maximum(pk.abs(x.re), pk.abs(x.im)))
    return pk.max(pk.abs(x))
