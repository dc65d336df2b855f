"""Shared memory of one block outside pipelines: tiles, semaphores, and the turns of roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.memory import GlobalTile, poison
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import AccessError, Loc
from pykittens.ir.nodes import Shared
from pykittens.ir.values import Semaphore, Value
from pykittens.types.tiles import SEMAPHORE, TURNS


class SharedItems:
    """Tiles or semaphores of one declaration, by index."""

    def __init__(self, name: str, items: list[Any]) -> None:
        self.name, self.items = name, items

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self.items):
            raise AccessError(f"index {index} is outside the {len(self.items)} of `{self.name}`")
        return self.items[index]


class Turn:
    """The group of a role that has the turn."""

    def __init__(self, groups: int, loc: Loc | None = None) -> None:
        self.groups, self.loc, self.holder = groups, loc, 0

    def missing(self, group: int) -> str | None:
        """What a group waits for; None if it has the turn."""
        if group == self.holder:
            return None
        return f"the turn of group {group}, which group {self.holder} has"

    def hand_on(self) -> None:
        self.holder = (self.holder + 1) % self.groups


def at_place_of(what: Any, mine: Mapping[Value, Any], theirs: Mapping[Value, Any]) -> Any:
    """The tile or semaphore of another block that lies where `what` lies in the memory of its own."""
    for value, found in mine.items():
        for own, other in zip(items_of(found), items_of(theirs[value]), strict=True):
            if own is what:
                return other
            if isinstance(what, SharedRegion) and getattr(own, "memory", None) is what.memory:
                return other.cut(what.top, what.rows, what.left, what.cols)
    raise AssertionError(f"{what} is not of pk.shared or pk.semaphore")


def items_of(found: Any) -> list[Any]:
    """The tiles, semaphores or turns of one declaration."""
    return found.items if isinstance(found, SharedItems) else [found]


# What groups signal and wait for; an element of a tensor or of a shared vector is a flag.
Signalled: TypeAlias = Barrier | Turn | GlobalTile | SharedRegion


def shared_values(
    kernel_shared: Iterable[Shared], block: int = 0, watch: Watcher = NOBODY
) -> dict[Value, Any]:
    """The tiles, semaphores and turns of one block, by their values in the kernel."""
    return {s.value: _allocated(s, block, watch) for s in kernel_shared}


def _allocated(shared: Shared, block: int, watch: Watcher) -> Any:
    name = shared.value.name or ("semaphore" if isinstance(shared.value, Semaphore) else "shared")
    if shared.count is None:
        return _one(shared, name, block, watch)
    items = [_one(shared, f"{name}[{i}]", block, watch) for i in range(shared.count)]
    return SharedItems(name, items)


def _one(shared: Shared, name: str, block: int, watch: Watcher) -> Any:
    match shared.value.type:
        case SEMAPHORE(arrivals=arrivals):
            return Barrier(arrivals, name, watch, shared.loc)
        case TURNS(groups=groups):
            return Turn(groups, shared.loc)
        case type_:
            array = np.full((type_.rows, type_.cols), poison(type_.dtype), type_.dtype.numpy)
            memory = SharedMemory(f"`{name}`", type_, block, array.ctypes.data)
            return SharedRegion(array, memory, watch=watch)
