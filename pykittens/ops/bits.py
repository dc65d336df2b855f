"""Operations on the bits of integers in two's complement. All of them wrap, on scalars, too.

On bools `&`, `|`, `^` and `~` are the logical operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.combining import Operand, X, binary
from pykittens.ir.op import ScalarMeaning
from pykittens.ops.core import op
from pykittens.ops.map import INT, MAP

_HINT = "bit operations take integers and bools: convert with `.to(pk.int32)`, or compare"


def _bitwise(function: Any, c: str, kinds: tuple[str, ...] = ("int", "bool")) -> ScalarMeaning:
    return ScalarMeaning(function, c, kinds=kinds, hint=_HINT, wraps=True)


def _inverted(a: Any) -> Any:
    return not a if isinstance(a, bool) else ~a


def _shifted_left(a: Any, n: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a << n if 0 <= n < 64 else 0
    inside = (n >= 0) & (n < 8 * a.dtype.itemsize)
    return np.where(inside, a << np.where(inside, n, 0), 0)


def _shifted_right(a: Any, n: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a >> (n if 0 <= n < 64 else 63)
    last = 8 * a.dtype.itemsize - 1
    return a >> np.where((n >= 0) & (n <= last), n, last)


@op(family=MAP, scalar=_bitwise(lambda a, b: a & b, "{0} & {1}"), operator="&")
@binary
def bitwise_and(a: Operand, b: Operand) -> Any:
    """The bits that are set in both; of bools, whether both are true."""


@op(family=MAP, scalar=_bitwise(lambda a, b: a | b, "{0} | {1}"), operator="|")
@binary
def bitwise_or(a: Operand, b: Operand) -> Any:
    """The bits that are set in one or both; of bools, whether at least one is true."""


@op(family=MAP, scalar=_bitwise(lambda a, b: a ^ b, "{0} ^ {1}"), operator="^")
@binary
def bitwise_xor(a: Operand, b: Operand) -> Any:
    """The bits that are set in exactly one; of bools, whether exactly one is true."""


@op(family=MAP, scalar=_bitwise(_inverted, "inverted({0})"), operator="~")
def bitwise_not(a: X) -> X:
    """The bits that are not set; of a bool, its negation."""


@op(family=MAP, scalar=_bitwise(_shifted_left, "shift_left({0}, {1})", INT), operator="<<")
@binary
def shift_left(a: Operand, n: Operand) -> Any:
    """a with its bits shifted left by n; 0 if n is negative or at least the number of bits (as PTX `shl`)."""


@op(family=MAP, scalar=_bitwise(_shifted_right, "shift_right({0}, {1})", INT), operator=">>")
@binary
def shift_right(a: Operand, n: Operand) -> Any:
    """a with its bits shifted right by n, filled with the sign, or for uint8 with 0; all bits are the fill if n is
    negative or at least the number of bits (as PTX `shr`)."""
