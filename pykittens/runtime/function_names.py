"""Names of functions in keys: a hash of the code tells functions of one name apart."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from pykittens.runtime.cache import key as hash_of


def function_name(function: Callable[..., Any] | None) -> str:
    """The name of a function with a hash of its code, which tells functions of one name apart."""
    if function is None:
        return ""
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return f"{name} {hash_of(*_text_of(function, set()))[:16]}"


def _text_of(value: Any, seen: set[int]) -> Iterator[str]:
    """The code and the constants of a function, of the functions in its closure and of those that it calls by name."""
    value = inspect.unwrap(value)
    code = value if isinstance(value, CodeType) else getattr(value, "__code__", None)
    if code is not None and id(code) not in seen:
        seen.add(id(code))
        yield code.co_code.hex()
        yield " ".join(code.co_names)
        for inner in code.co_consts:
            yield from _text_of(inner, seen)
        outside = getattr(value, "__globals__", {})
        for name in code.co_names:
            if isinstance(outside.get(name), FunctionType | bool | int | float | str):
                yield from _text_of(outside[name], seen)
        for cell in getattr(value, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a name that has no value yet
                yield from _text_of(cell.cell_contents, seen)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _text_of(inner, seen)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value)
    else:
        yield type(value).__qualname__
