"""Values of names at the start and end of a loop or branch, and the types with which they can be carried."""

from __future__ import annotations

import math
from typing import Any

from pykittens.ir.build import current
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import RegTile, RegVector, Scalar, Value
from pykittens.lang.truth import Thunk
from pykittens.types.dtypes import bool_, f32, int32
from pykittens.types.tiles import SCALAR, Type


class Named:
    """An object that is no value of the program but takes the name to which it is assigned, such as a pipeline."""

    name: str = ""


def named(hint: str | tuple[str, ...], value: Any) -> Any:
    """The value, with the name that the user assigns it to. A value keeps its first name."""
    if isinstance(hint, tuple):
        if isinstance(value, tuple) and len(value) == len(hint):
            for h, v in zip(hint, value, strict=True):
                named(h, v)
    elif isinstance(value, Value | Named) and not value.name:
        value.name = hint
    return value


MISSING = Undefined("the name", "has no value here")


def held(thunks: tuple[Thunk, ...]) -> list[Any]:
    """The current values of names; `MISSING` for a name without a value, or with a value of another block."""
    found = []
    for thunk in thunks:
        try:
            value = thunk()
        except NameError:
            value = MISSING
        hidden = isinstance(value, Undefined) or (
            isinstance(value, Value) and not _is_in_scope(value)
        )
        found.append(MISSING if hidden else value)
    return found


def _is_in_scope(value: Value) -> bool:
    return value.block is None or any(b is value.block for b in current("loop").stack)


def at_head(names: tuple[str, ...], values: list[Any], missing: str) -> list[Any]:
    """The values of names at the start of a body; a name without a value raises when used, for the reason `missing`."""
    return [
        Undefined(name, missing) if value is MISSING else _copied(value)
        for name, value in zip(names, values, strict=True)
    ]


def type_of(value: Any) -> Type | None:
    """The type with which a value is carried or merged, or None if it cannot be. A Python number becomes a scalar."""
    match value:
        case RegTile() | RegVector() | Scalar():
            return value.type
        case bool():
            return SCALAR(bool_)
        case int():
            return SCALAR(int32)
        case float():
            return SCALAR(f32)
        case _:
            return None


def same(a: Any, b: Any) -> bool:
    """Whether two names hold one object, or equal Python constants; 0.0 and -0.0 differ."""
    if isinstance(a, list | tuple | dict):
        return alike(a, b) and all(map(same, parts(a).values(), parts(b).values()))
    if isinstance(a, float) and isinstance(b, float) and a == 0 == b:
        return math.copysign(1, a) == math.copysign(1, b)
    return a is b or (type(a) is type(b) and isinstance(a, int | float | str) and a == b)


def alike(a: Any, b: Any) -> bool:
    """Whether two values are containers of one kind with the same keys."""
    return (
        isinstance(a, list | tuple | dict)
        and type(a) is type(b)
        and parts(a).keys() == parts(b).keys()
    )


def parts(container: Any) -> dict[Any, Any]:
    """The items of a list, a tuple or a dict by index or key."""
    return container if isinstance(container, dict) else dict(enumerate(container))


def rebuilt(like: Any, contents: dict[Any, Any]) -> Any:
    """A container of the same class as another, with these items."""
    if isinstance(like, dict):
        return type(like)(contents)
    items = contents.values()
    return like._make(items) if hasattr(like, "_make") else type(like)(items)


def _copied(value: Any) -> Any:
    """The value; a container is copied, so that an assignment to an item does not change the original."""
    if not isinstance(value, list | tuple | dict):
        return value
    return rebuilt(value, {k: _copied(v) for k, v in parts(value).items()})
