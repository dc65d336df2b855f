"""Comparisons element by element, and `where`, which selects by a bool."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.combining import Operand, binary, ternary
from pykittens.ir.op import Mismatch, ScalarMeaning
from pykittens.ir.values import Value, describe
from pykittens.ops.core import op
from pykittens.ops.map import (
    ANY,
    COMPARED,
    MAP,
    NUMBER,
    Registers,
    RegisterType,
    common_dtype,
    computed,
    loaded,
    rounded,
    together,
)
from pykittens.types.dtypes import bool_
from pykittens.types.tiles import with_dtype


def _comparison(function: Any, c: str, kinds: tuple[str, ...] = NUMBER) -> ScalarMeaning:
    return ScalarMeaning(function, c, kinds=kinds, truth=True)


@op(family=MAP, scalar=_comparison(lambda a, b: a < b, "{0} < {1}"), operator="<")
@binary
def less(a: Operand, b: Operand) -> Any:
    """a < b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a <= b, "{0} <= {1}"), operator="<=")
@binary
def less_equal(a: Operand, b: Operand) -> Any:
    """a <= b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a > b, "{0} > {1}"), operator=">")
@binary
def greater(a: Operand, b: Operand) -> Any:
    """a > b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a >= b, "{0} >= {1}"), operator=">=")
@binary
def greater_equal(a: Operand, b: Operand) -> Any:
    """a >= b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a == b, "{0} == {1}", ANY), operator="==")
@binary
def equal(a: Operand, b: Operand) -> Any:
    """a == b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a != b, "{0} != {1}", ANY), operator="!=")
@binary
def not_equal(a: Operand, b: Operand) -> Any:
    """a != b, as bool."""


@op(by_element=True)
@ternary
def where(condition: Operand, a: Operand, b: Operand) -> Any:
    """a where the condition is true, else b. One of `a` and `b` may be a Python number; the three are broadcast."""


@where.type
def _where_type(condition: Any, a: Any, b: Any) -> RegisterType:
    if not isinstance(condition, Registers) or condition.dtype != bool_:
        raise Mismatch(
            f"`condition` must be a bool in registers, not {describe(condition)}",
            help=COMPARED if isinstance(condition, Registers) else loaded(condition, "condition"),
        )
    if not any(isinstance(x, Value) for x in (a, b)):
        raise Mismatch(
            f"`a` or `b` must be a value of the kernel, not {describe(a)} and {describe(b)}",
            help="condition.to(dtype) is 1 and 0; pk.full(dtype, value, rows, cols) makes a tile of a number",
        )
    dtype = common_dtype({"a": a, "b": b})
    return with_dtype(together({"condition": condition, "a": a, "b": b}), dtype)


@where.numpy
def _where_numpy(condition: Any, a: Any, b: Any) -> Any:
    x, y = computed([a, b])
    return rounded(np.where(condition, x, y), [a, b])
