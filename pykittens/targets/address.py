"""Addresses of tiles in memory, as C++ expressions."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.targets.index import Index


@dataclass(frozen=True)
class TileAddress:
    """A tile of memory in C++: the matrix it lies in, and its first row and column.

    rows, cols: the edges of the matrix. aligned: whether its rows start at multiples of 16 bytes.
    """

    matrix: str
    stride: str
    row: Index
    col: Index
    rows: str
    cols: str
    aligned: bool = True
