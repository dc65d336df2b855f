"""Places in the memories of a machine: vectors, constants and matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.mega.isa.packing import UNIT, rounded


@dataclass(frozen=True, eq=False)
class Place:
    """Elements in a memory of a machine. word: that of the machine that made it."""

    machine: Any = field(repr=False)
    word: str = field(repr=False)

    @property
    def description(self) -> str:
        """What an error says that it is."""
        return f"by {self.word}"


@dataclass(frozen=True, eq=False)
class Vector(Place):
    """Elements of the memory of vectors, or of constants: the first, and how many.

    room: the end of the elements that are its own. Those past its length are 0 if they are written. step: from an
    element of a sequence to that of the next one.
    """

    start: int
    length: int
    room: int = field(repr=False)
    step: int = field(repr=False)

    def part(self, start: int, length: int) -> Vector:
        """Neighbours among its elements; they start at a multiple of 16, and end at one or at its end."""
        end = start + length
        if not 0 <= start < end <= self.length:
            raise ArgumentError(
                f"a part of {self.length} elements is inside of them, not from {start} to {end}"
            )
        if start % UNIT or (end % UNIT and end < self.length):
            raise ArgumentError(
                f"a part starts and ends at multiples of {UNIT}, not at {start} and {end}",
                help="make a vector for each part, by machine.vector(length)",
            )
        room = self.room if end == self.length else self.start + end
        return Vector(self.machine, self.word, self.start + start, length, room, self.step)

    @property
    def end(self) -> int:
        """The end of what all instructions write that write the vector."""
        return rounded(self.start + self.length, UNIT)


@dataclass(frozen=True, eq=False)
class Matrix(Place):
    """A packed matrix of the memory of weights: its first page, rows and columns."""

    page: int
    rows: int
    cols: int


@dataclass(frozen=True, eq=False)
class Pages(Matrix):
    """A matrix in pages of 128 rows and 64 columns, row of pages after row, of weights or that instructions write."""

    @property
    def across(self) -> int:
        """Pages of a row of pages."""
        return rounded(self.cols, 64) // 64

    @property
    def down(self) -> int:
        """Rows of pages."""
        return rounded(self.rows, 128) // 128
