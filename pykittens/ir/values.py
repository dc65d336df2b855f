"""Typed handles: the values that a kernel function computes with while it is recorded.

A handle is a value of the program: it has a type, the block that defines it and, once assigned, the user's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeGuard, cast, overload

import numpy as np

from pykittens.errors import LanguageError, Loc, TypeMismatch
from pykittens.ir import habits
from pykittens.ir.extents import Shape, Window
from pykittens.ir.numbers import is_int, numbers
from pykittens.ir.op import Mismatch, called
from pykittens.ir.operators import OPERATORS, Arithmetic, Operators
from pykittens.ir.undefined import Undefined
from pykittens.ir.views import SharedTiles, VectorParts
from pykittens.ir.views import TileRef as TileRef
from pykittens.types.dtypes import DType, int32
from pykittens.types.tiles import GL, RT, RV, SCALAR, SEMAPHORE, SR, ST, SV, TURNS, Spread, Type

if TYPE_CHECKING:
    from pykittens.ir.extents import Index
    from pykittens.ir.views import SharedElement


class Value(Arithmetic):
    """A value of the program. Two handles are the same value only if they are the same object."""

    kind = "value"  # its name in error texts if the user gave it none
    home: str | None = None  # the role of the block in which it lives; None: in all

    def __init__(self, type: Type, name: str = "", loc: Loc | None = None) -> None:
        self.type = type
        self.name = name
        self.loc = loc
        self.block: Any = None  # the Block that defines it; None for parameters
        self.source: Any = None  # the node that defines it; None for parameters

    @property
    def dtype(self) -> DType:
        assert not isinstance(self.type, (SEMAPHORE, TURNS)), "a semaphore holds no elements"
        return self.type.dtype

    def __repr__(self) -> str:
        return f"{self.name or '_'}: {self.type}"

    @property
    def operand(self) -> dict[str, object]:
        """The value as an error text lists it."""
        return {self.name or self.kind: self.type}

    @property
    def origin(self) -> dict[str, object]:
        """The value as an error text lists it, with the line that made it if there is one."""
        return self.operand | ({"made at": self.loc} if self.loc else {})

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise LanguageError(
            f"a run-time value ({self.type}) has no truth value while the kernel is recorded",
            operands={self.name: self.type} if self.name else None,
            help=habits.at(Loc.here())
            or "`if`, `while`, `and`, `or` and `not` on run-time values work in functions marked "
            "@pk.kernel or @pk.function",
        )


class Scalar(Operators, Value):
    """A number known when the kernel runs: an extent, an argument, a loop index, a reduction's result."""

    type: SCALAR

    if TYPE_CHECKING:  # a condition of a kernel

        def __bool__(self) -> bool: ...  # type: ignore[override]

    def __index__(self) -> None:  # so type checkers refuse it as an int
        raise LanguageError(
            "a run-time value stands where a compile-time integer is needed",
            operands=self.operand,
            help=habits.at(Loc.here())
            or "pk.static(...) makes an extent of an argument a compile-time constant",
        )

    __int__ = __float__ = __index__


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
    """A tile in registers, distributed over the warps of its group. Immutable."""

    type: RT
    __iter__ = None  # Python would take its parts until one is refused

    def __getitem__(self, index: slice | tuple[slice, ...]) -> RegTile:
        return cast(RegTile, OPERATORS["part"](self, index))


class RegVector(Operators, Value):
    """A vector in registers: one value per row or column of a tile, or a plain row of memory. Immutable."""

    type: RV
    __iter__ = None

    @property
    def length(self) -> int:
        return self.type.length

    def __getitem__(self, index: slice) -> RegVector:
        return cast(RegVector, OPERATORS["part"](self, index))


