"""The lists, dicts and objects that the functions being recorded can reach, and their contents at one time.

A loop carries, and a branch merges, the items of a list whichever name reaches it, so recording compares what all
variables on the stack reach before and after a body. Iterators and objects of libraries are not looked into.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from functools import cache, partial
from types import CellType, CodeType, FrameType, FunctionType, MethodType, NoneType
from typing import Any

from pykittens.errors import (
    LIBRARY,
    PYKITTENS,
    PYTHON,
    USER,
    is_user_file,
    owner,
    owner_of_module,
)

_LANGUAGE = os.path.dirname(os.path.abspath(__file__))
_TRACE = os.path.join(_LANGUAGE, "trace.py")

Place = tuple[int, Any]  # the id of what holds a reference, and the key under which


@dataclass(eq=False)
class Reached:
    """An object with contents. It was found in `holder` by `key`. holders: all places that refer to it."""

    thing: Any
    holder: Reached | None
    key: Any
    contents: dict[Any, Any]
    holders: set[Place] = field(default_factory=set)

    @property
    def path(self) -> str:
        """Its name in error texts."""
        return "" if self.holder is None else self.holder.part(self.key)

    def part(self, key: Any) -> str:
        """An item or attribute as an error text names it."""
        text, reached = "", self
        while True:
            match reached.thing:
                case list() | tuple() | dict() | deque():
                    text = f"[{key!r}]{text}"
                case FrameType() | FunctionType() | MethodType() | partial():
                    return f"{key}{text}"
                case CellType():
                    pass
                case _:
                    text = f".{key}{text}"
            if reached.holder is None:
                return text
            reached, key = reached.holder, reached.key


class Heap:
    """All that the variables of the user's functions on the stack reach, with its contents at this time."""

    def __init__(self) -> None:
        self.found: dict[int, Reached] = {}
        frames = list(_frames())
        self.frame = frames[0]  # the function that is being executed
        self.home = owner(frames[-1].f_code.co_filename)
        self.variables = dict(self.frame.f_locals)
        self._reach(frames)

    def _reach(self, roots: list[FrameType]) -> None:
        plain = {int, bool, str, float, NoneType}  # types of objects that are not looked into
        stack: list[tuple[Any, Reached | None, Any]] = [(x, None, None) for x in reversed(roots)]
        while stack:
            thing, holder, key = stack.pop()
            if type(thing) in plain:
                continue
            known = self.found.get(id(thing))
            if known is None:
                inside = contents(thing, self.home)
                if inside is None:
                    if not isinstance(thing, type):
                        plain.add(type(thing))
                    continue
                known = self.found[id(thing)] = Reached(thing, holder, key, inside)
                stack += [
                    (x, known, k) for k, x in reversed(inside.items()) if type(x) not in plain
                ]
            known.holders.add(self._place(holder, key, thing))

    def _place(self, reached: Reached | None, key: Any, value: Any) -> Place:
        """The place of a reference; a variable that an inner function shares with the one executed is one place."""
        if reached is None:
            return 0, None
        name = self._shared_variable(reached, key)
        if name and self.variables.get(name) is value:
            return id(self.frame), name
        return id(reached.thing), key

    def _shared_variable(self, reached: Reached, key: Any) -> str:
        """The name of a variable of another function, if the one that is executed may share it."""
        if not isinstance(reached.thing, CellType | FrameType):
            return ""
        name: str = reached.path if isinstance(reached.thing, CellType) else key
        code = self.frame.f_code
        return name if name in code.co_cellvars or name in code.co_freevars else ""

    def holders(self, thing: Any) -> set[Place]:
        """The places that refer to an object."""
        reached = self.found.get(id(thing))
        return set() if reached is None else reached.holders

    def variable(self, name: str) -> Place:
        """The place of a variable of the function that is being executed."""
        return id(self.frame), name

    def changes(self) -> Iterator[tuple[Reached, Any]]:
        """What has another value, or none, since the walk; variables of the function being executed are left out."""
        variables = dict(self.frame.f_locals)
        for reached in self.found.values():
            inside = contents(reached.thing, self.home)
            assert inside is not None, "what had contents has some"
            for key, value in reached.contents.items():
                if key in inside and is_same(inside[key], value):
                    continue
                if reached.thing is self.frame and key in self.variables:
                    continue
                own = self._shared_variable(reached, key)
                if not (own in variables and variables[own] is inside.get(key)):
                    yield reached, key


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are one object, or equal constants of Python."""
    return a is b or (
        type(a) is type(b) and isinstance(a, int | float | str) and repr(a) == repr(b)
    )


def contents(thing: Any, home: str) -> dict[Any, Any] | None:
    """The items, attributes or variables of an object by key; None if it is not looked into.

    home: the owner of the kernel's file.
    """
    match thing:
        case dict():
            return dict(thing)
        case list() | tuple() | deque():
            return dict(enumerate(thing))
        case None | bool() | int() | float() | str():
            return None
        case FrameType():
            return dict(thing.f_locals) | _globals(thing.f_code, thing.f_globals)
        case FunctionType():
            return _of_function(thing)
        case CellType():
            try:
                return {"": thing.cell_contents}
            except ValueError:  # not bound yet
                return {}
        case MethodType():
            return {"self": thing.__self__, "function": thing.__func__}
        case partial():
            return {"function": thing.func, "args": thing.args, "keywords": thing.keywords}
        case type():
            return dict(vars(thing)) if _is_of_program(thing, home) else None
    return _attributes(thing) if _is_of_program(type(thing), home) else None


def _of_function(function: FunctionType) -> dict[Any, Any]:
    code = function.__code__
    cells: dict[Any, Any] = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    defaults = {"defaults": function.__defaults__, "keyword defaults": function.__kwdefaults__}
    return cells | defaults | _globals(code, function.__globals__)


def _globals(code: CodeType, known: dict[str, Any]) -> dict[Any, Any]:
    """The globals that the code of a user's function names; those of the package do not change."""
    if owner(code.co_filename) in (PYTHON, PYKITTENS, LIBRARY):
        return {}
    return {n: known[n] for n in _names(code) if n in known}


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    inner = (n for c in code.co_consts if isinstance(c, CodeType) for n in _names(c))
    return tuple(dict.fromkeys((*code.co_names, *inner)))


def _attributes(thing: Any) -> dict[Any, Any]:
    return dict(getattr(thing, "__dict__", ())) | slots(thing)


def slots(thing: Any) -> dict[str, Any]:
    """The attributes of an object that its classes keep in `__slots__`."""
    found = {}
    for cls in type(thing).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def _is_of_program(cls: type, home: str) -> bool:
    """Whether a class is the user's, of the package that the kernel is in, or a dataclass of another."""
    found = owner_of_module(cls.__module__)
    if found in (PYTHON, PYKITTENS):
        return False
    return found in (USER, LIBRARY, home) or is_dataclass(cls)


def _frames() -> Iterator[FrameType]:
    """The frames of the functions being recorded, innermost first: the kernel's is the last."""
    frame: FrameType | None = sys._getframe(2)
    first = True
    while frame is not None and (file := frame.f_code.co_filename) != _TRACE:
        if os.path.dirname(file) != _LANGUAGE and (first or is_user_file(file)):
            yield frame
            first = False
        frame = frame.f_back
