"""The constants a kernel reads from outside itself: globals and variables of the functions round it.

Recording bakes their values in, so a kernel whose constants have changed since is another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType
from typing import Any

from pykittens.types.dtypes import DType

_CONSTANTS = (bool, int, float, str, DType)


class Outside:
    """The names a function reads from outside, and their values now."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._globals: dict[str, Any] = function.__globals__
        names = {n for code in _codes(function.__code__) for n in code.co_names}
        # What is a module, a function or a dtype when the kernel is made stays one.
        self._names = [n for n in sorted(names) if _changes(self._globals.get(n))]
        self._cells: tuple[CellType, ...] = function.__closure__ or ()
        self.is_empty = not self._names and not self._cells

    def values(self) -> list[Any]:
        """The constants as they are now; objects of other kinds are taken to stay what they are."""
        found = [self._globals.get(n) for n in self._names]
        for cell in self._cells:
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            if _is_constant(value):
                found.append(value)
        return found


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