class SharedTile(_Tile):
    """A tile in shared memory, or a view of one."""

    type: ST
    stage: Any = None  # the Stage of a pipeline it belongs to
    kind = "tile"
    __iter__ = None

    @called("tiles", TypeMismatch)
    def tiles(self, rows: int, cols: int) -> SharedTiles:
        """This tile cut into rows x cols tiles; `.tiles(r, c)[i, j]` is a view, no copy."""
        self._check_is_tile("tiles")
        _check_sides(self, rows=rows, cols=cols)
        if self.rows % rows or self.cols % cols:
            raise Mismatch(
                f"`rows` and `cols` must divide the {self.rows}x{self.cols} of the tile exactly, "
                f"not {rows} and {cols}"
            )
        return SharedTiles(self, rows, cols)

    @called("[...]", TypeMismatch)
    def __getitem__(self, index: tuple[slice, slice]) -> SharedTile:
        """`tile[:, :n]`: the first n columns of this tile, a multiple of 16; a view, no copy."""
        self._check_is_tile("columns")
        match index:
            case (
                slice(start=None, stop=None, step=None),
                slice(start=None | 0, stop=int(n), step=None),
            ):
                if 0 < n <= self.cols and n % 16 == 0:
                    return SharedTiles(self, self.rows, n)[0, 0]
        raise Mismatch(
            f"`[...]` of a shared tile must be `[:, :n]` with a multiple of 16 up to {self.cols}",
            help="tile.tiles(rows, cols)[i, j] is another part",
        )

    @called("row", TypeMismatch)
    def row(self, i: Int) -> SharedRow:
        """Row i of this tile, as a vector for pk.load and pk.store; no copy."""
        self._check_is_tile("rows")
        row: SharedRow = OPERATORS["shared_row"](self, i)
        row.stage = self.stage
        return row

    def _check_is_tile(self, parts: str) -> None:
        if not isinstance(self, SharedRow | SharedVector):
            return
        help = (
            self.way_in
            if isinstance(self, SharedRow)
            else "vector.parts(length)[i] is a part of it"
        )
        raise Mismatch(f"a shared {self.kind} has no {parts}", help)


class SharedRow(SharedTile):
    """A row of a tile in shared memory, whose elements lie where the layout of the tile has them."""

    type: SR
    kind = "row"
    way_in = "pk.load and pk.store move a row as a whole, as a plain vector"

    @property
    def length(self) -> int:
        return self.type.cols


class SharedVector(SharedTile):
    """A vector in shared memory, or a part of one: a tile of one row."""

    type: SV
    kind = "vector"

    def __init__(self, type: SV, name: str = "", loc: Loc | None = None) -> None:
        super().__init__(type, name, loc)
        self.whole: SharedVector = self  # the vector of which it is a part

    @property
    def length(self) -> int:
        return self.type.cols

    @overload
    def parts(self, length: Literal[1]) -> VectorParts[SharedElement]: ...
    @overload
    def parts(self, length: int) -> VectorParts[SharedVector]: ...
    @called("parts", TypeMismatch)
    def parts(self, length: int) -> Any:
        """This vector cut into parts of `length` elements; `.parts(n)[i]` is a view, no copy."""
        _check_sides(self, length=length)
        if self.length % length:
            raise Mismatch(
                f"`length` must divide the {self.length} of the vector exactly, not {length}"
            )
        return VectorParts(self, length)


def _check_sides(whole: SharedTile | Global, **sides: Any) -> None:
    """Raise unless sides of tiles are positive numbers; a tensor may be counted in tiles of a run-time size."""
    for name, side in sides.items():
        is_counted = isinstance(whole, Global) and isinstance(side, Scalar) and is_int32(side)
        if not is_counted and not (is_number(side) and side > 0):
            raise Mismatch(f"`{name}` must be a positive compile-time int, not {describe(side)}")


class Semaphore(Value):
    """An mbarrier in shared memory: arrivals, and bytes that copies bring, complete one phase after another."""

    type: SEMAPHORE
    kind = "semaphore"

    @called("arrive")
    def arrive(self, *, block: Int | None = None) -> None:
        """One arrival of the group, after all its warps have reached it; with `block`, in that block of the cluster."""
        OPERATORS["arrive"](self, block=block)

    @called("expect", TypeMismatch)
    def expect(self, *what: Int | SharedTile) -> None:
        """One arrival of the group; the phase also waits for these bytes, given as numbers or shared tiles."""
        total: Any = 0
        for part in what:
            bytes = part.type.bytes if isinstance(part, SharedTile) else part
            fits = isinstance(bytes, int) or (isinstance(bytes, Scalar) and bytes.dtype.is_int)
            if not fits and len(what) > 1:
                raise Mismatch(f"takes shared tiles and numbers of bytes, not {describe(part)}")
            total = total + bytes if len(what) > 1 else bytes
        OPERATORS["expect"](self, total)

    @called("wait")
    def wait(self, phase: Int) -> None:
        """Wait until the phase of this parity is complete; the parity is a bool or the lowest bit of an int32."""
        OPERATORS["wait_phase"](self, phase)


class Turns(Value):
    """The group of a role whose turn it is."""

    type: TURNS


WHOLE = slice(None)
Int = Scalar | int


