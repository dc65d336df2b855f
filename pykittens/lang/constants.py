"""Keys of compile-time constants: constants with equal keys record the same kernel."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from types import FunctionType, NoneType
from typing import Any

import numpy as np

# Constants of these types that are equal are the same.
EXACT_TYPES = frozenset((bool, int, str, NoneType, FunctionType))

MOST_KEPT = 4096
_ids: dict[int, tuple[Any, Hashable]] = {}  # holds the values, so that their ids stay taken
_tokens: dict[Hashable, Hashable] = {}


def exact(value: Any) -> Hashable:
    """A key of a constant: 1, 1.0 and True differ, 0.0 and -0.0 too, and NaN equals itself, also inside tuples.

    Tuples and frozen dataclasses are looked up by identity first, because most calls pass the same object.
    """
    kind = type(value)
    if kind in EXACT_TYPES:
        return kind, value
    known = _ids.get(id(value))
    if known is not None:
        return known[1]
    if isinstance(value, float | complex | np.inexact):
        return kind, repr(value)
    if not isinstance(value, tuple | frozenset) and not _is_record(value):
        return kind, value
    try:
        content = _content(value)
        token = _tokens.get(content) or _kept(_tokens).setdefault(content, object())
    except TypeError:  # it is not hashable
        return kind, value
    _kept(_ids)[id(value)] = value, token
    return token


def _content(value: Any) -> Hashable:
    if isinstance(value, frozenset):
        return type(value), frozenset(map(exact, value))
    parts = value if isinstance(value, tuple) else (getattr(value, f.name) for f in fields(value))
    return type(value), *map(exact, parts)


def _is_record(value: Any) -> bool:
    """Whether the value is a dataclass that is compared by its fields and cannot change."""
    if not is_dataclass(value) or isinstance(value, type):
        return False
    parameters: Any = value.__dataclass_params__  # type: ignore[attr-defined]
    return bool(parameters.eq and parameters.frozen)


def _kept(entries: dict[Any, Any]) -> dict[Any, Any]:
    """The entries, or none if there are too many."""
    if len(entries) >= MOST_KEPT:
        entries.clear()
    return entries
