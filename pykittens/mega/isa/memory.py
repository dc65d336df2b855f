"""Places in the memories of a machine: vectors, constants and matrices."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int
from pykittens.mega.isa.packing import UNIT, rounded


@dataclass(eq=False)
class Space:
    """A memory of f32 elements in which vectors have their places, one after another.

    size: its elements so far. written: by the end of the room of a vector, the end of what is written of it, if that
    is past the elements of the vector.
    """

    name: str
    size: int = 0
    written: dict[int, int] = field(default_factory=dict)

    def vector(self, length: int, align: int) -> Vector:
        """A new vector, with room up to a multiple of `align`."""
        if not is_int(length) or length < 1:
            raise ArgumentError(f"`length` must be an int of at least 1, not {length!r}")
        start = rounded(self.size, align)
        self.size = start + rounded(length, align)
        return Vector(start, length, self.size, self)


@dataclass(frozen=True, eq=False)
class Vector:
    """Elements of the memory of vectors, or of constants: the first, and how many.

    room: the end of the elements that are its own. Those past its length are 0 if they are written.
    """

    start: int
    length: int
    room: int = field(repr=False)
    space: Space = field(repr=False)

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
        return Vector(self.start + start, length, room, self.space)

    @property
    def end(self) -> int:
        """The end of what all instructions write that write the vector."""
        return rounded(self.start + self.length, UNIT)


@dataclass(frozen=True)
class Matrix:
    """A packed matrix of the memory of weights: its first page, rows and columns."""

    page: int
    rows: int
    cols: int
