"""What the language takes as a number: Python's, and those of NumPy and other libraries, which become Python's."""

from __future__ import annotations

import operator
from typing import Any, TypeGuard

import numpy as np

from pykittens.errors import ArgumentError

_PACKAGE = __package__.partition(".")[0] + "."
# Things that are no number, or Python's already.
_DONE = frozenset((int, float, bool, str, tuple, list, dict, slice, type(None)))


def number(x: Any) -> Any:
    """A number as one of Python: of NumPy, or of a class with `__index__`. Anything else as it is."""
    kind = type(x)
    if kind in _DONE or kind.__module__.startswith(_PACKAGE):  # handles, which have numbers later
        return x
    if isinstance(x, np.generic):
        made = x.item()
        return made if isinstance(made, int | float) else x
    if isinstance(x, int | type) or not hasattr(kind, "__index__") or hasattr(kind, "__dlpack__"):
        return x
    try:
        return operator.index(x)
    except TypeError:
        return x


def numbers(x: Any) -> Any:
    """An argument with all numbers in it as Python's: in a tuple, a list, a dict or a slice."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(map(numbers, x))
    if kind is dict:
        return {key: numbers(value) for key, value in x.items()}
    if kind is slice:
        return slice(number(x.start), number(x.stop), number(x.step))
    return number(x)


def is_int(x: Any) -> TypeGuard[int]:
    """Whether an argument is an int and no bool, after `number`."""
    return isinstance(x, int) and not isinstance(x, bool)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless it is an int of at least so much."""
    if not is_int(value) or value < least:
        raise ArgumentError(f"`{name}` must be an int of at least {least}, not {value!r}")


def check_below(name: str, value: Any, below: int) -> None:
    """Raise unless it is an int from 0 to below - 1."""
    if not is_int(value) or not 0 <= value < below:
        raise ArgumentError(f"`{name}` must be from 0 to {below - 1}, not {value!r}")
