"""An emitted program: its text and its parameters; and types and numbers in C++."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pykittens.errors import Loc
from pykittens.types.dtypes import DType

# CU_TENSOR_MAP_DATA_TYPE_... and CU_TENSOR_MAP_SWIZZLE_... of cuda.h, the latter by the width of the swizzle in bytes.
MAP_DTYPE = {"int32": 3, "int64": 5, "f16": 6, "f32": 7, "bf16": 9} | {
    name: 0 for name in ("bool", "e4m3", "e5m2", "int8", "uint8")
}
MAP_SWIZZLE = {16: 0, 32: 1, 64: 2, 128: 3}


@dataclass(frozen=True)
class MapSlot:
    """A tensor map parameter: a tensor, the size of a box in elements, and its swizzle in shared memory.

    row_axis: the axis of the tensor along which the rows of a box run; its columns run along the last axis.
    """

    tensor: str
    rows: int
    cols: int
    swizzle: int
    row_axis: int

    def axes(self, rank: int) -> list[int]:
        """The axes of the tensor in the order of the map, innermost first: columns, rows, the others from the last."""
        inner = [rank - 1, self.row_axis][:rank]
        return inner + [axis for axis in reversed(range(rank)) if axis not in inner]


@dataclass(frozen=True)
class Slot:
    """A plain parameter: the address, an extent or a stride of a tensor, or a scalar argument."""

    kind: Literal["pointer", "extent", "stride", "scalar"]
    argument: str
    axis: int = 0
    dtype: DType | None = None


SiteKind = Literal["wait", "access", "assert"]


@dataclass(frozen=True)
class Site:
    """A check of a debug program, and the text that it reports, with a hole `{n}` for each of `count` numbers.

    The holes `{loc}` and `{shape}` are the user's line and the shape of the tensor `tensor`. In an instruction of a
    program, one more number is its place in the queue of the block.
    """

    kind: SiteKind
    text: str
    loc: Loc | None
    count: int = 0
    tensor: str = ""
    help: str | None = None


# What the time of a group is for; the end comes after the last.
Part = Literal["wait", "fetch", "compute", "store", "signal", "end"]
# What a clock read sees happen: a stage is taken to be filled, is filled, is drained, is given back; an instruction
# begins or ends. A record of a ticket has the number of an instruction in the program in place of a time.
Seen = Literal["", "taken", "filled", "drained", "returned", "begins", "ends", "ticket"]


@dataclass(frozen=True)
class ClockRead:
    """A place of a program with clock reads, and what a group does from there to its next read.

    text: what the group does; `{stage}` is the stage that it waits for; empty for work, which has the name of the stage
    that the group holds. subject: the ring of `seen`, and of a wait for a stage, or the kind of the instruction.
    stages: those of the ring.
    """

    part: Part
    text: str = ""
    loc: Loc | None = None
    seen: Seen = ""
    subject: str = ""
    stages: int = 0


@dataclass(frozen=True)
class GroupWarps:
    """The warps of a group of a role: the first one in the block, and their number."""

    name: str
    first_warp: int
    warps: int


@dataclass
class Source:
    """The emitted program and the facts that a launch needs.

    title: a comment; functions: the device functions of the target; program: the kernel and the device functions
    generated for it. shared_bytes: dynamic shared memory. sites: of a debug program, else None; its last two parameters
    are the report and the nanoseconds that a wait may take. reads: of a program with clock reads, else None; its last
    three parameters are the records, how many a group may write, and how many blocks write some. groups: of both.
    overlaps: it may start before the previous launch has ended, because it waits for that end itself.
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
    reads: tuple[ClockRead, ...] | None = None
    groups: tuple[GroupWarps, ...] = ()
    overlaps: bool = False

    @property
    def text(self) -> str:
        """The whole program, as the compiler reads it."""
        return "\n".join([self.title, self.functions, self.program])

    @property
    def roomier(self) -> str:
        """The program with a bound of one block per multiprocessor, so that a thread may take more registers."""
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
    """A Python number as a C++ literal, rounded to `dtype` if one is given."""
    if isinstance(value, bool) if dtype is None else dtype.kind == "bool":
        return "true" if value else "false"
    if isinstance(value, float) if dtype is None else dtype.is_float:
        return float_literal(float(dtype.numpy.type(value)) if dtype else value)
    suffix = "ll" if dtype is not None and dtype.bits == 64 else ""
    whole = int(value)
    # The least int has no literal: C++ reads a sign and a number that is too large.
    least = whole in (-(2**31), -(2**63))
    return f"({whole + 1}{suffix} - 1)" if least else f"{whole}{suffix}"


def scalar_type(dtype: DType) -> str:
    """The type of one number, and the type that narrow numbers are computed in."""
    return "i64" if dtype.bits == 64 else dtype.kind  # float, int and bool are C++'s own words


def register_type(dtype: DType) -> str:
    """The type of a register of a tile or vector: two elements of 16 bits or four of 8 bits share one."""
    return "u32" if dtype.packing > 1 else scalar_type(dtype)


def memory_type(dtype: DType) -> str:
    """The type of an element in memory: narrow elements are moved as bits."""
    return {2: "unsigned short", 4: "unsigned char"}.get(dtype.packing, scalar_type(dtype))


def rounded_scalar(expression: str, dtype: DType) -> str:
    """An expression rounded to a dtype, if the dtype is narrower than the type of the expression."""
    if dtype.packing == 1:
        return expression
    return f"from_{dtype}(pack_{dtype}({expression}), 0)"
