"""Conversions between element types."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.core import op
from pykittens.ops.map import loaded
from pykittens.types.dtypes import DType, converted
from pykittens.types.tiles import RT, RV, SCALAR, with_dtype


@op(operator="to", effects=Effects(narrows=True))
def to(x: Any, dtype: DType) -> Any:
    """x with each element rounded to the nearest value of `dtype`, ties to even.

    To fp8 it saturates, infinities included, and NaN stays. Float to int truncates and saturates, NaN gives 0; int to
    a narrower int wraps. To bool: whether it is not 0.
    """


@to.type
def _to_type(x: Any, dtype: Any) -> RT | RV | SCALAR:
    if not isinstance(x, RegTile | RegVector | Scalar):
        raise Mismatch(f"`x` must be in registers, not {describe(x)}", help=loaded(x, "x"))
    if not isinstance(dtype, DType):
        raise Mismatch(f"`dtype` must be a dtype such as pk.bf16, not {describe(dtype)}")
    return with_dtype(x.type, dtype)


@to.numpy
def _to_numpy(x: Any, dtype: DType) -> Any:
    return converted(x, dtype)[()]
