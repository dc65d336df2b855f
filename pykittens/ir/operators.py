"""Python's operators on handles. Each looks up its operation in OPERATORS, which `@op(operator=...)` fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from pykittens.ir.op import called

if TYPE_CHECKING:
    from pykittens.ir.combining import Operator
    from pykittens.types.dtypes import DType

OPERATORS: dict[str, Callable[..., Any]] = {}

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def _unary(symbol: str) -> Unary:
    return lambda self: OPERATORS[symbol](self)


def _binary(symbol: str) -> Binary:
    return lambda self, other: OPERATORS[symbol](self, other)


def _both(symbol: str) -> tuple[Binary, Binary]:
    """The methods for a handle on the left of an operator and on its right."""
    return _binary(symbol), lambda self, other: OPERATORS[symbol](other, self)


class Arithmetic:
    """Python's operators, each of which calls the operation registered for its symbol.

    Handles of memory have them, too, unknown to type checkers: the operation checks its operands.
    """

    __array_ufunc__ = None  # so that `array + tile` calls the operator of `tile`

    if not TYPE_CHECKING:
        __add__, __radd__ = _both("+")
        __sub__, __rsub__ = _both("-")
        __mul__, __rmul__ = _both("*")
        __truediv__, __rtruediv__ = _both("/")
        __floordiv__, __rfloordiv__ = _both("//")
        __mod__, __rmod__ = _both("%")
        __pow__, __rpow__ = _both("**")
        __and__, __rand__ = _both("&")
        __or__, __ror__ = _both("|")
        __xor__, __rxor__ = _both("^")
        __lshift__, __rlshift__ = _both("<<")
        __rshift__, __rrshift__ = _both(">>")
        __neg__ = _unary("neg")
        __abs__ = _unary("abs")
        __invert__ = _unary("~")
        __lt__ = _binary("<")
        __le__ = _binary("<=")
        __gt__ = _binary(">")
        __ge__ = _binary(">=")


class Operators(Arithmetic):
    """Python's operators, with `==` and `!=`; other handles keep Python's own."""

    if TYPE_CHECKING:
        __add__: Operator
        __radd__: Operator
        __sub__: Operator
        __rsub__: Operator
        __mul__: Operator
        __rmul__: Operator
        __truediv__: Operator
        __rtruediv__: Operator
        __floordiv__: Operator
        __rfloordiv__: Operator
        __mod__: Operator
        __rmod__: Operator
        __pow__: Operator
        __rpow__: Operator
        __and__: Operator
        __rand__: Operator
        __or__: Operator
        __ror__: Operator
        __xor__: Operator
        __rxor__: Operator
        __lshift__: Operator
        __rlshift__: Operator
        __rshift__: Operator
        __rrshift__: Operator
        __lt__: Operator
        __le__: Operator
        __gt__: Operator
        __ge__: Operator
        __eq__: Operator
        __ne__: Operator

        def __neg__(self) -> Self: ...
        def __abs__(self) -> Self: ...
        def __invert__(self) -> Self: ...

    else:

        def __eq__(self, other):
            return OPERATORS["=="](self, other)

        def __ne__(self, other):
            return OPERATORS["!="](self, other)

    __hash__ = object.__hash__

    @called("to")
    def to(self, dtype: DType) -> Self:
        """The value converted to another dtype, each element rounded once."""
        result: Self = OPERATORS["to"](self, dtype)
        return result