class Global(Value):
    """A tensor in global memory: an argument of the kernel, or one with axes fixed or cut to windows."""

    type: GL

    def __init__(self, type: GL, name: str, extents: tuple[Any, ...]) -> None:
        super().__init__(type, name)
        self.extents: tuple[Any, ...] = extents
        self.fixed: Mapping[int, Any] = {}  # indices, by axis of the argument
        self.windows: Mapping[int, Window] = {}  # by axis of the argument
        self.owner: Global = self  # the argument

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the argument that are not fixed."""
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.fixed)

    @property
    def shape(self) -> Shape:
        """Extents of the axes that are not fixed; a window ends where it or the tensor ends."""
        windows = self.windows
        return Shape(windows[a].extent if a in windows else self.extents[a] for a in self.axes)

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def rows(self) -> Scalar:
        """Extent of the second-to-last axis; 1 for a tensor of rank 1."""
        return self.shape[-2] if self.rank > 1 else cast(Scalar, 1)

    @property
    def cols(self) -> Scalar:
        """Extent of the last axis."""
        return self.shape[-1]

    @property
    def first(self) -> TileRef:
        """The tile at the start of every axis that is not fixed."""
        return self._tile((0,) * self.rank)

    @called("at", TypeMismatch)
    def at(self, *index: Int) -> Global:
        """This tensor with its first axes fixed."""
        if len(index) > max(self.rank - 2, 0):
            raise Mismatch(
                f"fixes {len(index)} axes of a tensor of rank {self.rank}, the last two must stay",
                help=f"`{self.name}[i]` names a row where a vector is moved",
            )
        self._check_index(".at(...)", index)
        return self._view(index + (WHOLE,) * (self.rank - len(index)))

    @called("window", TypeMismatch)
    def window(self, axis: int, start: Int, stop: Int) -> Global:
        """The elements from `start` to before `stop` of an axis, as a tensor: its coordinates count from `start`.

        The bounds are ints or run-time int32 and may lie outside the tensor; if `start` is not below `stop`, the
        window is empty. Outside a window of the axis of a tile's rows or columns a load reads the fill and a store
        writes nothing; an index of another axis outside is an error. pk.check does not note tiles between the bounds
        as wasted work. Axes count as in `.shape`; negative ones count from the end.
        """
        if not is_number(axis) or not -self.rank <= axis < self.rank:
            raise Mismatch(
                f"`axis` must be a compile-time int from {-self.rank} to {self.rank - 1}, not {describe(axis)}"
            )
        for name, bound in (("start", start), ("stop", stop)):
            if not is_int32(bound):
                raise Mismatch(
                    f"`{name}` must be an int32, not {describe(bound)}",
                    help=f"`{name}.to(pk.int32)` is one" if isinstance(bound, Scalar) else None,
                )
        number = self.axes[axis]  # that of the argument
        extent = self.extents[number]
        whole = self.windows.get(number, Window(0, 0, extent, extent, extent))
        return self._part(self.fixed, {**self.windows, number: whole.part(start, stop)})

    def _part(self, fixed: Mapping[int, Any], windows: Mapping[int, Window]) -> Global:
        part = Global(self.type, self.name, self.extents)
        part.fixed, part.windows, part.owner = fixed, windows, self.owner
        return part

    def _view(self, index: tuple[Any, ...]) -> Global:
        """This tensor with an index for each axis: the axes with a whole slice are kept, the others are fixed."""
        places = zip(self.axes, index, strict=True)
        fixed = {axis: i for axis, i in places if not isinstance(i, slice)}
        return self._part({**self.fixed, **fixed}, self.windows)

    def _tile(self, index: tuple[Any, ...]) -> TileRef:
        """The tile with an index for each axis that is not fixed, the last two of which are those of its plane."""
        places = {**self.fixed, **dict(zip(self.axes, index, strict=True))}
        every = tuple(places[axis] for axis in range(len(places)))
        return TileRef(self.owner, every, self.axes[-2:], self.windows)

    @called("tiles", TypeMismatch)
    def tiles(self, rows: Int, cols: Int) -> Shape:
        """The extents of the leading axes, then the counts of rows x cols tiles that cover the last two, rounded up."""
        _check_sides(self, rows=rows, cols=cols)
        cdiv = OPERATORS["cdiv"]
        return Shape((*self.shape[:-2], cdiv(self.rows, rows), cdiv(self.cols, cols)))

    @overload
    def __getitem__(self, index: Index | tuple[Index, ...]) -> TileRef: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, index: slice | tuple[Index | slice, ...]) -> Global: ...
    def __getitem__(self, index: Any) -> TileRef | Global:
        """A tile; with a whole slice, `:`, the tensor of the axes that have one or are left out, as in NumPy."""
        given = numbers(index if isinstance(index, tuple) else (index,))
        is_view = any(isinstance(i, slice) for i in given)
        left_out = WHOLE if is_view else 0
        missing = self.rank - len(given)
        dots = [i for i, x in enumerate(given) if x is Ellipsis]
        if len(dots) == 1:
            missing += 1
            given = given[: dots[0]] + (left_out,) * missing + given[dots[0] + 1 :]
        if missing < 0 or (self.rank > 2 and len(given) < self.rank and not is_view):
            indices = "1 index" if len(given) == 1 else f"{len(given)} indices"
            why = f"{len(self.fixed)} of the {len(self.extents)} axes of {self.name} are fixed"
            raise TypeMismatch(
                f"{self.name}[...]: {indices} for a tensor of rank {self.rank}",
                operands=self.operand,
                help=self.way_to_index if missing >= 0 else why if self.fixed else None,
            )
        self._check_index("[...]", [i for i in given if not _is_whole(i)], is_view)
        filled = given + (left_out,) * (self.rank - len(given))
        return self._view(filled) if is_view else self._tile(filled)

    @property
    def way_to_index(self) -> str:
        """The help if a tensor of more than two axes lacks indices: which axes they are for is not clear."""
        leading = ", ".join("ijk"[: self.rank - 2])
        name = self.name
        return (
            f"each axis has an index: {name}[{leading}, row, col], or {name}.at({leading})[row, col]; a `:` keeps an "
            f"axis, so {name}[:, j] is the tensor of the other axes"
        )

    def _check_index(self, where: str, index: Iterable[Any], of_view: bool = False) -> None:
        for i in index:
            if not is_number(i) and not (isinstance(i, Scalar) and i.dtype.is_int):
                raise TypeMismatch(
                    f"{self.name}{where}: an index must be an int32, not {describe(i)}",
                    operands=self.operand,
                    help=habits.index(type(i).__name__, self.name),
                )
            if of_view and isinstance(i, int) and i < 0:
                raise TypeMismatch(
                    f"{self.name}{where}: an index beside `:` must count from the start, not be {i}",
                    operands=self.operand,
                    help=f"{self.name}.shape[axis] - {-i} is the index",
                )

    def __iter__(self) -> NoReturn:
        raise LanguageError(f"{self.name} is a tensor and cannot be iterated over")


def _is_whole(index: Any) -> bool:
    return isinstance(index, slice) and index.start is index.stop is index.step is None


if not TYPE_CHECKING:  # handles of memory have it, too: the operation refuses them
    Value.to = TileRef.to = Operators.to

_HANDLES: dict[type, type[Value]] = {
    SCALAR: Scalar,
    RT: RegTile,
    RV: RegVector,
    ST: SharedTile,
    SV: SharedVector,
    SR: SharedRow,
    SEMAPHORE: Semaphore,
}


def handle(type_: Type, name: str = "", loc: Loc | None = None) -> Value:
    """A new handle of the class for a type."""
    return _HANDLES[type(type_)](type_, name, loc)


def describe(thing: object) -> str:
    """A value or a Python object as an error text shows it: its type, or the object."""
    match thing:
        case TileRef():
            return f"{thing.type} at {thing}"
        case Value():
            return str(thing.type)
        case Undefined():
            return "nothing"
        case int() if thing.bit_length() > 64:
            return f"an int of {thing.bit_length()} bits"
        case int() | float() | str() | None:
            return repr(thing)
        case DType() | Spread() | GL() | ST() | RT() | RV():
            return str(thing)
        case np.ndarray():
            return f"a NumPy array of {thing.dtype} and shape {thing.shape}"
        case np.generic():
            return f"the NumPy number {thing}, a {thing.dtype}"
        case slice():
            ends = [thing.start, thing.stop, *([] if thing.step is None else [thing.step])]
            return ":".join("" if end is None else describe(end) for end in ends)
        case tuple():
            return f"({', '.join(map(describe, thing))})"
        case list() | dict() | set():
            return f"a {type(thing).__name__}"
    if inspect.isroutine(thing) or inspect.isclass(thing):
        return f"the function {getattr(thing, '__name__', '')}"
    return getattr(thing, "description", type(thing).__name__)


def is_number(thing: object) -> TypeGuard[int]:
    """Whether it is a Python int that an int32 can hold; raises if a name has no value."""
    if isinstance(thing, Undefined):
        thing.fail()
    return is_int(thing) and int32.represents(thing)


def is_int32(thing: object) -> bool:
    """Whether it is an int32, known when the kernel is recorded or when it runs."""
    return is_number(thing) or (isinstance(thing, Scalar) and thing.dtype == int32)
