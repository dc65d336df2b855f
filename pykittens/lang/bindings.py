"""Values of names at the start and end of a loop or branch, and which of them can be carried."""

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
    """What is no value of the program and yet takes the name it is assigned to."""

    name: str = ""


def named(hint: str | tuple[str, ...], value: Any) -> Any:
    """The value, told the name the user gives it. The first name stays."""
    if isinstance(hint, tuple):
        if isinstance(value, tuple) and len(value) == len(hint):
            for h, v in zip(hint, value, strict=True):
                named(h, v)
    elif isinstance(value, Value | Named) and not value.name:
        value.name = hint
    return value


MISSING = Undefined("the name", "has no value here")


def held(thunks: tuple[Thunk, ...]) -> list[Any]:
    """What the names hold now; `MISSING` where a name has no value, or one that is not seen here."""
    found = []
    for thunk in thunks:
        try:
            value = thunk()
        except NameError:
            value = MISSING
        hidden = isinstance(value, Undefined) or (isinstance(value, Value) and not _is_seen(value))
        found.append(MISSING if hidden else value)
    return found


def _is_seen(value: Value) -> bool:
    return value.block is None or any(b is value.block for b in current("loop").stack)


def at_head(names: tuple[str, ...], values: list[Any], missing: str) -> list[Any]:
    """What a body is given for its names; one without a value fails with the reason `missing` when it is used."""
    return [
        Undefined(name, missing) if value is MISSING else _copied(value)
        for name, value in zip(names, values, strict=True)
    ]


def type_of(value: Any) -> Type | None:
    """The type with which a value is carried or merged, None if it cannot be. A Python number becomes a scalar."""
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
    """What a list, a tuple or a dict holds, by index or key."""
    return container if isinstance(container, dict) else dict(enumerate(container))


def rebuilt(like: Any, contents: dict[Any, Any]) -> Any:
    """A container of the kind of another that holds these parts."""
    if isinstance(like, dict):
        return type(like)(contents)
    items = contents.values()
    return like._make(items) if hasattr(like, "_make") else type(like)(items)


def _copied(value: Any) -> Any:
    """The value, a container copied so that an assignment to a part of it does not show in the original."""
    if not isinstance(value, list | tuple | dict):
        return value
    return rebuilt(value, {k: _copied(v) for k, v in parts(value).items()})
