"""Memory as the emulator sees it: tensors with edges, and stages of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from pykittens.errors import AccessError
from pykittens.types.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

# What memory holds before anything has landed in it: NaN for floats, a number nobody expects for integers.
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


# Where the coordinates of a window count from, its first element and the one behind its last.
Bounds = tuple[int, int, int]
# What an element of memory becomes, of what it was and what is stored; None: what is stored.
Combine = Callable[[Array, Array], Array] | None


class GlobalTile:
    """A tile of a tensor; its extents come from what is moved. Windows are by axis."""

    def __init__(
        self,
        name: str,
        array: Array,
        index: tuple[int, ...],
        windows: Mapping[int, Bounds] = MappingProxyType({}),
    ) -> None:
        self.name, self.array, self.index, self.windows = name, array, index, windows

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def _bounds(self, axis: int) -> Bounds:
        """Where the coordinates of an axis count from, and what of it there is."""
        return self.windows.get(axis, (0, 0, self.array.shape[axis]))

    def _plane(self) -> Array:
        """The matrix of the last two axes, the leading ones fixed."""
        leading = []
        for axis, i in enumerate(self.index[:-2]):
            origin, low, high = self._bounds(axis)
            if not low <= origin + i < high:
                where = f" from {origin} to {high}" if axis in self.windows else ""
                raise AccessError(
                    f"index {i} of axis {axis} is outside the window{where} of `{self.name}`"
                    if where
                    else f"index {i} of axis {axis} is outside `{self.name}`, whose shape is {self.array.shape}",
                    help="only the last two axes have edges; a leading index must lie inside its axis",
                )
            leading.append(origin + i)
        plane: Array = self.array[tuple(leading)]
        return plane if plane.ndim == 2 else plane[np.newaxis]

    def _axes(self) -> tuple[Bounds, Bounds]:
        """The bounds of the rows and of the columns."""
        last = self.array.ndim - 1
        return self._bounds(last - 1) if last else (0, 0, 1), self._bounds(last)

    def _box(self, rows: int, cols: int) -> Box:
        (row0, top, bottom), (col0, left, right) = self._axes()
        row = row0 + self.index[-2] * rows if len(self.index) > 1 else 0
        col = col0 + self.index[-1] * cols
        for first, extent in ((row, rows), (col, cols)):
            if first < -(2**31) or first + extent > 2**31:
                raise AccessError(f"the coordinate {first} in `{self.name}` overflows an int32")
        r0, r1 = max(row, top), min(row + rows, bottom)
        c0, c1 = max(col, left), min(col + cols, right)
        inside = (r0, r1, c0, c1) if r0 < r1 and c0 < c1 else (row, row, col, col)
        return Box(self._plane(), row, col, inside)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.index))}]"

    def element(self) -> Array:
        """The one element that the index names, to be read and written."""
        box = self._box(1, 1)
        found = box.plane[box.of_plane]
        if not found.size:
            raise AccessError(f"{self} is outside `{self.name}`, whose shape is {self.array.shape}")
        return found.reshape(())

    def read(self, rows: int | None, cols: int, fill: float) -> Array:
        """The tile, or the vector where `rows` is None, with `fill` outside the tensor."""
        box = self._box(rows or 1, cols)
        tile = box.plane[box.of_plane].copy()
        if tile.shape != (rows or 1, cols):
            part, tile = tile, np.full((rows or 1, cols), fill, self.array.dtype)
            tile[box.of_tile] = part
        return tile if rows is not None else tile[0]

    def write(self, value: Array, combine: Combine = None) -> None:
        """Write a tile or a vector; what lies outside the tensor is dropped."""
        tile = value if value.ndim == 2 else value[np.newaxis]
        box = self._box(*tile.shape)
        _put(box.plane, box.of_plane, tile[box.of_tile], combine)

    def _row(self, row: int) -> GlobalTile | None:
        """The same columns of another row of the matrix; None where there is no such row."""
        (origin, low, high), _ = self._axes()
        if not low <= origin + row < high:
            return None
        return GlobalTile(
            self.name, self.array, (*self.index[:-2], int(row), self.index[-1]), self.windows
        )

    def gather(self, rows: Array, cols: int, fill: float) -> Array:
        """A tile of the named rows, with `fill` for what is outside."""
        tile = np.full((len(rows), cols), fill, self.array.dtype)
        for i, row in enumerate(rows.tolist()):
            if (part := self._row(row)) is not None:
                tile[i] = part.read(None, cols, fill)
        return tile

    def scatter(self, rows: Array, tile: Array, combine: Combine = None) -> None:
        """Write the rows of a tile to the named rows, in their order; those outside are dropped."""
        for i, row in enumerate(rows.tolist()):
            if (part := self._row(row)) is not None:
                part.write(tile[i], combine)


@dataclass(frozen=True)
class Box:
    """A tile of a matrix: its first row and column, and the first and last rows and columns that are there."""

    plane: Array
    row: int
    col: int
    inside: tuple[int, int, int, int]

    @property
    def of_plane(self) -> tuple[slice, slice]:
        r0, r1, c0, c1 = self.inside
        return slice(r0, r1), slice(c0, c1)

    @property
    def of_tile(self) -> tuple[slice, slice]:
        r0, r1, c0, c1 = self.inside
        return slice(r0 - self.row, r1 - self.row), slice(c0 - self.col, c1 - self.col)


def _put(memory: Array, place: Any, value: Array, combine: Combine) -> None:
    memory[place] = value if combine is None else combine(memory[place], value)


class SharedRegion:
    """A shared tile or a view of one."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def cols(self) -> int:
        return int(self.array.shape[1])

    def part(self, i: int, j: int, rows: int, cols: int) -> SharedRegion:
        """The (i, j)-th rows x cols part."""
        if not (
            0 <= (i + 1) * rows <= self.rows
            and 0 <= (j + 1) * cols <= self.cols
            and i >= 0
            and j >= 0
        ):
            raise AccessError(
                f"part ({i}, {j}) of {rows}x{cols} is outside a shared tile of {self.rows}x{self.cols}"
            )
        return SharedRegion(self.array[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols])

    def read(self) -> Array:
        return self.array

    def write(self, value: Array) -> None:
        self.array[:] = value.reshape(self.array.shape)
