"""Task orders as arithmetic: the task that a block takes in its n-th turn."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pykittens.ir.nodes import Tasks


def task_extents(tasks: Tasks, dims: Sequence[int], cluster: int) -> tuple[int, ...]:
    """Extents of what is shared out: tasks, or groups of tasks where a cluster takes neighbours."""
    axis = tasks.cluster_axis
    return tuple(-(-d // cluster) if i == axis else d for i, d in enumerate(dims))


def decode(tasks: Tasks, extents: Sequence[int], turn: int) -> tuple[int, ...]:
    """The task that comes at a place of the order."""
    *outer, last = extents
    match tasks.order.kind:
        case "row_major":
            return _row_major(extents, turn)
        case "column_major":
            rows = outer.pop()
            lead, inner = divmod(turn, rows * last)
            return (*_row_major(outer, lead), inner % rows, inner // rows)
        case "supergroup":
            rows = outer.pop()
            lead, inner = divmod(turn, rows * last)
            first = inner // (tasks.order.size * last) * tasks.order.size
            height = min(tasks.order.size, rows - first)
            inner -= first * last
            return (*_row_major(outer, lead), first + inner % height, inner // height)
        case "longest_first":
            heads = prod(outer)
            first = turn // (tasks.order.size * last) * tasks.order.size
            width = min(tasks.order.size, heads - first)
            turn -= first * last
            return (*_row_major(outer, first + turn % width), last - 1 - turn // width)


def _row_major(extents: Sequence[int], turn: int) -> tuple[int, ...]:
    index = []
    for extent in reversed(extents):
        turn, i = divmod(turn, extent)
        index.append(i)
    return tuple(reversed(index))
