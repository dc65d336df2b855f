"""Atomic stores: `op=` makes memory = memory op value in one step.

f32: add, max, min. f16, bf16: add, max, min. int32, int64: add, max, min; sums wrap. The order of stores to one
element is open, so sums of floats may differ in their last places from run to run. A NaN on either side stays. The
sum of f32 may take subnormal numbers for zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykittens.ir.op import Mismatch
from pykittens.ir.values import describe
from pykittens.ops.arguments import check_word
from pykittens.ops.map import computed, rounded
from pykittens.types.dtypes import DType

COMBINING: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


def check_combining(op: Any, dtype: DType) -> None:
    """Raise unless `op` is None or a way to combine elements of a dtype with those in memory."""
    if op is None:
        return
    check_word("op", op, *COMBINING)
    if dtype.bits < 16:
        raise Mismatch(
            f"`op` must be left out for {dtype}, as memory combines 16 bits or more in one step, not {describe(op)}",
            help="combine tiles in registers and store the result, or keep the tensor in f32 or int32",
        )


def combining(op: str | None) -> Callable[[Any, Any], Any] | None:
    """The NumPy meaning of `op`: what memory becomes, rounded once."""
    if op is None:
        return None
    function = COMBINING[op]
    return lambda old, new: rounded(function(*computed([old, new])), [old])
