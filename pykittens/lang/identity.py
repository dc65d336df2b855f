"""Refuses changes of lists and objects that a run-time loop or branch would lose."""

from __future__ import annotations

from types import CellType, FrameType, FunctionType
from typing import Any, NoReturn

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.lang.bindings import parts
from pykittens.lang.heap import Reached, is_same


def refuse_change(reached: Reached, key: Any, word: str) -> NoReturn:
    """Raise because the body of a loop or branch changes something that is not carried or merged."""
    part = reached.part(key)
    if isinstance(reached.thing, FrameType | FunctionType | CellType):
        name, way = (
            "a variable of the module or of another function",
            "return the new value and bind it in the body",
        )
    elif isinstance(reached.thing, list | dict):
        name = "an item, which no assignment of the body names"
        way = f"assign the item in the body, as in `{part} = f({part})`, through a name bound before the {word}"
    else:
        name, way = (
            "an item or attribute of an object",
            "bind a name before, assign it in the body, and set the attribute afterwards",
        )
    raise LanguageError(f"a run-time {word} changes `{part}`, {name}", help=way)


def note(made: Any, sources: list[Any]) -> None:
    """Note that a list stands for one of others, depending on run-time values."""
    current("loop").stands_for.append((made, parts(made), sources))


def is_changed(thing: Any, was: dict[Any, Any]) -> bool:
    """Whether a list, or one that stands for it in some iterations, has had an item assigned."""
    now = parts(thing)
    if now.keys() != was.keys() or not all(is_same(now[k], was[k]) for k in was):
        return True
    known = current("loop").stands_for
    return any(is_changed(made, w) for made, w, of in known if any(s is thing for s in of))


def keep(name: str, lists: list[Any], loc: Loc | None) -> None:
    """Refuse the kernel if one of these lists changes in the rest of it, as `name` may stand for it."""
    known = [(x, parts(x)) for x in lists]

    def check() -> None:
        if any(is_changed(thing, was) for thing, was in known):
            raise LanguageError(
                f"`{name}` has one of two lists afterwards, depending on run-time values, and an item of "
                "one is assigned later although it has another name",
                loc=loc,
                help=f"give `{name.split('[')[0]}` a list of its own before, as in `list(...)`",
            )

    current("loop").checks.append(check)
