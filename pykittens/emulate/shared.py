"""Shared memory outside pipelines in one block: tiles, semaphores, and the turns of roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.memory import SharedRegion, poison
from pykittens.errors import AccessError
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

    def __init__(self, groups: int) -> None:
        self.groups, self.holder = groups, 0

    def missing(self, group: int) -> str | None:
        """What is missing to the turn of a group; None if it is."""
        if group == self.holder:
            return None
        return f"the turn of group {group}, it is that of group {self.holder}"

    def hand_on(self) -> None:
        self.holder = (self.holder + 1) % self.groups


def shared_values(kernel_shared: Iterable[Shared]) -> dict[Value, Any]:
    """What the values of shared memory are in one block."""
    return {s.value: _made(s) for s in kernel_shared}


def _made(shared: Shared) -> Any:
    name = shared.value.name or ("semaphore" if isinstance(shared.value, Semaphore) else "shared")
    if shared.count is None:
        return _one(shared.value, name)
    return Several(name, [_one(shared.value, f"{name}[{i}]") for i in range(shared.count)])


def _one(value: Value, name: str) -> Any:
    match value.type:
        case SEMAPHORE():
            return Barrier(value.type.arrivals, name)
        case TURNS():
            return Turn(value.type.groups)
        case type_:
            shape = (type_.rows, type_.cols)  # type: ignore[union-attr]
            return SharedRegion(np.full(shape, poison(type_.dtype), type_.dtype.numpy))
