"""Arguments that hold several tensors and numbers, as a structure and its leaves: tuples, named tuples, dataclasses.

A kernel gets the same class with handles in place of the leaves. None is part of the structure, not a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

_PACKAGE = __package__.partition(".")[0] + "."
MOST_LEVELS = 8  # an object that holds itself has no end


# A named tuple is made and hashed faster than a frozen dataclass, and each call makes and hashes some.
class Structure(NamedTuple):
    """A tuple, a named tuple or a dataclass; each part is named as it is read: `.q` or `[0]`."""

    kind: type
    parts: tuple[tuple[str, Form], ...]


# What is known of an argument besides its leaves: it is one, it is None, or it has parts.
Form = Structure | Literal["leaf"] | None


@lru_cache(maxsize=1024)
def _reads(kind: Any) -> tuple[str, ...] | None:
    """How the parts of arguments of a class are read; None if they have none, or any number of them."""
    names: Sequence[str] | None = None
    if issubclass(kind, tuple):
        names = getattr(kind, "_fields", None)
    elif is_dataclass(kind) and kind.__new__ is object.__new__:
        is_known = kind.__module__.startswith(_PACKAGE)  # such as a dtype
        if not is_known and not hasattr(kind, "__dlpack__"):
            names = [field.name for field in fields(kind)]
    return None if names is None else tuple(f".{name}" for name in names)


def parts(x: Any) -> list[tuple[str, Any]] | None:
    """The parts of an argument and how each is read; None if the argument has no parts."""
    kind: Any = type(x)
    if kind is tuple:
        return [(f"[{i}]", part) for i, part in enumerate(x)]
    if (reads := _reads(kind)) is None:
        return None
    values = x if isinstance(x, tuple) else [getattr(x, read[1:], None) for read in reads]
    return list(zip(reads, values, strict=True))


def flatten(x: Any, leaves: list[Any], levels: int = MOST_LEVELS) -> Form:
    """The form of an argument; its leaves are added to the list."""
    if x is None:
        return None
    if not levels or (found := parts(x)) is None:
        leaves.append(x)
        return "leaf"
    forms = ((name, flatten(part, leaves, levels - 1)) for name, part in found)
    return Structure(type(x), tuple(forms))


def rebuild(form: Form, leaves: Iterator[Any]) -> Any:
    """An argument of this form with these leaves. No code of its class runs."""
    if form is None:
        return None
    if form == "leaf":
        return next(leaves)
    made = [(name, rebuild(part, leaves)) for name, part in form.parts]
    if issubclass(form.kind, tuple):
        return tuple.__new__(form.kind, [part for _, part in made])
    result = object.__new__(form.kind)
    for name, part in made:
        object.__setattr__(result, name[1:], part)
    return result


def names(form: Form, name: str) -> Iterator[tuple[str, bool]]:
    """The name of each leaf and of each None of an argument, as the kernel reads it, and whether it is a leaf."""
    if isinstance(form, Structure):
        for read, part in form.parts:
            yield from names(part, name + read)
    else:
        yield name, form is not None


def classes(forms: Iterable[Form]) -> Iterator[type]:
    """The classes of arguments and of their parts."""
    for form in forms:
        if isinstance(form, Structure):
            yield form.kind
            yield from classes(part for _, part in form.parts)
