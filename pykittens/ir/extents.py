"""Extents of tensors: shapes, and windows, which are ranges of an axis with bounds known when the kernel runs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, overload

from pykittens.errors import TypeMismatch
from pykittens.ir.operators import OPERATORS

if TYPE_CHECKING:
    from types import EllipsisType

    from pykittens.ir.values import Scalar

    Index: TypeAlias = "Scalar | int | EllipsisType"


class Shape(tuple["Scalar", ...]):
    """Extents of a tensor: Python ints if known, else run-time scalars. Comparing gives a run-time truth."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Scalar: ...
    @overload
    def __getitem__(self, index: slice) -> Shape: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            raise TypeMismatch(
                f"a shape or the numbers of tiles have one index, not {len(index)}",
                help="x[i, j] is a tile of a tensor; the operation states its size: pk.load(x[i, j], rows=16, cols=16)",
            )
        found = super().__getitem__(index)
        return Shape(found) if isinstance(index, slice) else found

    def __eq__(self, other: object) -> Scalar | bool:  # type: ignore[override]
        if not isinstance(other, tuple):
            return NotImplemented
        if len(self) != len(other):
            return False
        pairs = [a == b for a, b in zip(self, other, strict=True)]
        if any(p is False for p in pairs):
            return False
        unknown = [p for p in pairs if p is not True]
        return functools.reduce(OPERATORS["and"], unknown) if unknown else True

    def __ne__(self, other: object) -> Scalar | bool:  # type: ignore[override]
        equal = self == other
        return not equal if isinstance(equal, bool) else OPERATORS["not"](equal)

    __hash__ = tuple.__hash__


@dataclass(frozen=True, eq=False)
class Window:
    """A range of an axis: coordinates count from `origin`, and elements from `low` to before `high` exist.

    stop: the end as stated, which may lie outside the tensor.
    """

    origin: Any
    low: Any
    high: Any
    stop: Any
    extent: Any

    def part(self, start: Any, stop: Any) -> Window:
        """The window from `start` to before `stop` of this one, counted from its origin."""
        maximum, minimum = OPERATORS["maximum"], OPERATORS["minimum"]
        if not (isinstance(self.origin, int) and self.origin == 0):
            start, stop = self.origin + start, self.origin + stop
        low, high = maximum(self.low, start), minimum(self.high, stop)
        return Window(start, low, high, stop, maximum(high - start, 0))

    @property
    def bounds(self) -> tuple[Any, Any, Any]:
        """The values that a running kernel needs."""
        return self.origin, self.low, self.high
