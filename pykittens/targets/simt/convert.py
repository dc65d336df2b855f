"""Conversions between element types."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.map import write
from pykittens.targets.source import scalar_type
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType

CONVERT = Lowerings()


@CONVERT.lower("to")
def lower_to(e: Emitter, call: Call) -> None:
    x = call.args["x"]
    (result,) = call.results
    convert = conversion(x.dtype, result.dtype)
    write(e, call, lambda i: convert.format(e.element(x, i, x)))


def conversion(source: DType, to: DType) -> str:
    """The conversion of one number between the types that the dtypes are computed in; packing rounds narrow results."""
    if to.kind == "bool":
        return "{} != 0"
    if source.is_float and to.is_int:
        # From float to 8 bits this function saturates; from 32 bits to 8 the packing wraps.
        return f"to_{to}({{}})"
    return "{}" if scalar_type(source) == scalar_type(to) else f"({scalar_type(to)})({{}})"
