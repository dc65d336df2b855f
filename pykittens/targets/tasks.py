"""Coordinates of blocks and tasks in C++, by the arithmetic of `ir/orders.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykittens.ir.nodes import Order


def task_index(order: Order, names: Sequence[str], extents: Sequence[str]) -> list[str]:
    """Lines that define the coordinates of the task at position `task` of an order."""
    *outer, last = extents
    size = order.size
    match order.kind:
        case "row_major":
            return coordinates(names, extents, "task")
        case "column_major":
            rows = outer.pop()
            return [
                f"const int turn = task % ({rows} * {last});",
                f"const int {names[-2]} = turn % {rows}, {names[-1]} = turn / {rows};",
                *coordinates(names[:-2], outer, f"task / ({rows} * {last})"),
            ]
        case "supergroup":
            rows = outer.pop()
            return [
                f"const int turn = task % ({rows} * {last}), band = turn / ({size} * {last}) * {size};",
                f"const int height = min({size}, {rows} - band), place = turn - band * {last};",
                f"const int {names[-2]} = band + place % height, {names[-1]} = place / height;",
                *coordinates(names[:-2], outer, f"task / ({rows} * {last})"),
            ]
        case "longest_first":
            heads = " * ".join(outer) or "1"
            return [
                f"const int section = task / ({size} * {last}) * {size};",
                f"const int width = min({size}, {heads} - section), turn = task - section * {last};",
                f"const int head = section + turn % width, {names[-1]} = {last} - 1 - turn / width;",
                *coordinates(names[:-1], outer, "head"),
            ]


def coordinates(names: Sequence[str], extents: Sequence[str], linear: str) -> list[str]:
    """Lines that define the coordinates of a linear index; the last axis varies fastest."""
    lines = []
    for axis in reversed(range(len(names))):
        if axis == 0:
            lines.append(f"const int {names[axis]} = {linear};")
        else:
            lines.append(f"const int {names[axis]} = {linear} % {extents[axis]};")
            linear = f"{linear} / {extents[axis]}"
    return lines
