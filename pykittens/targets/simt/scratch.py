"""What operations move through the scratch memory of a group, as data: their lowerings and the cost model read it.

A lowering that takes scratch memory declares what goes through it with `@scratch`, as in `shape.py` and `reduce.py`.
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
    """Where an element lies: `first + row * self.row + col * self.col`, in elements; a vector is one row."""

    row: int = 0
    col: int = 1
    first: int | None = None

    def __call__(self, row: Any, col: Any) -> Any:
        """The place of the element of a row and a column, for numbers and arrays."""
        return (self.first or 0) + row * self.row + col * self.col

    def text(self, row: str, col: str) -> str:
        """The same in C++, the longest stride first."""
        terms = sorted([(self.row, row), (self.col, col)], reverse=True)
        scaled = [x if stride == 1 else f"{x} * {stride}" for stride, x in terms if stride]
        return " + ".join(scaled if self.first is None else [str(self.first), *scaled])


@dataclass(frozen=True)
class Put:
    """A value that is written. row: the index of the only row of a tile that is, if not all are."""

    value: Value
    at: Strides = Strides()
    row: Any = None


@dataclass(frozen=True)
class Exchange:
    """Elements that change lanes: written to their places, and read by the lanes of the result.

    unit: if there is not room for all places, they are used in several passes, each of a multiple of `unit` places.
    """

    puts: tuple[Put, ...]
    take: Strides = Strides()
    unit: int = LANES

    def places(self, result: Value, warps: int) -> int:
        """Places that are written or read, in a group of so many warps."""
        written = [_end(p.value.type, p.at) for p in self.puts]
        type_ = result.type
        if isinstance(type_, RV) and type_.spread is Spread.PLAIN:
            # The lanes read their padding, too.
            padded = plain_registers(type_.length, warps) * warps * LANES
            return max(*written, (self.take.first or 0) + padded)
        return max(*written, _end(type_, self.take))


def _end(type_: Any, at: Strides) -> int:
    if isinstance(type_, RT):
        return max(type_.rows * at.row, type_.cols * at.col)
    return (at.first or 0) + int(type_.length)


@dataclass(frozen=True)
class Partials:
    """A vector of `length` partial results a warp, one vector after another: each warp writes its own and reads all.

    fields: the bytes of each field of a partial result. bytes: what it takes, with its padding.
    """

    length: int
    fields: tuple[int, ...]
    bytes: int


# What a call moves through scratch memory in a group of so many warps, None if nothing; or, by the name of an operation
# or a family, why its moves are not counted.
Declaration = Callable[[Call, int], Exchange | Partials | None]
SCRATCH: dict[str, Declaration | str] = {}


def scratch(name: str) -> Callable[[Declaration], Declaration]:
    """Decorator: what an operation, or a family of them, moves through scratch memory."""

    def declare(declaration: Declaration) -> Declaration:
        SCRATCH[name] = declaration
        return declaration

    return declare


def declared(op: Op[..., Any]) -> Declaration | str | None:
    """What an operation declares of the scratch memory that its lowering takes; None where it declares nothing."""
    return SCRATCH.get(op.name) or (SCRATCH.get(op.family.name) if op.family else None)


def through_scratch(call: Call, warps: int) -> Exchange | Partials | None:
    """What a call moves through scratch memory in a group of so many warps; None where nothing is moved or counted."""
    declaration = declared(call.op)
    return declaration(call, warps) if callable(declaration) else None
