"""Task orders as arithmetic: the task at each position of an order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pykittens.ir.nodes import Tasks


def task_extents(tasks: Tasks, dims: Sequence[int], cluster: int) -> tuple[int, ...]:
    """Extents of the items that an order lists: tasks, or groups of neighbouring tasks for a cluster."""
    axis = tasks.cluster_axis
    return tuple(-(-d // cluster) if i == axis else d for i, d in enumerate(dims))


def limited(clusters: int, most: int | None, cluster: int) -> int:
    """This number of clusters, or fewer if more blocks than `most` were in them."""
    return clusters if most is None else min(clusters, most // cluster)


def decode(tasks: Tasks, extents: Sequence[int], position: int) -> tuple[int, ...]:
    """The task at a position of the order."""
    *outer, last = extents
    match tasks.order.kind:
        case "row_major":
            return _row_major(extents, position)
        case "column_major":
            rows = outer.pop()
            lead, inner = divmod(position, rows * last)
            return (*_row_major(outer, lead), inner % rows, inner // rows)
        case "supergroup":
            rows = outer.pop()
            lead, inner = divmod(position, rows * last)
            first = inner // (tasks.order.size * last) * tasks.order.size
            height = min(tasks.order.size, rows - first)
            inner -= first * last
            return (*_row_major(outer, lead), first + inner % height, inner // height)
        case "longest_first":
            heads = prod(outer)
            first = position // (tasks.order.size * last) * tasks.order.size
            width = min(tasks.order.size, heads - first)
            position -= first * last
            return (*_row_major(outer, first + position % width), last - 1 - position // width)


def _row_major(extents: Sequence[int], position: int) -> tuple[int, ...]:
    index = []
    for extent in reversed(extents):
        position, i = divmod(position, extent)
        index.append(i)
    return tuple(reversed(index))
