"""Values of names at the start and end of a loop or branch, and the types with which they can be carried."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection
from itertools import islice
from types import GeneratorType
from typing import Any

from pykittens.ir.build import Builder, current, recording
from pykittens.ir.numbers import number
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import RegTile, RegVector, Scalar, Semaphore, SharedTile, Value
from pykittens.lang.truth import Thunk
from pykittens.types.dtypes import bool_, f32, int32
from pykittens.types.tiles import SCALAR, Type


class Named:
    """An object that is no value of the program but takes the name to which it is assigned, such as a pipeline."""

    name: str = ""


def named(hint: str | tuple[str, ...], value: Any) -> Any:
    """The value, with the name that the user assigns it to. A value keeps its first name.

    Shared memory in a list, a tuple or a dict is named by its place, as in `tiles[0]`, also if it is added later.
    """
    if isinstance(hint, tuple):
        if isinstance(value, GeneratorType):
            value = tuple(islice(value, len(hint) + 1))  # one too many, and Python reports it
        if isinstance(value, tuple | list) and len(value) == len(hint):
            for h, v in zip(hint, value, strict=True):
                named(h, v)
    elif isinstance(value, Value | Named) and not value.name:
        value.name = hint
    elif isinstance(value, list | tuple | dict) and hint and (builder := recording()) is not None:
        builder.containers.setdefault(id(value), (hint, value))
        _name_items(builder, hint, value)
    return value


def name_added(builder: Builder) -> None:
    """Name the shared memory that was added to containers after they were assigned to names.

    It has no name, or that of several, such as a name that a loop of Python binds anew.
    """
    kernel = builder.kernel
    names = Counter([*(s.value.name for s in kernel.shared), *(p.name for p in kernel.pipelines)])
    unclear = {"", *(name for name, count in names.items() if count > 1)}
    for hint, container in builder.containers.values():
        _name_items(builder, hint, container, unclear)


def _name_items(
    builder: Builder, hint: str, container: Any, instead_of: Collection[str] = ("",)
) -> None:
    """Name the shared memory in a container by its place if it has one of these names."""
    for key, value in parts(container).items():
        place = f"{hint}[{key!r}]"
        if isinstance(value, list | tuple | dict):
            if id(value) not in builder.containers:  # otherwise it has a name of its own
                _name_items(builder, place, value, instead_of)
        elif isinstance(value, SharedTile | Semaphore | Named) and value.name in instead_of:
            value.name = place


MISSING = Undefined("the name", "has no value here")


def held(thunks: tuple[Thunk, ...]) -> list[Any]:
    """The current values of names; `MISSING` for a name without a value, or with a value of another block."""
    found = []
    for thunk in thunks:
        try:
            value = thunk()
        except NameError:
            value = MISSING
        found.append(shown(value))
    return found


def shown(value: Any) -> Any:
    """The value, or `MISSING` if it is one of another block or none."""
    hidden = isinstance(value, Value) and value.block is not None
    if hidden and any(b is value.block for b in current("loop").stack):
        hidden = False
    return MISSING if hidden or isinstance(value, Undefined) else value


def at_head(names: tuple[str, ...], values: list[Any], missing: str) -> list[Any]:
    """The values of names at the start of a body; a name without a value raises when used, for the reason `missing`."""
    return [
        Undefined(name, missing) if value is MISSING else value
        for name, value in zip(names, values, strict=True)
    ]


def type_of(value: Any) -> Type | None:
    """The type with which a value is carried or merged, or None if it cannot be. A number becomes a scalar."""
    value = number(value)
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


def alike(a: Any, b: Any) -> bool:
    """Whether two values are containers of one kind with the same keys."""
    return (
        isinstance(a, list | tuple | dict)
        and type(a) is type(b)
        and parts(a).keys() == parts(b).keys()
    )


def parts(container: Any) -> dict[Any, Any]:
    """The items of a list, a tuple or a dict by index or key, at this time."""
    return dict(container) if isinstance(container, dict) else dict(enumerate(container))


def refill(container: Any, contents: dict[Any, Any]) -> None:
    """Give a list or a dict these items."""
    if isinstance(container, dict):
        container.clear()
        container.update(contents)
    else:
        container[:] = contents.values()


def rebuilt(like: Any, contents: dict[Any, Any]) -> Any:
    """A container of the same class as another, with these items."""
    if isinstance(like, tuple):
        items = contents.values()
        return like._make(items) if hasattr(like, "_make") else type(like)(items)
    made = copy.copy(like)
    refill(made, contents)
    return made
