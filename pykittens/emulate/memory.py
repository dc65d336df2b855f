"""Memory as the emulator sees it: tensors with edges, and stages of shared memory."""

from __future__ import annotations

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


class GlobalTile:
    """A tile of a tensor; its extents come from what is moved."""

    def __init__(self, name: str, array: Array, index: tuple[int, ...]) -> None:
        self.name, self.array, self.index = name, array, index

    def _plane(self) -> Array:
        """The matrix of the last two axes, the leading ones fixed."""
        leading = self.index[:-2]
        for axis, i in enumerate(leading):
            if not 0 <= i < self.array.shape[axis]:
                raise AccessError(
                    f"index {i} of axis {axis} is outside `{self.name}`, whose shape is {self.array.shape}",
                    help="only the last two axes have edges; a leading index must lie inside its axis",
                )
        plane: Array = self.array[leading]
        return plane if plane.ndim == 2 else plane[np.newaxis]

    def _box(self, rows: int, cols: int) -> tuple[Array, int, int]:
        plane = self._plane()
        row = self.index[-2] * rows if len(self.index) > 1 else 0
        col = self.index[-1] * cols
        for first, extent in ((row, rows), (col, cols)):
            if first < -(2**31) or first + extent > 2**31:
                raise AccessError(f"the coordinate {first} in `{self.name}` overflows an int32")
        return plane, row, col

    def read(self, rows: int | None, cols: int, fill: float) -> Array:
        """The tile, or the vector where `rows` is None, with `fill` outside the tensor."""
        plane, row, col = self._box(rows or 1, cols)
        r0, r1, c0, c1 = _clip(plane, row, rows or 1, col, cols)
        if (r1 - r0, c1 - c0) == (rows or 1, cols):
            tile = plane[r0:r1, c0:c1].copy()
        else:
            tile = np.full((rows or 1, cols), fill, plane.dtype)
            tile[r0 - row : r1 - row, c0 - col : c1 - col] = plane[r0:r1, c0:c1]
        return tile if rows is not None else tile[0]

    def write(self, value: Array) -> None:
        """Write a tile or a vector; what lies outside the tensor is dropped."""
        tile = value if value.ndim == 2 else value[np.newaxis]
        rows, cols = tile.shape
        plane, row, col = self._box(rows, cols)
        r0, r1, c0, c1 = _clip(plane, row, rows, col, cols)
        plane[r0:r1, c0:c1] = tile[r0 - row : r1 - row, c0 - col : c1 - col]


def _clip(plane: Array, row: int, rows: int, col: int, cols: int) -> tuple[int, int, int, int]:
    """The part of a box inside a matrix, as (first row, last row, first column, last column), empty if none."""
    r0, r1 = max(row, 0), min(row + rows, plane.shape[0])
    c0, c1 = max(col, 0), min(col + cols, plane.shape[1])
    return (r0, r1, c0, c1) if r0 < r1 and c0 < c1 else (row, row, col, col)


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
        self.array[:] = value
