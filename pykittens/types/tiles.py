"""Types of values: global tensors, shared tiles, semaphores, register tiles and vectors, scalars.

They print as in ThunderKittens: `gl<bf16, 2>`, `st<bf16, 128x64>`, `sv<bf16, 1024>`, `rt<f32, 64x256>`,
`rv<f32, 64, per row>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from pykittens.display import Shown
from pykittens.types.dtypes import DType
from pykittens.types.layouts import LANE_CHUNK, SharedLayout, plain_chunk, swizzle_for

MOST_ARRIVALS = 2**20 - 1  # PTX ISA, "mbarrier: contents of the object"


class Spread(Enum):
    """The layout of a register vector over the lanes."""

    PER_ROW = "per row"
    PER_COLUMN = "per column"
    PLAIN = "plain"
    LANE_ORDER = "lane order"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"pk.{self.name.lower()}"

    @property
    def repeats(self) -> bool:
        """Whether several lanes hold each element."""
        return self in (Spread.PER_ROW, Spread.PER_COLUMN)


per_row, per_column, plain = Spread.PER_ROW, Spread.PER_COLUMN, Spread.PLAIN
lane_order = Spread.LANE_ORDER


@dataclass(frozen=True)
class GL:
    """A global tensor.

    aligned: base and strides are multiples of 16 bytes, so the copy engine can read it. whole_rows: rows are multiples
    of 16 bytes, too; otherwise a bulk store would write past the end of a row (docs/facts.md).
    """

    dtype: DType
    rank: int
    aligned: bool = True
    whole_rows: bool = True

    def __str__(self) -> str:
        return f"gl<{self.dtype}, {self.rank}>"


@dataclass(frozen=True)
class ST(Shown):
    """A shared tile, or a view with the `layout` of its owner."""

    dtype: DType
    rows: int
    cols: int
    layout: SharedLayout
    alignment: ClassVar[int] = 1024  # in a ring, in bytes, as the 128-byte swizzle requires

    def __str__(self) -> str:
        return f"st<{self.dtype}, {self.rows}x{self.cols}>"

    @property
    def bytes(self) -> int:
        """Bytes of the elements of this tile."""
        return self.rows * self.cols * self.dtype.bytes

    def view(self, rows: int, cols: int) -> ST:
        """The type of a rows x cols part of this tile."""
        return ST(self.dtype, rows, cols, self.layout)

    def row(self) -> SR:
        """The type of a row of this tile."""
        return SR(self.dtype, 1, self.cols, self.layout)


@dataclass(frozen=True)
class SR(ST):
    """A row of a shared tile: a vector whose elements lie where the layout of the tile has them."""

    def __str__(self) -> str:
        return f"row<{self.dtype}, {self.cols}>"


@dataclass(frozen=True)
class SV(ST):
    """A shared vector: a tile of one row with contiguous elements."""

    alignment: ClassVar[int] = 128

    def __str__(self) -> str:
        return f"sv<{self.dtype}, {self.cols}>"

    def part(self, length: int) -> SV:
        """The type of a part of this vector."""
        return SV(self.dtype, 1, length, self.layout)


@dataclass(frozen=True)
class RT(Shown):
    """A register tile, spread over the warps of a group."""

    dtype: DType
    rows: int
    cols: int

    def __str__(self) -> str:
        return f"rt<{self.dtype}, {self.rows}x{self.cols}>"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.cols)


@dataclass(frozen=True)
class RV(Shown):
    """A register vector."""

    dtype: DType
    length: int
    spread: Spread

    def __str__(self) -> str:
        return f"rv<{self.dtype}, {self.length}, {self.spread}>"

    def chunk(self, warps: int) -> int:
        """Neighbouring elements in one lane, of a vector of whose elements no lanes hold copies."""
        assert not self.spread.repeats, self
        is_plain = self.spread is Spread.PLAIN
        return plain_chunk(self.length, warps) if is_plain else LANE_CHUNK

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)


@dataclass(frozen=True)
class SCALAR:
    """One number, the same in all threads of its scope."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class SEMAPHORE:
    """An mbarrier in shared memory; `arrivals` arrivals complete a phase."""

    arrivals: int

    def __str__(self) -> str:
        return f"semaphore<{self.arrivals}>"


@dataclass(frozen=True)
class TURNS:
    """The turn that the groups of a role pass on in a ring; `warps` is the number of warps per group."""

    groups: int
    warps: int

    def __str__(self) -> str:
        return f"turns<{self.groups}>"


Type = GL | ST | RT | RV | SCALAR | SEMAPHORE | TURNS


def shared_tile(dtype: DType, rows: int, cols: int) -> ST:
    """The type of a newly allocated shared tile, whose swizzle depends on dtype and width."""
    return ST(dtype, rows, cols, SharedLayout(swizzle_for(cols, dtype.bytes), rows, dtype.bytes))


def shared_vector(dtype: DType, length: int) -> SV:
    """The type of a shared vector, which is not swizzled."""
    return SV(dtype, 1, length, SharedLayout(16, 1, dtype.bytes))


def with_dtype(type: RT | RV | SCALAR, dtype: DType) -> RT | RV | SCALAR:
    """The type with another dtype."""
    match type:
        case RT():
            return RT(dtype, type.rows, type.cols)
        case RV():
            return RV(dtype, type.length, type.spread)
        case SCALAR():
            return SCALAR(dtype)
