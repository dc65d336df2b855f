"""Conversions between element types."""

from __future__ import annotations

from typing import Any

from pykittens.ir.combining import X
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import describe
from pykittens.ops.arguments import check_dtype
from pykittens.ops.core import op
from pykittens.ops.map import Registers, RegisterType, loaded
from pykittens.types.dtypes import DType, converted
from pykittens.types.tiles import with_dtype


@op(operator="to", effects=Effects(narrows=True), by_element=True)
def to(x: X, dtype: DType) -> X:
    """x with each element converted to `dtype`: float to float and int to float round to nearest, ties to even.

    Conversions to fp8 saturate, infinities included, and keep NaN. Float to int truncates and saturates, and NaN gives
    0. Int to a narrower int wraps. To bool: whether the element is not 0.
    """


@to.type
def _to_type(x: Any, dtype: Any) -> RegisterType:
    if not isinstance(x, Registers):
        raise Mismatch(f"`x` must be in registers, not {describe(x)}", help=loaded(x, "x"))
    check_dtype("dtype", dtype)
    return with_dtype(x.type, dtype)


@to.numpy
def _to_numpy(x: Any, dtype: DType) -> Any:
    return converted(x, dtype)[()]
