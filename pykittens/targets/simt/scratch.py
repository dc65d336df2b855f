"""Moves of elements through the scratch memory of a group, as data for the lowerings and the cost model.

A lowering that needs scratch memory declares its moves with `@scratch`, as in `shape.py` and `reduce.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.op import Op
from pykittens.ir.values import Value
from pykittens.types.layouts import LANES, plain_registers
from pykittens.types.tiles import RT, RV, Spread


@dataclass(frozen=True)
class Strides:
    """The slot of an element: `first + row * self.row + col * self.col`; a vector is one row."""

    row: int = 0
    col: int = 1
    first: int | None = None

    def __call__(self, row: Any, col: Any) -> Any:
        """The slot of the element in a row and a column, which may be arrays."""
        return (self.first or 0) + row * self.row + col * self.col

    def text(self, row: str, col: str) -> str:
        """The slot as a C++ expression, the longest stride first."""
        terms = sorted([(self.row, row), (self.col, col)], reverse=True)
        scaled = [x if stride == 1 else f"{x} * {stride}" for stride, x in terms if stride]
        return " + ".join(scaled if self.first is None else [str(self.first), *scaled])


@dataclass(frozen=True)
class Put:
    """A value that is written. row: the index of the only row that is written, if it is a tile and not all are."""

    value: Value
    at: Strides = Strides()
    row: Any = None


@dataclass(frozen=True)
class Exchange:
    """Elements that change lanes: they are written to slots, and the lanes of the result read them.

    unit: if there is not room for all slots, the exchange takes several passes, each of a multiple of `unit` slots.
    """

    puts: tuple[Put, ...]
    take: Strides = Strides()
    unit: int = LANES

    def slots(self, result: Value, warps: int) -> int:
        """The number of slots, for a group of `warps` warps."""
        written = [_end(p.value.type, p.at) for p in self.puts]
        type_ = result.type
        if isinstance(type_, RV) and type_.spread is Spread.PLAIN:
            # The lanes also read their padding.
            padded = plain_registers(type_.length, warps) * warps * LANES
            return max(*written, (self.take.first or 0) + padded)
        return max(*written, _end(type_, self.take))


def _end(type_: Any, at: Strides) -> int:
    if isinstance(type_, RT):
        return max(type_.rows * at.row, type_.cols * at.col)
    return (at.first or 0) + int(type_.length)


@dataclass(frozen=True)
class Partials:
    """A vector of `length` partial results per warp, one after another: each warp writes its vector and reads all.

    fields: the bytes of each field of a partial result. bytes: the bytes of a partial result with its padding.
    """

    length: int
    fields: tuple[int, ...]
    bytes: int

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each field starts in a partial result, and its bytes."""
        return [(sum(self.fields[:i]), n) for i, n in enumerate(self.fields)]


@dataclass(frozen=True)
class JoinedPartials(Partials):
    """The same of columns that the warps share: each writes its vector, joins some columns, and reads the results.

    Of results that were found somewhere, which have several fields, only the last is read.
    """


# By operation or family: the function that gives the moves of a call in a group of `warps` warps, None if there are
# none; or the reason why the moves are not counted.
Declaration = Callable[[Call, int], Exchange | Partials | None]
SCRATCH: dict[str, Declaration | str] = {}


def scratch(name: str) -> Callable[[Declaration], Declaration]:
    """Decorator: declares the moves of an operation or a family through scratch memory."""

    def declare(declaration: Declaration) -> Declaration:
        SCRATCH[name] = declaration
        return declaration

    return declare


def declared(op: Op[Any]) -> Declaration | str | None:
    """The declaration of an operation or its family; None if there is none."""
    return SCRATCH.get(op.name) or (SCRATCH.get(op.family.name) if op.family else None)


def through_scratch(call: Call, warps: int) -> Exchange | Partials | None:
    """The moves of a call in a group of `warps` warps; None if there are none or they are not counted."""
    declaration = declared(call.op)
    return declaration(call, warps) if callable(declaration) else None
