"""Finds the shared memory outside pipelines of which every group accesses a part of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from pykittens.ir.nodes import Kernel, Role, calls
from pykittens.ir.structure import memory_of, views_of
from pykittens.ir.values import SharedTile


def own_memory(kernel: Kernel) -> set[SharedTile]:
    """The shared memory that no group sees another's part of: one role accesses it, each group by its index.

    All accesses select the part alike, as in `memory[w]` or `memory.tiles(64, 64)[w, j]`, so parts do not overlap. A
    role of one group needs no index.
    """
    ways = defaultdict[SharedTile, set[Hashable]](set)
    for role in kernel.roles:
        for call in calls(role.body):
            if any(isinstance(r, SharedTile) for r in call.results):  # a view accesses nothing
                continue
            for value in call.args.values():
                if isinstance(value, SharedTile) and value.stage is None:
                    memory, way = _way(value, role)
                    ways[memory].add(way)
    return {memory for memory, found in ways.items() if len(found) == 1 and None not in found}


def _way(tile: SharedTile, role: Role) -> tuple[SharedTile, Hashable]:
    """The memory of a tile, and how the index of the role's groups selects the tile in it; None if it does not."""
    views, memory = views_of(tile), memory_of(tile)
    if role.groups == 1:
        return memory, (role,)
    way: tuple[Hashable, ...] = (role,)
    for view in reversed(views):
        sizes = tuple(view.args.get(n) for n in ("rows", "cols", "length", "count"))
        way = (*way, view.op.name, sizes)
        for name, value in view.args.items():
            if value is role.index:
                return memory, (*way, name)
    return memory, None
