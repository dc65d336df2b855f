"""Tensors in the emulator: tiles that reach past edges, and the contents of unwritten memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pykittens.emulate.elements import ByIndex, Elements
from pykittens.emulate.watch import NOBODY, Access, Watcher
from pykittens.errors import AccessError
from pykittens.types.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

# The contents of unwritten memory: NaN for floats, an unlikely number for integers.
POISON_INT = -0x5A5A5A5B


def poison(dtype: DType) -> Any:
    """The value that unwritten memory of a dtype reads as."""
    match dtype.kind:
        case "float":
            return dtype.numpy.type(np.nan)
        case "int":
            return np.int64(POISON_INT).astype(dtype.numpy)
        case "bool":
            return np.True_


class Area(NamedTuple):
    """Some rows and columns: the first, and the one after the last."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def is_empty(self) -> bool:
        return self.top >= self.bottom or self.left >= self.right

    def overlaps(self, other: Area) -> bool:
        return (
            self.top < other.bottom
            and other.top < self.bottom
            and self.left < other.right
            and other.left < self.right
        )

    def covers(self, other: Area) -> bool:
        return (
            self.top <= other.top
            and self.bottom >= other.bottom
            and self.left <= other.left
            and self.right >= other.right
        )


# The origin of the coordinates of an axis, its first element, the one after its last, and the stated end of its window.
Bounds = tuple[int, int, int, int]
# The place of a plane in a tensor: the index of each axis that is fixed, and a whole slice for each axis of the plane.
Place = tuple[int | slice, ...]
# The new value of an element, from its old value and the stored value; None: the stored value.
Combine = Callable[[Array, Array], Array] | None


