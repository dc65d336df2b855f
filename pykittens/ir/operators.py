"""Python's operators on handles. The operation of each is looked up in OPERATORS, where `@op(operator=...)` puts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykittens.types.dtypes import DType

OPERATORS: dict[str, Callable[..., Any]] = {}


class Operators:
    """Python's operators, each handed to the operation registered for its symbol."""

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

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)

    def __lt__(self, other: Any) -> Any:
        return OPERATORS["<"](self, other)

    def __le__(self, other: Any) -> Any:
        return OPERATORS["<="](self, other)

    def __gt__(self, other: Any) -> Any:
        return OPERATORS[">"](self, other)

    def __ge__(self, other: Any) -> Any:
        return OPERATORS[">="](self, other)

    def __eq__(self, other: object) -> Any:
        return OPERATORS["=="](self, other)

    def __ne__(self, other: object) -> Any:
        return OPERATORS["!="](self, other)

    __hash__ = object.__hash__

    def to(self, dtype: DType) -> Any:
        """The value converted to another dtype, each element rounded once."""
        return OPERATORS["to"](self, dtype)
