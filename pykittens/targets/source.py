"""An emitted program: its text, its parameters, and how types and numbers are written in C++."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pykittens.errors import Loc
from pykittens.types.dtypes import DType

# A register of a tile or vector: two elements of 16 bits or four of 8 bits share one.
C_TYPES = {
    "f32": "float",
    "int32": "int",
    "int64": "i64",
    "bool": "bool",
    "bf16": "u32",
    "f16": "u32",
} | {name: "u32" for name in ("e4m3", "e5m2", "int8", "uint8")}
# The numbers of cuda.h for the dtype of a tensor map, and for the bytes within which its swizzle moves.
MAP_DTYPE = {"int32": 3, "int64": 5, "f16": 6, "f32": 7, "bf16": 9} | {
    name: 0 for name in ("bool", "e4m3", "e5m2", "int8", "uint8")
}
MAP_SWIZZLE = {16: 0, 32: 1, 64: 2, 128: 3}


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


SiteKind = Literal["wait", "access", "assert"]


@dataclass(frozen=True)
class Site:
    """A place where a program for debugging may stop, and what it tells: `text` with a hole `{n}` for each number.

    There are `count` numbers. The holes `{loc}` and `{shape}` are the user's line and the shape of the tensor `tensor`.
    """

    kind: SiteKind
    text: str
    loc: Loc | None
    count: int = 0
    tensor: str = ""
    help: str | None = None


@dataclass(frozen=True)
class GroupPlace:
    """Which warps of a block a group of a role is: the first, and how many."""

    name: str
    first_warp: int
    warps: int


@dataclass
class Source:
    """The emitted program and what a launch of it needs.

    title: a comment; functions: the device functions of the target; program: the kernel and the instructions made
    for it. shared_bytes: dynamic shared memory. sites, groups: of a program for debugging, else `sites` is None; its
    last two parameters are the report and the nanoseconds that a wait may take. overlaps: it may start before the
    launch before it has ended, since it waits for that itself.
    """

    name: str
    title: str
    functions: str
    program: str
    threads: int
    shared_bytes: int
    maps: list[MapSlot]
    slots: list[Slot]
    budgets: Sequence[tuple[str, int | None]] = ()
    sites: tuple[Site, ...] | None = None
    groups: tuple[GroupPlace, ...] = ()
    overlaps: bool = False

    @property
    def text(self) -> str:
        """All of it, as the compiler gets it."""
        return "\n".join([self.title, self.functions, self.program])

    @property
    def roomier(self) -> str:
        """The same for a compiler that may give a thread all registers, at the cost of blocks side by side."""
        return re.sub(r"__launch_bounds__\((\d+)\)", r"__launch_bounds__(\1, 1)", self.text)


def float_literal(value: float) -> str:
    """A float as a C++ literal that reads back exactly."""
    if value != value:
        return "as_float(0x7fffffffu)"
    if value in (float("inf"), float("-inf")):
        return "as_float(0x7f800000u)" if value > 0 else "as_float(0xff800000u)"
    text = repr(float(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def number(value: float, dtype: DType | None = None) -> str:
    """A Python number as a C++ literal, rounded to `dtype` first if that is said."""
    if isinstance(value, bool) and (dtype is None or dtype.kind == "bool"):
        return "true" if value else "false"
    if dtype is not None and dtype.is_float:
        return float_literal(float(dtype.numpy.type(value)))
    if dtype is None and isinstance(value, float):
        return float_literal(value)
    if dtype is not None and dtype.kind == "bool":
        return "true" if value else "false"
    suffix = "ll" if dtype is not None and dtype.bits == 64 else ""
    # The least int has no literal of its own: C++ reads a sign and a number that is too large.
    return (
        f"({int(value) + 1}{suffix} - 1)"
        if int(value) in (-(2**31), -(2**63))
        else f"{int(value)}{suffix}"
    )


def scalar_type(dtype: DType) -> str:
    """The type of one number, in which narrow ones are computed, too."""
    return "i64" if dtype.bits == 64 else dtype.kind  # float, int and bool are C++'s own words


def rounded_scalar(expression: str, dtype: DType) -> str:
    """A number of the type it was computed in, rounded to a narrow dtype."""
    if dtype.packing == 1:
        return expression
    return f"from_{dtype}(pack_{dtype}({expression}), 0)"
