"""Views of shared memory: a shared tile or vector as several smaller ones, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pykittens.errors import TypeMismatch
from pykittens.ir.operators import OPERATORS, Arithmetic

if TYPE_CHECKING:
    from pykittens.ir.values import Int, SharedTile, SharedVector

    class SharedElement(SharedVector):
        """A part of one element of a shared vector, which pk.load takes for a scalar."""

    class SharedEither(SharedVector):
        """A tile or a vector of a stage that has both."""


V = TypeVar("V", bound="SharedVector")


@dataclass(frozen=True, eq=False)
class SharedTiles(Arithmetic):
    """A shared tile as a grid of smaller tiles."""

    tile: SharedTile
    rows: int
    cols: int

    @property
    def description(self) -> str:
        return f"the {self.rows}x{self.cols} tiles of {self.tile.type}"

    def __getitem__(self, index: Int | tuple[Int, Int]) -> SharedTile:
        given = index if isinstance(index, tuple) else (index, 0)
        if len(given) != 2:
            raise TypeMismatch(
                f"tiles: `[...]` must have a row and a column, not {len(given)} indices",
                operands={"tile": self.tile.type},
            )
        i, j = given
        view: SharedTile = OPERATORS["view"](self.tile, i, j, rows=self.rows, cols=self.cols)
        view.stage = self.tile.stage
        return view


@dataclass(frozen=True, eq=False)
class VectorParts(Arithmetic, Generic[V]):
    """A shared vector as a row of shorter vectors."""

    vector: SharedVector
    length: int

    @property
    def description(self) -> str:
        return f"the parts of {self.length} of {self.vector.type}"

    @property
    def way_in(self) -> str:
        return f"one of them is named by its index, as in `.parts({self.length})[i]`"

    def __getitem__(self, index: Int) -> V:
        part: V = OPERATORS["vector_part"](self.vector, index, length=self.length)
        part.stage, part.whole = self.vector.stage, self.vector.whole
        return part
