"""Atomic stores: with `op="add"`, "max" or "min", memory = memory op value in one step.

The dtypes are f32, f16, bf16, int32 and int64; sums of integers wrap. The order of stores to one element is undefined,
so sums of floats may differ in their last bits from run to run. A NaN on either side gives NaN. Sums of f32 may treat
subnormal numbers as zero.
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
            f"`op` must be left out for {dtype}, as atomics take 16 bits or more, not {describe(op)}",
            help="combine tiles in registers and store the result, or make the tensor f32 or int32",
        )


def combining(op: str | None) -> Callable[[Any, Any], Any] | None:
    """The NumPy meaning of `op`: the new value of memory, rounded once."""
    if op is None:
        return None
    function = COMBINING[op]
    return lambda old, new: rounded(function(*computed([old, new])), [old])
