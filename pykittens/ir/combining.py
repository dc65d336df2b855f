"""The types of operations element by element, for type checkers: the result's class by the classes of the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from pykittens.ir.values import RegTile, RegVector, Scalar

if TYPE_CHECKING:

    class VectorOrTile(RegVector, RegTile):  # type: ignore[misc]
        """What two vectors combine to: a vector, or a tile if one is per row and the other per column."""

        def __getitem__(self, index: slice | tuple[slice, ...]) -> VectorOrTile: ...


Number: TypeAlias = Scalar | float
Elements: TypeAlias = RegVector | Scalar | float
Operand: TypeAlias = RegTile | RegVector | Scalar | float

P = ParamSpec("P")
H = TypeVar("H", bound=RegTile | RegVector | Scalar)
N = TypeVar("N", int, float)
X = TypeVar("X", bound=RegTile | RegVector | Scalar | float)


class _WithTile(Protocol):
    def __call__(self, other: Operand, /) -> RegTile: ...


class _WithVector(Protocol):
    @overload
    def __call__(self, other: RegVector, /) -> VectorOrTile: ...
    @overload
    def __call__(self, other: RegTile, /) -> RegTile: ...
    @overload
    def __call__(self, other: Number, /) -> RegVector: ...


class _WithEither(Protocol):
    def __call__(self, other: Operand, /) -> VectorOrTile: ...


class _WithScalar(Protocol):
    @overload
    def __call__(self, other: H, /) -> H: ...
    @overload
    def __call__(self, other: float, /) -> Scalar: ...


class Operator:
    """The type of an operator's method, read from a handle."""

    @overload
    def __get__(self, handle: VectorOrTile, owner: object = None) -> _WithEither: ...
    @overload
    def __get__(self, handle: RegTile, owner: object = None) -> _WithTile: ...
    @overload
    def __get__(self, handle: RegVector, owner: object = None) -> _WithVector: ...
    @overload
    def __get__(self, handle: Scalar, owner: object = None) -> _WithScalar: ...
    def __get__(self, handle: Any, owner: object = None) -> Any: ...
    def __call__(self, other: Any, /) -> Any: ...  # of no handle: what `sum` asks for


class Binary(Generic[P]):
    """A function of two operands as type checkers see it: the result has the class of both broadcast together."""

    @overload
    def __call__(self, a: RegVector, b: RegVector, /) -> VectorOrTile: ...
    @overload
    def __call__(self, a: VectorOrTile, b: Number, /) -> VectorOrTile: ...
    @overload
    def __call__(self, a: Number, b: VectorOrTile, /) -> VectorOrTile: ...
    @overload
    def __call__(self, a: RegTile, b: Operand, /) -> RegTile: ...
    @overload
    def __call__(self, a: Operand, b: RegTile, /) -> RegTile: ...
    @overload
    def __call__(self, a: RegVector, b: Number, /) -> RegVector: ...
    @overload
    def __call__(self, a: Number, b: RegVector, /) -> RegVector: ...
    @overload
    def __call__(self, a: Scalar, b: Number, /) -> Scalar: ...
    @overload
    def __call__(self, a: Number, b: Scalar, /) -> Scalar: ...
    @overload
    def __call__(self, a: N, b: N, /) -> N: ...
    @overload
    def __call__(self, *operands: P.args, **named: P.kwargs) -> Any: ...
    def __call__(self, *operands: Any, **named: Any) -> Any: ...


class Ternary(Generic[P]):
    """A function of three operands as type checkers see it."""

    @overload
    def __call__(self, a: Number, b: Number, c: Number, /) -> Scalar: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, a: Elements, b: Elements, c: Elements, /) -> VectorOrTile: ...
    @overload
    def __call__(self, a: RegTile, b: Operand, c: Operand, /) -> RegTile: ...
    @overload
    def __call__(self, a: Operand, b: RegTile, c: Operand, /) -> RegTile: ...
    @overload
    def __call__(self, a: Operand, b: Operand, c: RegTile, /) -> RegTile: ...
    @overload
    def __call__(self, *operands: P.args, **named: P.kwargs) -> Any: ...
    def __call__(self, *operands: Any, **named: Any) -> Any: ...


def binary(function: Callable[P, Any]) -> Binary[P]:
    """Decorator: gives a function of two operands its types."""
    return cast(Binary[P], function)


def ternary(function: Callable[P, Any]) -> Ternary[P]:
    """Decorator: gives a function of three operands its types."""
    return cast(Ternary[P], function)
