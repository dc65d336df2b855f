"""Typed handles: what a kernel function holds while it is recorded.

A handle is a value of the program: it has a type, the block that made it and, once assigned, the user's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from pykittens.errors import LanguageError, Loc, TypeMismatch
from pykittens.ir.operators import OPERATORS, Operators
from pykittens.ir.undefined import Undefined
from pykittens.types.dtypes import DType
from pykittens.types.tiles import GL, RT, RV, SCALAR, ST, Type


class Value:
    """A value of the program. Two handles are one value only if they are one object."""

    def __init__(self, type: Type, name: str = "", loc: Loc | None = None) -> None:
        self.type = type
        self.name = name
        self.loc = loc
        self.block: Any = None  # the Block it was made in; None for parameters
        self.source: Any = None  # the node that made it; None for parameters

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"{self.name or '_'}: {self.type}"

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise LanguageError(
            f"a run-time value ({self.type}) has no truth value while the kernel is recorded",
            operands={self.name: self.type} if self.name else None,
            help="`if`, `while`, `and`, `or` and `not` on run-time values work in functions marked "
            "@pk.kernel or @pk.function; in place of `a if c else b` use pk.where(c, a, b)",
        )


class Scalar(Operators, Value):
    """A number known when the kernel runs: an extent, an argument, a loop index, a reduction's result."""

    type: SCALAR

    def __index__(self) -> int:
        raise LanguageError(
            "a run-time value stands where a compile-time integer is needed",
            operands={self.name or "value": self.type},
            help="pk.static(...) makes an extent of an argument a compile-time constant",
        )

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())


class _Tile(Value):
    type: RT | ST

    @property
    def rows(self) -> int:
        return self.type.rows

    @property
    def cols(self) -> int:
        return self.type.cols

    @property
    def shape(self) -> tuple[int, int]:
        return (self.type.rows, self.type.cols)


class RegTile(Operators, _Tile):
    """A tile in registers, spread over the warps of the group that made it. Immutable."""

    type: RT

    def __getitem__(self, index: Any) -> Any:
        return OPERATORS["columns"](self, index)


class RegVector(Operators, Value):
    """A vector in registers: one value a row or a column of a tile, or a plain row of memory. Immutable."""

    type: RV

    @property
    def length(self) -> int:
        return self.type.length


class SharedTile(_Tile):
    """A tile in shared memory, or a view of one."""

    type: ST
    stage: Any = None  # the Stage of a pipeline it belongs to

    def tiles(self, rows: int, cols: int) -> SharedTiles:
        """This tile cut into rows x cols tiles; `.tiles(r, c)[i, j]` is a view, no copy."""
        if self.rows % rows or self.cols % cols:
            raise TypeMismatch(
                f"tiles: {rows}x{cols} tiles do not divide {self.rows}x{self.cols} exactly",
                operands={"tile": self.type},
            )
        return SharedTiles(self, rows, cols)


@dataclass(frozen=True, eq=False)
class SharedTiles:
    """A shared tile seen as a grid of smaller ones."""

    tile: SharedTile
    rows: int
    cols: int

    def __getitem__(self, index: Any) -> SharedTile:
        i, j = index if isinstance(index, tuple) else (index, 0)
        view: SharedTile = OPERATORS["view"](self.tile, i, j, rows=self.rows, cols=self.cols)
        view.stage = self.tile.stage
        return view


