"""Keys that are equal only for the same contents: of the same types, bit for bit, and of the same code.

Python's `==` is coarser: 0.0 and -0.0 are equal, and so are 1, 1.0 and True.
"""

from __future__ import annotations

import enum
import functools
import inspect
import struct
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from types import CellType, CodeType, FunctionType, NoneType
from typing import Any

import numpy as np

# The flags of code but for those of __future__ imports and of its nesting in another function.
_FLAGS = 0xFFFF & ~inspect.CO_NESTED


# Values of these types that are equal have the same contents.
EXACT_TYPES = frozenset((bool, int, str, NoneType, FunctionType))

MOST_KEPT = 4096
_ids: dict[int, tuple[Any, Hashable]] = {}  # holds the values, so that their ids stay taken
_tokens: dict[Hashable, Hashable] = {}


class Same:
    """A key that is equal for one object only, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class CodeKey:
    """The key of code: its instructions, constants and names, whatever the file and the lines. The hash is kept."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, code: CodeType) -> None:
        constants = tuple(
            code_key(k) if isinstance(k, CodeType) else exact(k) for k in code.co_consts
        )
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        flags = code.co_flags & _FLAGS
        names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._parts = code.co_code, constants, counts, flags, names
        self._hash = hash(self._parts)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, CodeKey) and self._parts == other._parts)

    def __hash__(self) -> int:
        return self._hash


def plain(x: Any) -> Hashable | None:
    """The key of a value without parts: a number, a string, bytes or an enumerator. None for all others."""
    kind = type(x)
    if x is None or x is ... or kind in (bool, int, str, bytes):
        return kind, x
    if kind is float:
        return kind, struct.pack("d", x)
    if kind is complex:
        return kind, struct.pack("2d", x.real, x.imag)
    if isinstance(x, np.generic):
        return kind, x.dtype.str, x.tobytes()
    if isinstance(x, enum.Enum):
        return kind.__module__, kind.__qualname__, x.name, plain(x.value) or Same(x)
    return None


def exact(x: Any) -> Hashable:
    """The key of a constant: its contents if it is immutable, a list, a dict or a function; else the object."""
    if (key := plain(x)) is not None:
        return key
    kind = type(x)
    if isinstance(x, tuple | list):
        return kind, tuple(map(exact, x))
    if isinstance(x, dict):
        return kind, tuple((exact(k), exact(v)) for k, v in x.items())
    if isinstance(x, set | frozenset):
        return kind, frozenset(map(exact, x))
    if isinstance(x, slice):  # from Python 3.14 on a constant of code
        return kind, exact((x.start, x.stop, x.step))
    if isinstance(x, functools.partial):
        return kind, exact(x.func), exact(x.args), exact(x.keywords)
    if isinstance(x, FunctionType):
        parts = (x.__defaults__, x.__kwdefaults__, *map(contents, x.__closure__ or ()))
        return kind, Same(x.__globals__), code_key(x.__code__), tuple(map(_shallow, parts))
    if is_frozen(x):
        return kind, tuple(exact(getattr(x, field.name)) for field in fields(x))
    return Same(x)


def kept(x: Any) -> Hashable:
    """`exact(x)` as a token. If x cannot change, it is found by identity, because most calls pass the same x."""
    known = _ids.get(id(x))
    if known is not None:
        return known[1]
    key = exact(x)
    if not _is_fixed(x):
        return key
    token = _tokens.get(key) or _with_room(_tokens).setdefault(key, object())
    _with_room(_ids)[id(x)] = x, token
    return token


def _with_room(entries: dict[Any, Any]) -> dict[Any, Any]:
    """The entries, or none if there are too many."""
    if len(entries) >= MOST_KEPT:
        entries.clear()
    return entries


def _is_fixed(x: Any) -> bool:
    """Whether x is a tuple, a frozen set or a frozen dataclass without lists, dicts and sets in it."""
    if isinstance(x, tuple | frozenset):
        return not any(map(_is_volatile, x))
    return is_frozen(x) and not any(_is_volatile(getattr(x, f.name)) for f in fields(x))


def _is_volatile(x: Any) -> bool:
    if isinstance(x, tuple | frozenset) or is_frozen(x):
        return not _is_fixed(x)
    return isinstance(x, list | dict | set | functools.partial)


def _shallow(x: Any) -> Hashable:
    # A function may refer to itself through its variables, so functions in it are told apart by identity.
    if isinstance(x, tuple):
        return tuple(map(_shallow, x))
    if isinstance(x, dict):
        return tuple((k, _shallow(v)) for k, v in x.items())
    return plain(x) or Same(x)


def is_frozen(x: Any) -> bool:
    """Whether x is an instance of a frozen dataclass."""
    return is_dataclass(x) and not isinstance(x, type) and type(x).__dataclass_params__.frozen  # type: ignore[attr-defined]


def contents(cell: CellType) -> Any:
    """The variable in a cell; the cell if the variable has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


@functools.lru_cache(maxsize=4096)
def _kept(code: Same) -> CodeKey:
    assert isinstance(code.value, CodeType)
    return CodeKey(code.value)


def code_key(code: CodeType) -> CodeKey:
    """The key of code, made once."""
    return _kept(Same(code))
