"""Task orders as arithmetic: the task at each position of an order, and the positions that each block takes.

Blocks, or clusters, take positions in rounds: in round r, block k of B takes position r B + k. In the odd rounds of
`longest_first` they take them in the opposite direction, r B + (B - 1 - k): where tasks become shorter along the order,
the block that had the longest of a round has the shortest of the next.

The positions of a block rise in every order, so a task may wait for tasks at lower positions: of the tasks that are not
done, that at the lowest position is the next one of its block, and it waits for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Order, Tasks
from pykittens.ir.values import Value

ROW_MAJOR = Order("row_major")


def task_extents(tasks: Tasks, dims: Sequence[int], cluster: int) -> tuple[int, ...]:
    """Extents of the items that an order lists: tasks, or groups of neighbouring tasks for a cluster."""
    axis = tasks.cluster_axis
    return tuple(-(-d // cluster) if i == axis else d for i, d in enumerate(dims))


def limited(clusters: int, most: int | None, cluster: int) -> int:
    """This number of clusters, or fewer if more blocks than `most` were in them."""
    return clusters if most is None else min(clusters, most // cluster)


def evaluated(order: Order, known: Mapping[Value, Any]) -> Order:
    """The order with its parameter as a number, which the host computes from these values."""
    return replace(order, size=host_value(order.size, known))


def alternates(order: Order) -> bool:
    """Whether the rounds of an order alternate in direction."""
    return order.kind == "longest_first"


def positions(order: Order, block: int, blocks: int, count: int) -> Iterator[int]:
    """The positions below `count` that a block takes, ascending."""
    for start in range(0, count, blocks):
        position = start + _turned(order, start // blocks, block, blocks)
        if position < count:
            yield position


def taker(order: Order, position: int, blocks: int) -> int:
    """The block that takes a position."""
    round_, at = divmod(position, blocks)
    return _turned(order, round_, at, blocks)


def _turned(order: Order, round_: int, number: int, blocks: int) -> int:
    """Where block `number` stands in a round, which is also the block that stands at `number`."""
    return blocks - 1 - number if alternates(order) and round_ % 2 else number


def decode(order: Order, extents: Sequence[int], position: int) -> tuple[int, ...]:
    """The task at a position of an order whose parameter is a number."""
    *outer, last = extents
    match order.kind:
        case "row_major":
            return _row_major(extents, position)
        case "column_major":
            rows = outer.pop()
            lead, inner = divmod(position, rows * last)
            return (*_row_major(outer, lead), inner % rows, inner // rows)
        case "supergroup":
            rows = outer.pop()
            lead, inner = divmod(position, rows * last)
            first = inner // (order.size * last) * order.size
            height = min(order.size, rows - first)
            inner -= first * last
            return (*_row_major(outer, lead), first + inner % height, inner // height)
        case "longest_first":
            heads = prod(outer)
            first = position // last // order.size * order.size
            width = min(order.size, heads - first)
            position -= first * last
            return (*_row_major(outer, first + position % width), last - 1 - position // width)


def _row_major(extents: Sequence[int], position: int) -> tuple[int, ...]:
    index = []
    for extent in reversed(extents):
        position, i = divmod(position, extent)
        index.append(i)
    return tuple(reversed(index))
