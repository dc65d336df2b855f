"""Element types, and the conversions between them in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np

Kind = Literal["float", "int", "bool"]


@dataclass(frozen=True)
class DType:
    """An element type. Arithmetic on narrow types is done in their `compute` type and rounded once."""

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype[Any]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def word(self) -> str:
        """The name of the dtype in a kernel."""
        return f"pk.{self.name}{'_' * (self.kind == 'bool')}"

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def packing(self) -> int:
        """Elements of a tile or vector in one register of 32 bits."""
        return 1 if self.kind == "bool" else max(32 // self.bits, 1)

    @property
    def compute(self) -> DType:
        """The type in which arithmetic is computed: f32 for floats, int32 for narrow integers."""
        if self.is_float:
            return f32
        return int32 if self.is_int and self.bits < 32 else self

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number, 0 for exact types."""
        return float(ml_dtypes.finfo(self.numpy).eps) if self.is_float else 0.0  # type: ignore[no-untyped-call]

    @cached_property
    def least(self) -> float:
        """The smallest finite number, an int for integers."""
        return -self.largest if self.is_float else int(np.iinfo(self.numpy).min)

    @cached_property
    def largest(self) -> float:
        """The largest finite number, an int for integers."""
        if self.is_float:
            return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]
        return int(np.iinfo(self.numpy).max)

    @property
    def has_infinity(self) -> bool:
        """Whether the dtype has -inf and inf."""
        return self.is_float and self is not e4m3

    def wrapped(self, value: Any) -> Any:
        """The whole numbers of this integer type that are equal to these modulo 2**bits."""
        least = int(self.least)
        return (value - least) % 2**self.bits + least

    def represents(self, value: float) -> bool:
        """Whether the dtype has a Python number, for floats up to rounding."""
        match self.kind:
            case "float" | "int" if isinstance(value, int) and value.bit_length() > 64:
                return self.is_float and abs(value) <= self.largest
            case "float":
                if math.isinf(value):
                    return self.has_infinity
                return math.isnan(value) or abs(value) <= self.largest
            case "int":
                return float(value).is_integer() and self.least <= value <= self.largest
            case "bool":
                return value in (0, 1)


bf16 = DType("bf16", 16, "float", np.dtype(ml_dtypes.bfloat16))
f16 = DType("f16", 16, "float", np.dtype(np.float16))
f32 = DType("f32", 32, "float", np.dtype(np.float32))
e4m3 = DType("e4m3", 8, "float", np.dtype(ml_dtypes.float8_e4m3fn))
e5m2 = DType("e5m2", 8, "float", np.dtype(ml_dtypes.float8_e5m2))
int8 = DType("int8", 8, "int", np.dtype(np.int8))
uint8 = DType("uint8", 8, "int", np.dtype(np.uint8))
int32 = DType("int32", 32, "int", np.dtype(np.int32))
int64 = DType("int64", 64, "int", np.dtype(np.int64))
bool_ = DType("bool", 8, "bool", np.dtype(np.bool_))

DTYPES = {d.name: d for d in (bf16, f16, f32, e4m3, e5m2, int8, uint8, int32, int64, bool_)}
OF_NUMPY = {d.numpy: d for d in DTYPES.values()}


def converted(values: Any, dtype: DType) -> Any:
    """An array converted to another dtype.

    To a float: rounded to nearest, ties to even; 8-bit floats saturate, infinities included, and keep NaN. Float to
    int: truncated, saturated, NaN to 0. Int to int: modulo 2 to the power of the bits.
    """
    array = np.asarray(values)
    if array.dtype == dtype.numpy:
        return array
    if dtype.kind == "bool":
        return array != 0
    is_float = array.dtype.kind == "f" or OF_NUMPY.get(array.dtype, bool_).is_float
    if dtype.is_float:
        wide = array if array.dtype == np.float64 else array.astype(np.float32)
        if dtype.bits == 8:
            wide = np.clip(wide, dtype.least, dtype.largest)
        return wide.astype(dtype.numpy)
    if not is_float:
        return array.astype(dtype.numpy)
    # float64 has every float32 and both ends of int32, but rounds up the upper end of int64, which is set afterwards.
    wide = np.nan_to_num(np.trunc(array.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = np.clip(wide, float(dtype.least), np.nextafter(float(dtype.largest) + 1, 0))
    whole = inside.astype(np.int64)
    return np.where(wide >= float(dtype.largest), np.int64(dtype.largest), whole).astype(
        dtype.numpy
    )
