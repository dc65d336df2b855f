"""Coordinates of grids and tasks in C++; `ir/orders.py` states the same arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykittens.ir.nodes import ForTasks, Tasks

if TYPE_CHECKING:
    from pykittens.targets.emitter import Emitter


def task_extents(e: Emitter, tasks: Tasks) -> list[str]:
    """Extents of what is shared out among blocks or clusters."""
    extents = [e.scalar(d) for d in tasks.dims]
    if tasks.cluster_axis is not None:
        extents[tasks.cluster_axis] = f"ceil_div({extents[tasks.cluster_axis]}, {e.kernel.cluster})"
    return extents


def task_index(e: Emitter, node: ForTasks, extents: list[str]) -> None:
    """Coordinates of a task from its turn; ir/orders.py says the same."""
    order = node.tasks.order
    names = [
        e.names(i) if n != node.tasks.cluster_axis else f"{e.names(i)}_pair"
        for n, i in enumerate(node.index)
    ]
    *outer, last = extents
    match order.kind:
        case "row_major":
            coordinates(e, names, extents, "task")
        case "column_major":
            rows = outer.pop()
            e.line(f"const int turn = task % ({rows} * {last});")
            e.line(f"const int {names[-2]} = turn % {rows}, {names[-1]} = turn / {rows};")
            coordinates(e, names[:-2], outer, f"task / ({rows} * {last})")
        case "supergroup":
            rows = outer.pop()
            e.line(
                f"const int turn = task % ({rows} * {last}), band = turn / ({order.size} * {last}) * {order.size};"
            )
            e.line(
                f"const int height = min({order.size}, {rows} - band), place = turn - band * {last};"
            )
            e.line(f"const int {names[-2]} = band + place % height, {names[-1]} = place / height;")
            coordinates(e, names[:-2], outer, f"task / ({rows} * {last})")
        case "longest_first":
            heads = " * ".join(outer) or "1"
            e.line(f"const int section = task / ({order.size} * {last}) * {order.size};")
            e.line(
                f"const int width = min({order.size}, {heads} - section), turn = task - section * {last};"
            )
            e.line(
                f"const int head = section + turn % width, {names[-1]} = {last} - 1 - turn / width;"
            )
            coordinates(e, names[:-1], outer, "head")
    if node.tasks.cluster_axis is not None:
        axis = node.tasks.cluster_axis
        e.line(
            f"const int {e.names(node.index[axis])} = {names[axis]} * {e.kernel.cluster} + (int)rank;"
        )


def coordinates(e: Emitter, names: list[str], extents: list[str], linear: str) -> None:
    """Coordinates from a linear index, the last axis fastest."""
    rest = linear
    for axis in reversed(range(len(names))):
        if axis == 0:
            e.line(f"const int {names[axis]} = {rest};")
        else:
            e.line(f"const int {names[axis]} = {rest} % ({extents[axis]});")
            rest = f"{rest} / ({extents[axis]})"
