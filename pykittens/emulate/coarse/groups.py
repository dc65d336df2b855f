"""The groups of a role that run together: what differs between them, and how it is held.

They run as one if none waits for another and all take the same branches. A value that follows from the number of the
group, or from memory at a place that does, differs. A tile or vector that differs is an array with an axis for the
groups in front, anything else a list. Operations element by element compute on all groups at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.nodes import Block, Call, For, If, Node, Role, While, walk
from pykittens.ir.op import Effects
from pykittens.ir.structure import bindings, inputs
from pykittens.ir.values import Semaphore, Turns, Value
from pykittens.types.tiles import RT, RV, Spread

Array = np.ndarray[Any, np.dtype[Any]]


def differing(role: Role, body: Block) -> set[Value]:
    """The values that differ between the groups of a role; none unless several run together."""
    found = set[Value]()
    if role.groups == 1 or role.index is None:
        return found
    found.add(role.index)
    nodes, before = list(walk(body)), 0
    while len(found) > before:  # a loop carries some to its head
        before = len(found)
        for node in nodes:
            if isinstance(node, Call) and one_by_one(node, found):
                found.update(node.results)
            for b in bindings(node):
                if not found.isdisjoint(x for x in b.sources if isinstance(x, Value)):
                    found.update(b.names)
    return found if _are_alike(nodes, found) else set()


def one_by_one(call: Call, differing: set[Value]) -> bool:
    """Whether groups that run together do an operation one by one, also if each of them does the same to memory."""
    return bool(differing) and (_acts(call.op.effects) or not differing.isdisjoint(inputs(call)))


def _acts(effects: Effects) -> bool:
    """Whether an operation does more than read and compute."""
    return bool(effects.writes or effects.signals or effects.shows or effects.stays)


def _are_alike(nodes: list[Node], differing: set[Value]) -> bool:
    """Whether the groups take the same branches, and none waits for another."""
    bounds = (x for n in nodes if isinstance(n, For) for x in (n.start, n.stop))
    tests = (n.condition for n in nodes if isinstance(n, If | While))
    if not differing.isdisjoint(x for x in (*bounds, *tests) if isinstance(x, Value)):
        return False
    found = (c for c in nodes if isinstance(c, Call))
    flags = (c.args[x] for c in found for x in c.op.effects.waits + c.op.effects.signals)
    return not any(isinstance(x, Semaphore | Turns) for x in flags)


def axes_of(type_: RT | RV) -> int:
    """The axes of the arrays of a type."""
    return 2 if isinstance(type_, RT) or type_.spread in (Spread.PER_ROW, Spread.PER_COLUMN) else 1


def stacked(parts: list[Array]) -> Array:
    """The arrays of all groups in one, each laid out in memory as it is: NumPy adds up in the order of memory."""
    first = parts[0]
    if first.flags.c_contiguous:
        return np.concatenate(parts).reshape(len(parts), *first.shape)
    turned = np.concatenate([part.T for part in parts])
    return turned.reshape(len(parts), *first.shape[::-1]).swapaxes(1, -1)


def lifted(value: Any, groups: int) -> Any:
    """A value that is the same in all groups as one that differs."""
    if isinstance(value, np.ndarray):
        return stacked([value] * groups)  # a broadcast array has no order in memory
    return [value] * groups


def column(numbers: list[Any], dtype: np.dtype[Any], axes: int) -> Array:
    """The numbers of the groups as arrays of one element with so many axes."""
    return np.array(numbers, dtype).reshape(-1, *[1] * axes)