class GlobalTile(ByIndex):
    """A tile of a tensor; its extents come from the moved value.

    plane: the axes along which its rows, if it has any, and its columns run. Windows are by axis.
    """

    is_shared = False

    def __init__(
        self,
        name: str,
        array: Array,
        index: tuple[int, ...],
        plane: tuple[int, ...],
        windows: Mapping[int, Bounds] = MappingProxyType({}),
        watch: Watcher = NOBODY,
        moved: int | None = None,
    ) -> None:
        self.name, self.array, self.index, self.plane = name, array, index, plane
        self.windows, self.watch = windows, watch
        self.moved = moved  # the row of the moved tile, if rows are named one by one
        self._box: tuple[tuple[int, int], Box] | None = None  # the last one that was asked for

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def _bounds(self, axis: int) -> Bounds:
        """The origin of the coordinates of an axis, the range that exists, and the stated end."""
        extent = self.array.shape[axis]
        return self.windows.get(axis, (0, 0, extent, extent))

    def place(self) -> Place:
        """The place of its plane in the tensor."""
        place: list[int | slice] = []
        for axis, i in enumerate(self.index):
            if axis in self.plane:
                place.append(slice(None))
                continue
            origin, low, high, _ = self._bounds(axis)
            if not low <= origin + i < high:
                raise AccessError(
                    f"index {i} of axis {axis} is outside the window from {origin} to {high} of `{self.name}`"
                    if axis in self.windows
                    else f"index {i} of axis {axis} is outside `{self.name}`, whose shape is {self.array.shape}",
                    help="only the axes of a tile's rows and columns have edges; an index of another axis must lie "
                    "inside it",
                )
            place.append(int(origin + i))
        return tuple(place)

    def _axes(self) -> tuple[Bounds, Bounds]:
        """The bounds of the rows and of the columns."""
        *rows, cols = map(self._bounds, self.plane)
        return rows[0] if rows else (0, 0, 1, 1), cols

    @property
    def _row_index(self) -> int:
        return self.index[self.plane[0]] if len(self.plane) > 1 else 0

    def box(self, rows: int, cols: int) -> Box:
        """The tile with these extents, and the region of it that is inside the tensor."""
        if self._box is None or self._box[0] != (rows, cols):
            self._box = (rows, cols), self._located(rows, cols)
        return self._box[1]

    def _located(self, rows: int, cols: int) -> Box:
        (row0, top, bottom, row_stop), (col0, left, right, col_stop) = self._axes()
        row, col = row0 + self._row_index * rows, col0 + self.index[self.plane[-1]] * cols
        for first, extent in ((row, rows), (col, cols)):
            if first < -(2**31) or first + extent > 2**31:
                raise AccessError(f"the coordinate {first} in `{self.name}` overflows an int32")
        r0, r1 = max(row, top), min(row + rows, bottom)
        c0, c1 = max(col, left), min(col + cols, right)
        is_empty = r0 >= r1 or c0 >= c1
        inside = Area(row, row, col, col) if is_empty else Area(r0, r1, c0, c1)
        stated = Area(row0, row_stop, col0, col_stop)
        is_outside = is_empty and not stated.overlaps(Area(row, row + rows, col, col + cols))
        return Box(self.place(), row, col, inside, is_outside)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.index))}]"

    def element(self) -> Array:
        """The one element that the index names, as a view."""
        box = self.box(1, 1)
        found = box.of(self.array)
        if not found.size:
            raise AccessError(f"{self} is outside `{self.name}`, whose shape is {self.array.shape}")
        return found.reshape(())

    def read(self, rows: int | None, cols: int, fill: float) -> Array:
        """The tile, or a vector if `rows` is None, with `fill` outside the tensor."""
        tile = self.view(rows or 1, cols, fill)
        tile = tile.copy() if tile.base is not None else tile
        return tile if rows is not None else tile[0]

    def view(self, rows: int, cols: int, fill: float) -> Array:
        """The tile as it is in the tensor, which later writes change; a new one if it reaches past an edge."""
        box = self.box(rows, cols)
        self.watch.touches(self, box, Access.READ)
        tile = box.of(self.array)
        if tile.shape != (rows, cols):
            part, tile = tile, np.full((rows, cols), fill, self.array.dtype)
            tile[box.of_tile] = part
        return tile

    def write(self, value: Array, combine: Combine = None) -> None:
        """Write a tile or a vector; elements outside the tensor are dropped."""
        tile = value if value.ndim == 2 else value[np.newaxis]
        box = self.box(*tile.shape)
        self.watch.touches(self, box, Access.WRITE if combine is None else Access.COMBINE)
        memory, value = box.of(self.array), tile[box.of_tile]
        memory[...] = value if combine is None else combine(memory, value)

    def named(self, index: Array) -> Elements:
        (row0, top, bottom, _), (col0, left, right, _) = self._axes()
        row, plane = row0 + self._row_index, plane_of(self.array, self.place())
        if not top <= row < bottom:
            return Elements(plane[:0].reshape(-1), 0, index)
        whole = plane[row, left : max(left, right)]
        return Elements(whole, left, index.astype(np.int64) + (col0 - left))

    def touch(self, elements: Elements, access: Access) -> None:
        row = self.box(1, 1)
        inside = Area(row.row, row.row + 1, *elements.span)
        self.watch.touches(self, replace(row, inside=inside), access, elements)

    def _row(self, row: int, moved: int) -> GlobalTile | None:
        """The same columns of another row of the matrix, for a row of a tile; None if there is no such row."""
        (origin, low, high, _), _ = self._axes()
        if not low <= origin + row < high:
            return None
        index = tuple(row if axis == self.plane[0] else i for axis, i in enumerate(self.index))
        return GlobalTile(self.name, self.array, index, self.plane, self.windows, self.watch, moved)

    def gather(self, rows: Array, cols: int, fill: float) -> Array:
        """A tile of the named rows, with `fill` outside the tensor."""
        tile = np.full((len(rows), cols), fill, self.array.dtype)
        for i, row in enumerate(rows.tolist()):
            if (part := self._row(row, i)) is not None:
                tile[i] = part.read(None, cols, fill)
        return tile

    def scatter(self, rows: Array, tile: Array, combine: Combine = None) -> None:
        """Write the rows of a tile to the named rows, in their order; those outside are dropped."""
        for i, row in enumerate(rows.tolist()):
            if (part := self._row(row, i)) is not None:
                part.write(tile[i], combine)


def plane_of(array: Array, place: Place) -> Array:
    """The plane of an array at a place as a matrix, a view; without an axis for the rows it is one row."""
    found: Array = array[place]
    return found if found.ndim == 2 else found[np.newaxis]


@dataclass(unsafe_hash=True)  # a frozen one takes three times as long to make
class Box:
    """A tile of a plane of a tensor: its first row and column, and the region that is inside the plane.

    is_outside: the tile lies wholly outside the tensor and outside its windows as they are stated.
    """

    place: Place
    row: int
    col: int
    inside: Area
    is_outside: bool = False

    def of(self, array: Array) -> Array:
        """The region of an array of the tensor's shape, as a view."""
        r0, r1, c0, c1 = self.inside
        return plane_of(array, self.place)[r0:r1, c0:c1]

    @cached_property
    def ranges(self) -> tuple[range, ...]:
        """The region along each axis of the tensor."""
        r0, r1, c0, c1 = self.inside
        sides = iter((range(r0, r1), range(c0, c1))[-self.place.count(slice(None)) :])
        return tuple(next(sides) if isinstance(i, slice) else range(i, i + 1) for i in self.place)

    @property
    def of_tile(self) -> tuple[slice, slice]:
        r0, r1, c0, c1 = self.inside
        return slice(r0 - self.row, r1 - self.row), slice(c0 - self.col, c1 - self.col)
