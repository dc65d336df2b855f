"""An emitted program: its text, its parameters, and how names and numbers are written in C++."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pykittens.ir.text import Names
from pykittens.ir.values import Value
from pykittens.types.dtypes import DType

C_TYPES = {"f32": "float", "int32": "int", "bool": "bool", "bf16": "u32", "f16": "u32"}
# Words of C++ and CUDA, and the names that lowerings give to variables of their own.
RESERVED = (
    "auto bool break case catch char class const constexpr continue default delete do double else enum explicit "
    "export extern false float for friend goto if inline int long mutable namespace new operator private protected "
    "public register return short signed sizeof static struct switch template this throw true try typedef typename "
    "union unsigned using virtual void volatile while and or not xor asm main NAN INFINITY NULL u32 u64 i64 "
    "TensorMap DEVICE UNROLL NO_UNROLL threadIdx blockIdx blockDim gridDim warpSize shared smem lane warp thread "
    "warpgroup warp_of_block rank task turn band height place section width head peer i at_row inside inverse "
    "partial matrix_a matrix_b min max abs exp log"
).split()


class CNames(Names):
    """Names that C++ takes: Python's may hold letters it does not know."""

    def __call__(self, value: Value) -> str:
        if value not in self.names and not value.name.isascii():
            value.name = re.sub(r"[^A-Za-z0-9_]", "_", value.name)
        return super().__call__(value)


@dataclass(frozen=True)
class MapSlot:
    """A tensor map parameter: a box of a tensor, in elements, and the swizzle it lands with."""

    tensor: str
    rows: int
    cols: int
    swizzle: int


@dataclass(frozen=True)
class Slot:
    """A plain parameter: a tensor's address, an extent or a stride of it, or a scalar argument."""

    kind: Literal["pointer", "extent", "stride", "scalar"]
    argument: str
    axis: int = 0
    dtype: DType | None = None


@dataclass
class Source:
    """The emitted program and what a launch of it needs. shared_bytes: dynamic shared memory."""

    name: str
    text: str
    threads: int
    shared_bytes: int
    maps: list[MapSlot]
    slots: list[Slot]
    budgets: Sequence[tuple[str, int | None]] = ()


def float_literal(value: float) -> str:
    """A float as a C++ literal that reads back exactly."""
    if value != value:
        return "as_float(0x7fffffffu)"
    if value in (float("inf"), float("-inf")):
        return "as_float(0x7f800000u)" if value > 0 else "as_float(0xff800000u)"
    text = repr(float(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
