"""The files of a user's program that determine kernels: those of their modules and of the modules that these use."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pykittens.errors import LIBRARY, PYKITTENS, PYTHON, USER, owner, owner_of_module


def modules_of(objects: Iterable[Any]) -> tuple[str, ...]:
    """The names of the modules that define kernels, functions or the classes of other values."""
    defined = (x if isinstance(x, type) else getattr(x, "function", x) for x in objects)
    return tuple(sorted({getattr(x, "__module__", None) or type(x).__module__ for x in defined}))


@functools.cache
def files_of(modules: tuple[str, ...]) -> tuple[Path, ...] | None:
    """The files of modules and of all user modules reached from them; None if one of them has no file.

    Installed packages are followed only if one of the modules is in them.
    """
    owners = {USER, LIBRARY, *map(owner_of_module, modules)} - {PYTHON, PYKITTENS}
    found: dict[str, Path] = {}
    open_ = list(modules)
    while open_:
        name = open_.pop()
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is None:
            if name in modules:
                return None
            continue
        if name not in found and (name in modules or owner(file) in owners):
            found[name] = Path(file)
            open_ += _used(module)
    return tuple(found[name] for name in sorted(found))


def _used(module: Any) -> Iterator[str]:
    """The modules that a module imports, and those that define what it imports."""
    for value in tuple(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
            continue
        with contextlib.suppress(Exception):  # an object may refuse to tell its attributes
            for x in (value, getattr(value, "__dict__", {}).get("function")):
                if isinstance(name := getattr(x, "__module__", None), str):
                    yield name
