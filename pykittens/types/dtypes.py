"""Element types: what one number is, in NumPy and on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type. Arithmetic on a 16-bit float is done in f32 and rounded once."""

    name: str
    bits: int
    kind: Literal["float", "int", "bool"]
    numpy: np.dtype[Any]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def compute(self) -> DType:
        """The type arithmetic on this one is carried out in."""
        return f32 if self.kind == "float" else self

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next number, 0 for exact types."""
        return float(ml_dtypes.finfo(self.numpy).eps) if self.is_float else 0.0  # type: ignore[no-untyped-call]

    @property
    def largest(self) -> float:
        """The largest finite number of a float."""
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]

    def represents(self, value: float) -> bool:
        """Whether a Python number is exactly or, for floats, up to rounding one of this type's."""
        match self.kind:
            case "float":
                return not math.isfinite(value) or abs(value) <= self.largest
            case "int":
                return float(value).is_integer() and -(2**31) <= value < 2**31
            case "bool":
                return value in (0, 1)


bf16 = DType("bf16", 16, "float", np.dtype(ml_dtypes.bfloat16))
f16 = DType("f16", 16, "float", np.dtype(np.float16))
f32 = DType("f32", 32, "float", np.dtype(np.float32))
int32 = DType("int32", 32, "int", np.dtype(np.int32))
bool_ = DType("bool", 8, "bool", np.dtype(np.bool_))

DTYPES = {d.name: d for d in (bf16, f16, f32, int32, bool_)}
