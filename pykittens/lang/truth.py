"""`and`, `or`, `not` and chained comparisons of a rewritten kernel: Python's, or run-time truths."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pykittens.ir.values import OPERATORS, Value

Thunk = Callable[[], Any]


def and_(first: Thunk, *rest: Thunk) -> Any:
    """`a and b`, run-time if one of them is."""
    return _join(first, rest, "and", stops_at=False)


def or_(first: Thunk, *rest: Thunk) -> Any:
    """`a or b`, run-time if one of them is."""
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


_COMPARE = {"Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge}
_COMPARE |= {"Eq": operator.eq, "NotEq": operator.ne}


def chain(words: tuple[str, ...], left: Any, *rest: Thunk) -> Any:
    """`a < b < c`: each neighbouring pair compared, joined by `and`."""
    result: Any = True
    for word, thunk in zip(words, rest, strict=True):
        right = thunk()
        part = _COMPARE[word](left, right)
        if isinstance(result, Value) or isinstance(part, Value):
            result = (
                part
                if result is True
                else result
                if part is True
                else OPERATORS["and"](result, _truth(part))
            )
        else:
            result = part
        if not isinstance(result, Value) and not result:
            return result
        left = right
    return result
