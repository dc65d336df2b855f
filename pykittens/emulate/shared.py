"""Shared memory outside pipelines in one block: tiles, semaphores, and the turns of roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.memory import poison
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import AccessError, Loc
from pykittens.ir.nodes import Shared
from pykittens.ir.values import Semaphore, Value
from pykittens.types.tiles import SEMAPHORE, TURNS


class Several:
    """Shared things of one kind, told apart by an index."""

    def __init__(self, name: str, things: list[Any]) -> None:
        self.name, self.things = name, things

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self.things):
            raise AccessError(f"index {index} is outside the {len(self.things)} of `{self.name}`")
        return self.things[index]


class Turn:
    """Whose turn it is of the groups of a role."""

    def __init__(self, groups: int, loc: Loc | None = None) -> None:
        self.groups, self.loc, self.holder = groups, loc, 0

    def missing(self, group: int) -> str | None:
        """What is missing to the turn of a group; None if it is."""
        if group == self.holder:
            return None
        return f"the turn of group {group}, it is that of group {self.holder}"

    def hand_on(self) -> None:
        self.holder = (self.holder + 1) % self.groups


def shared_values(
    kernel_shared: Iterable[Shared], block: int = 0, watch: Watcher = NOBODY
) -> dict[Value, Any]:
    """What the values of shared memory are in one block."""
    return {s.value: _made(s, block, watch) for s in kernel_shared}


def _made(shared: Shared, block: int, watch: Watcher) -> Any:
    name = shared.value.name or ("semaphore" if isinstance(shared.value, Semaphore) else "shared")
    if shared.count is None:
        return _one(shared, name, block, watch)
    several = [_one(shared, f"{name}[{i}]", block, watch) for i in range(shared.count)]
    return Several(name, several)


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
