"""Addresses of tiles in memory, as C++ expressions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pykittens.targets.index import Index


@dataclass(frozen=True)
class TileAddress:
    """A tile of memory in C++: the matrix that it is part of, and its first row and column.

    rows, cols: the extents of the matrix. aligned: whether the rows of the matrix start at multiples of 16 bytes.
    pitch: the distance between neighbours of a row, in elements. whole: whether rows are multiples of 16 bytes, too.
    along: whether a loop inside of the one that changes the row changes the column.
    """

    matrix: str
    stride: str
    row: Index
    col: Index
    rows: str
    cols: str
    aligned: bool = True
    pitch: str = "1"
    whole: bool = False
    along: bool = False

    @property
    def is_strided(self) -> bool:
        return self.pitch != "1"

    @property
    def operands(self) -> str:
        """The address as operands of a device function, after the matrix."""
        assert not self.is_strided, "device functions know no pitch"
        return f"{self.stride}, {self.row}, {self.col}, {self.rows}, {self.cols}"

    def element(self, row: int | str = 0, col: int | str = 0) -> TileAddress:
        """The address of an element of the tile; if the tile is strided, as one of a matrix of one column."""
        at = replace(self, row=self.row + row, col=self.col + col)
        if not self.is_strided:
            return at
        inside = f"{at.col} >= 0 && {at.col} < {self.cols}"
        matrix = f"{self.matrix} + ({inside} ? {at.col * self.pitch} : 0)"
        return replace(at, matrix=matrix, col=Index(0), cols=inside, pitch="1")