class Shape(tuple[Any, ...]):
    """Extents of a tensor: Python ints where known, else run-time scalars. Comparing gives a run-time truth."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Shape(found) if isinstance(index, slice) else found

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        if len(self) != len(other):
            return False
        pairs = [a == b for a, b in zip(self, other, strict=True)]
        if any(p is False for p in pairs):
            return False
        unknown = [p for p in pairs if p is not True]
        result: Any = unknown.pop(0) if unknown else True
        for p in unknown:
            result = OPERATORS["and"](result, p)
        return result

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return OPERATORS["not"](equal) if isinstance(equal, Value) else not equal

    __hash__ = tuple.__hash__


class Global(Value):
    """A tensor in global memory: an argument of the kernel, perhaps with its leading axes fixed."""

    type: GL

    def __init__(self, type: GL, name: str, extents: tuple[Any, ...]) -> None:
        super().__init__(type, name)
        self.extents: tuple[Any, ...] = extents
        self.leading: tuple[Any, ...] = ()
        self.owner: Global = self  # the argument itself

    @property
    def shape(self) -> Shape:
        """Extents of the axes that are not fixed."""
        return Shape(self.extents[len(self.leading) :])

    @property
    def rank(self) -> int:
        return len(self.extents) - len(self.leading)

    @property
    def rows(self) -> Any:
        """Extent of the last axis but one; 1 for a tensor of rank 1."""
        return self.shape[-2] if self.rank > 1 else 1

    @property
    def cols(self) -> Any:
        """Extent of the last axis."""
        return self.shape[-1]

    def at(self, *index: Any) -> Global:
        """This tensor with its first axes fixed."""
        if len(index) > max(self.rank - 2, 0):
            raise TypeMismatch(
                f"at: fixes {len(index)} axes of a tensor of rank {self.rank}, the last two must stay",
                operands={self.name: self.type},
                help=f"`{self.name}[i]` names a row where a vector is moved",
            )
        self._check_index("at(...)", index)
        part = Global(self.type, self.name, self.extents)
        part.leading = self.leading + index
        part.owner = self.owner
        return part

    def tiles(self, rows: int, cols: int) -> Shape:
        """How many rows x cols tiles cover the tensor, rounded up, behind the extents of its leading axes."""
        cdiv = OPERATORS["cdiv"]
        return Shape((*self.shape[:-2], cdiv(self.rows, rows), cdiv(self.cols, cols)))

    def __getitem__(self, index: Any) -> TileRef:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > self.rank:
            raise TypeMismatch(
                f"{self.name}[...]: {len(given)} indices for a tensor of rank {self.rank}",
                operands={self.name: self.type},
            )
        self._check_index("[...]", given)
        filled = given + (0,) * (self.rank - len(given))
        return TileRef(self.owner, self.leading + filled)

    def _check_index(self, where: str, index: tuple[Any, ...]) -> None:
        for i in index:
            if isinstance(i, Undefined):
                i.fail()
            if not isinstance(i, int | Scalar) or (isinstance(i, Scalar) and i.dtype.kind != "int"):
                raise TypeMismatch(
                    f"{self.name}{'.' * where.startswith('at')}{where}: an index is an int32, not {describe(i)}",
                    operands={self.name: self.type},
                    help="slices of tensors are not needed: a tile's extents come from where it is moved",
                )

    def __iter__(self) -> NoReturn:
        raise LanguageError(f"{self.name} is a tensor and cannot be iterated over")


@dataclass(frozen=True, eq=False)
class TileRef:
    """A tile of a global tensor: leading indices, then row and column in units of the tile moved."""

    tensor: Global
    index: tuple[Any, ...]

    @property
    def type(self) -> GL:
        return self.tensor.type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def __str__(self) -> str:
        return f"{self.tensor.name}[{', '.join(_shown(i) for i in self.index)}]"


def _shown(index: Any) -> str:
    return (index.name or "_") if isinstance(index, Value) else str(index)


_HANDLES: dict[type, type[Value]] = {
    SCALAR: Scalar,
    RT: RegTile,
    RV: RegVector,
    ST: SharedTile,
}


def handle(type_: Type, name: str = "", loc: Loc | None = None) -> Value:
    """A new handle of the class that goes with a type."""
    return _HANDLES[type(type_)](type_, name, loc)


def describe(thing: object) -> str:
    """A value or a Python object as an error text shows it: its type."""
    if isinstance(thing, TileRef):
        return f"{thing.type} at {thing}"
    if isinstance(thing, Value):
        return str(thing.type)
    if isinstance(thing, Undefined):
        return "nothing"
    if isinstance(thing, int | float | str | DType) or thing is None:
        return repr(thing)
    return type(thing).__name__
