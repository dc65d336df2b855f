"""Python's operators on handles. The operation of each is looked up in OPERATORS, where `@op(operator=...)` puts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPERATORS: dict[str, Callable[..., Any]] = {}


class Arithmetic:
    """Python's operators, each handed to the operation registered for its symbol.

    Handles of memory have them, too: the operation says what they must be.
    """

    __array_ufunc__ = None  # `array + tile` is refused by `tile`, not taken apart by NumPy

    def __add__(self, other: Any) -> Any:
        return OPERATORS["+"](self, other)

    def __radd__(self, other: Any) -> Any:
        return OPERATORS["+"](other, self)

    def __sub__(self, other: Any) -> Any:
        return OPERATORS["-"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return OPERATORS["-"](other, self)

    def __mul__(self, other: Any) -> Any:
        return OPERATORS["*"](self, other)

    def __rmul__(self, other: Any) -> Any:
        return OPERATORS["*"](other, self)

    def __truediv__(self, other: Any) -> Any:
        return OPERATORS["/"](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return OPERATORS["/"](other, self)

    def __floordiv__(self, other: Any) -> Any:
        return OPERATORS["//"](self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return OPERATORS["//"](other, self)

    def __mod__(self, other: Any) -> Any:
        return OPERATORS["%"](self, other)

    def __rmod__(self, other: Any) -> Any:
        return OPERATORS["%"](other, self)

    def __pow__(self, other: Any) -> Any:
        return OPERATORS["**"](self, other)

    def __rpow__(self, other: Any) -> Any:
        return OPERATORS["**"](other, self)

    def __and__(self, other: Any) -> Any:
        return OPERATORS["&"](self, other)

    def __rand__(self, other: Any) -> Any:
        return OPERATORS["&"](other, self)

    def __or__(self, other: Any) -> Any:
        return OPERATORS["|"](self, other)

    def __ror__(self, other: Any) -> Any:
        return OPERATORS["|"](other, self)

    def __xor__(self, other: Any) -> Any:
        return OPERATORS["^"](self, other)

    def __rxor__(self, other: Any) -> Any:
        return OPERATORS["^"](other, self)

    def __lshift__(self, other: Any) -> Any:
        return OPERATORS["<<"](self, other)

    def __rlshift__(self, other: Any) -> Any:
        return OPERATORS["<<"](other, self)

    def __rshift__(self, other: Any) -> Any:
        return OPERATORS[">>"](self, other)

    def __rrshift__(self, other: Any) -> Any:
        return OPERATORS[">>"](other, self)

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)

    def __abs__(self) -> Any:
        return OPERATORS["abs"](self)

    def __invert__(self) -> Any:
        return OPERATORS["~"](self)

    def __lt__(self, other: Any) -> Any:
        return OPERATORS["<"](self, other)

    def __le__(self, other: Any) -> Any:
        return OPERATORS["<="](self, other)

    def __gt__(self, other: Any) -> Any:
        return OPERATORS[">"](self, other)

    def __ge__(self, other: Any) -> Any:
        return OPERATORS[">="](self, other)


class Operators(Arithmetic):
    """Python's operators with `==` and `!=`, which of other handles are Python's own."""

    def __eq__(self, other: object) -> Any:
        return OPERATORS["=="](self, other)

    def __ne__(self, other: object) -> Any:
        return OPERATORS["!="](self, other)

    __hash__ = object.__hash__
