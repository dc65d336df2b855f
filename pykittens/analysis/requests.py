"""Memory requests, the moves that consist of them, and the costs of a kernel's lines that follow from the moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, Role, moved, within
from pykittens.ir.values import RegTile, RegVector, SharedTile

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]

NOWHERE = -1  # the address of an inactive lane


@dataclass(frozen=True, eq=False)
class Requests:
    """Instructions that move `size` bytes per lane: the address of each lane, instructions x lanes."""

    addresses: Numbers
    size: int

    @staticmethod
    def of(addresses: Any, size: int, present: Any = True) -> Requests:
        """The instructions for addresses with lanes on the last axis, without the lanes that are not present."""
        whole = np.where(present, addresses, NOWHERE).astype(np.int64)
        rows = whole.reshape(-1, whole.shape[-1])
        return Requests(rows[(rows != NOWHERE).any(axis=1)], size)

    def times(self, count: int) -> Requests:
        """The same instructions, `count` times."""
        return Requests(np.tile(self.addresses, (count, 1)), self.size)


def in_order(numbers: Numbers) -> tuple[Numbers, Truths]:
    """Each row in ascending order, and a mask of the first of each number other than NOWHERE."""
    ordered: Numbers = np.sort(numbers, axis=1)
    first: Truths = ordered != NOWHERE
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered, first


@dataclass(frozen=True, eq=False)
class Move:
    """The requests of an operation to one memory: a shared tile, "scratch", or a tensor by its name.

    assumed: the order of the requests is not known.
    """

    what: str
    memory: SharedTile | str
    requests: list[Requests]
    assumed: bool = False

    @property
    def name(self) -> str:
        """The name of the memory in a table."""
        if isinstance(self.memory, str):
            return self.memory
        return f"{self.memory.name} {self.memory.type}".lstrip()


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a line by one group in one memory, and the least possible cost of its requests."""

    loc: Loc | None
    what: str
    memory: str
    count: int
    ideal: int
    assumed: bool = False


def costs(
    kernel: Kernel,
    moves: Callable[[Role, Call], Iterable[Move]],
    count: Callable[[Requests], int],
    fewest: Callable[[Requests], int],
) -> list[Cost]:
    """The costs of each line of a lowered kernel, in the order of the program."""
    found: dict[object, Cost] = {}
    for role, call in calls_by_role(kernel):
        for move in moves(role, call):
            total, ideal = sum(map(count, move.requests)), sum(map(fewest, move.requests))
            cost = Cost(call.loc, move.what, move.name, total, ideal, move.assumed)
            key = (id(role), str(cost.loc), cost.what, cost.memory)
            if (old := found.get(key)) is not None:
                cost = replace(old, count=old.count + total, ideal=old.ideal + ideal)
            found[key] = cost
    return list(found.values())


def calls_by_role(kernel: Kernel) -> Iterator[tuple[Role, Call]]:
    """The operations of a kernel with the roles that run them; outside roles every warp runs them."""
    every_warp = Role("block", 1, 1, None, kernel.body) if kernel.has_roles else kernel.roles[0]
    for node in kernel.body.nodes:
        role = node if isinstance(node, Role) else every_warp
        yield from ((role, n) for n in within(node) if isinstance(n, Call))


def sides(call: Call) -> tuple[int, int]:
    """The rows and columns that a call moves in memory; a vector is one row, a scalar one element."""
    match moved(call):
        case RegTile() | SharedTile() as tile:
            return (tile.cols, tile.rows) if call.args.get("transposed") else (tile.rows, tile.cols)
        case RegVector() as vector:
            return 1, vector.length
        case _:
            return 1, 1
