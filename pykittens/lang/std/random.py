"""Uniform random numbers from random bits."""

from __future__ import annotations

from pykittens.ir.combining import X
from pykittens.ir.op import Mismatch
from pykittens.ir.values import describe
from pykittens.ops.bits import bitwise_and, shift_right
from pykittens.ops.convert import to
from pykittens.ops.core import composed
from pykittens.ops.map import Registers
from pykittens.types.dtypes import f32, int32


@composed
def uniform(bits: X) -> X:
    """f32 numbers in [0, 1), multiples of 2**-24, from the upper 24 bits of int32 bits."""
    if not isinstance(bits, Registers) or bits.dtype != int32:
        raise Mismatch(
            f"`bits` must be int32 in registers, not {describe(bits)}",
            help="pk.random_bits(...) returns random bits",
        )
    result: X = to(bitwise_and(shift_right(bits, 8), 0xFFFFFF), f32) * 2.0**-24
    return result
