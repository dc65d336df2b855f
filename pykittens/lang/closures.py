"""The constants that a kernel reads from outside: globals, and variables of the functions that enclose it.

Recording fixes their values, so a kernel is recorded again if they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import CellType, CodeType, FunctionType
from typing import Any

from pykittens.errors import is_of_package, is_user_file
from pykittens.types.dtypes import DType

_CONSTANTS = (bool, int, float, str, DType, type(None))


class Outside:
    """The names that functions, and the user's functions that they call, read from outside, and their current values.

    Numbers, strings, dtypes and tuples of them are tracked; items of lists and attributes of objects are not.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._functions = functions

    @cached_property
    def _variables(self) -> tuple[list[tuple[dict[str, Any], str]], list[CellType]]:
        """Globals and closure cells, found at the first call, when the module is complete."""
        names: list[tuple[dict[str, Any], str]] = []
        cells: list[CellType] = []
        seen: set[Any] = set()
        for function in (f for first in self._functions for f in _reached(first, seen)):
            read = {n for code in _codes(function.__code__) for n in code.co_names}
            known = function.__globals__
            # A name that is a dtype at the first call is taken to stay one.
            names += [(known, n) for n in sorted(read) if n in known and _changes(known[n])]
            cells += function.__closure__ or ()
        return names, cells

    @cached_property
    def _is_empty(self) -> bool:
        return not any(self._variables)

    def values(self) -> Sequence[Any]:
        """The current constants, each with its type: 1, 1.0 and True differ."""
        if self._is_empty:
            return ()
        names, cells = self._variables
        found = [(type(v), v) for v in (known.get(n) for known, n in names)]
        return found + [(type(v), v) for v in map(_contents, cells) if _is_constant(v)]


def functions_among(values: Iterable[Any]) -> Iterator[FunctionType]:
    """The functions among the keyword constants of a kernel, also inside tuples, lists and dataclasses."""
    for value in values:
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, tuple | list):
            yield from functions_among(value)
        elif is_dataclass(value) and not isinstance(value, type):
            yield from functions_among(getattr(value, field.name) for field in fields(value))


def _reached(function: Any, seen: set[Any]) -> Iterator[FunctionType]:
    """The function and the user's functions that it names, directly or through others."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    if is_of_package(function.__code__.co_filename):
        return  # constants of the package never change
    seen.add(function)
    yield function
    read = {n for code in _codes(function.__code__) for n in code.co_names}
    named = [function.__globals__.get(n) for n in sorted(read)]
    for other in (*named, *map(_contents, function.__closure__ or ())):
        if isinstance(other, FunctionType) and is_user_file(other.__code__.co_filename):
            yield from _reached(other, seen)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return cell


def _changes(value: Any) -> bool:
    return _is_constant(value) and not isinstance(value, DType)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _CONSTANTS)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
