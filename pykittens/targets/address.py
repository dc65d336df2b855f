"""Addresses of tiles in memory, as C++ expressions."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.targets.index import Index


@dataclass(frozen=True)
class TileAddress:
    """A tile of memory in C++: the matrix that it is part of, and its first row and column.

    rows, cols: the extents of the matrix. aligned: whether the rows of the matrix start at multiples of 16 bytes.
    """

    matrix: str
    stride: str
    row: Index
    col: Index
    rows: str
    cols: str
    aligned: bool = True

    @property
    def operands(self) -> str:
        """The address as operands of a device function, after the matrix."""
        return f"{self.stride}, {self.row}, {self.col}, {self.rows}, {self.cols}"
