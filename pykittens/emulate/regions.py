"""Shared tiles of one block: their addresses, and the regions that operations touch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.emulate.elements import ByIndex, Elements
from pykittens.emulate.memory import Area, Array
from pykittens.emulate.watch import NOBODY, Access, Watcher
from pykittens.errors import AccessError
from pykittens.types.tiles import ST


@dataclass(eq=False)
class SharedMemory:
    """A tile or vector of shared memory of one block; `start` is its first byte in its `arena`.

    Tiles of one arena may overlap, if a pipeline reuses the memory of another.
    """

    name: str
    type: ST
    block: int = 0
    arena: object = None
    start: int = 0
    overlapping: list[SharedMemory] = field(default_factory=list)

    @property
    def whole(self) -> Area:
        return Area(0, self.type.rows, 0, self.type.cols)


class SharedRegion(ByIndex):
    """A shared tile or a view of one, which starts at row `top` and column `left` of the tile."""

    is_shared = True

    def __init__(
        self,
        array: Array,
        memory: SharedMemory | None = None,
        top: int = 0,
        left: int = 0,
        watch: Watcher = NOBODY,
    ) -> None:
        self.array, self.memory, self.top, self.left = array, memory, top, left
        self.watch = watch
        self.rows, self.cols = array.shape
        # The rows and columns of the tile that this view covers.
        self.region = Area(top, top + self.rows, left, left + self.cols)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def cut(self, top: int, rows: int, left: int, cols: int) -> SharedRegion:
        """Some rows and columns, counted from those of this view."""
        array = self.array[top : top + rows, left : left + cols]
        return SharedRegion(array, self.memory, self.top + top, self.left + left, self.watch)

    def part(self, i: int, j: int, rows: int, cols: int) -> SharedRegion:
        """The (i, j)-th rows x cols part."""
        if not (0 <= i < self.rows // rows and 0 <= j < self.cols // cols):
            raise AccessError(
                f"part ({i}, {j}) of {rows}x{cols} is outside a shared tile of {self.rows}x{self.cols}"
            )
        return self.cut(i * rows, rows, j * cols, cols)

    def row(self, i: int) -> SharedRegion:
        """Row i of a tile."""
        if not 0 <= i < self.rows:
            raise AccessError(f"row {i} is outside a shared tile of {self.rows}x{self.cols}")
        return self.cut(i, 1, 0, self.cols)

    def part_of_vector(self, i: int, length: int) -> SharedRegion:
        """The i-th part of `length` elements of a vector."""
        if not 0 <= i < self.cols // length:
            raise AccessError(f"part {i} of {length} is outside a shared vector of {self.cols}")
        return self.cut(0, 1, i * length, length)

    def element(self) -> Array:
        """Its only element, as a view."""
        return self.array[0, 0, ...]

    def __str__(self) -> str:
        return f"element {self.left} of {self.memory.name if self.memory else 'a copy'}"

    def snapshot(self) -> SharedRegion:
        """A copy of its contents."""
        return SharedRegion(self.array.copy())

    def read(self) -> Array:
        self.watch.touches(self, self.region, Access.READ)
        return self.array

    def write(self, value: Array) -> None:
        self.watch.touches(self, self.region, Access.WRITE)
        self.array[:] = value.reshape(self.array.shape)

    def named(self, index: Array) -> Elements:
        return Elements(self.array[0], self.left, index)

    def touch(self, elements: Elements, access: Access) -> None:
        self.watch.touches(self, Area(self.top, self.top + 1, *elements.span), access, elements)
