"""Views of memory, without a copy: a tile of a tensor; a shared tile or vector as several smaller ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pykittens.errors import TypeMismatch
from pykittens.ir.operators import OPERATORS, Arithmetic

if TYPE_CHECKING:
    from pykittens.ir.extents import Window
    from pykittens.ir.values import Global, Int, SharedTile, SharedVector
    from pykittens.types.dtypes import DType
    from pykittens.types.tiles import GL

    class SharedElement(SharedVector):
        """A part of one element of a shared vector, which pk.load takes for a scalar."""

    class SharedEither(SharedVector):
        """A tile or a vector of a stage that has both."""


V = TypeVar("V", bound="SharedVector")


@dataclass(frozen=True, eq=False)
class TileRef(Arithmetic):
    """A tile of a global tensor: an index for each axis, in units of the tile along the axes of its plane.

    plane: the axes along which its rows, if it has any, and its columns run. windows: by axis, the origin of the
    indices and the elements that exist.
    """

    tensor: Global
    index: tuple[Any, ...]
    plane: tuple[int, ...]
    windows: Mapping[int, Window] = field(default_factory=dict)

    @property
    def fixed(self) -> tuple[int, ...]:
        """The axes that are not those of its plane."""
        return tuple(axis for axis in range(len(self.index)) if axis not in self.plane)

    def sides(self, rows: int, cols: int) -> tuple[int, ...]:
        """The elements along each axis of a tile of rows x cols."""
        of_plane = dict(zip(reversed(self.plane), (cols, rows), strict=False))
        return tuple(of_plane.get(axis, 1) for axis in range(len(self.index)))

    @property
    def is_strided(self) -> bool:
        """Whether neighbours of a row are not neighbours in memory, because columns run along another axis."""
        return self.plane[-1] != len(self.index) - 1

    @property
    def first(self) -> TileRef:
        return self

    @property
    def type(self) -> GL:
        return self.tensor.type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def __str__(self) -> str:
        return f"{self.tensor.name}[{', '.join(_shown(i) for i in self.index)}]"


def _shown(index: Any) -> str:
    """An index as an error text shows it: a number, or the name of a value."""
    return str(index) if isinstance(index, int) else index.name or "_"


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
