"""`and`, `or`, `not` and chained comparisons of a rewritten kernel, on Python values or run-time bools.

Both sides of a run-time `and` or `or` are evaluated; if the first side is a Python value, Python's rule applies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pykittens.errors import LanguageError
from pykittens.ir.operators import OPERATORS
from pykittens.ir.values import Scalar, Value, describe
from pykittens.types.dtypes import bool_

Thunk = Callable[[], Any]


def and_(first: Thunk, *rest: Thunk) -> Any:
    """`a and b`, a run-time bool if one of them is."""
    return _join(first, rest, "and", stops_at=False)


def or_(first: Thunk, *rest: Thunk) -> Any:
    """`a or b`, a run-time bool if one of them is."""
    return _join(first, rest, "or", stops_at=True)


def _join(first: Thunk, rest: tuple[Thunk, ...], word: str, stops_at: bool) -> Any:
    result = first()
    for thunk in rest:
        if isinstance(result, Value):
            result = OPERATORS[word](result, _truth(thunk()))
        elif bool(result) is stops_at:
            return result
        else:
            result = thunk()
    return result


def _truth(value: Any) -> Any:
    return value if isinstance(value, Value) else bool(value)


def not_(value: Any) -> Any:
    """`not a`."""
    return OPERATORS["not"](value) if isinstance(value, Value) else not value


_COMPARE = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}


def chain(words: tuple[str, ...], left: Any, *rest: Thunk) -> Any:
    """`a < b < c`: comparisons of neighbours joined by `and`."""
    result: Any = True
    for word, thunk in zip(words, rest, strict=True):
        right = thunk()
        pair = _COMPARE[word](left, right)
        if not isinstance(result, Value):  # true so far
            result = pair
        elif pair is not True:
            result = OPERATORS["and"](result, _truth(pair))
        if not isinstance(result, Value) and not result:
            return result
        left = right
    return result


def check_condition(condition: Any, word: str) -> None:
    """Raise unless a run-time value can be the condition of an `if` or `while`."""
    if not isinstance(condition, Scalar) or condition.dtype != bool_:
        raise LanguageError(
            f"the condition of a run-time `{word}` must be a bool scalar, not {describe(condition)}",
            help="compare it, as in `x != 0`"
            if isinstance(condition, Scalar)
            else "pk.any(t) and pk.all(t) of a tile of bools are scalars; pk.where(t, a, b) chooses for each element",
        )
