"""The tasks of a block and their coordinates in C++, by the arithmetic of `ir/orders.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykittens.ir.nodes import Order
from pykittens.ir.orders import alternates
from pykittens.targets.index import Index


def task_loop(order: Order, count: str, cluster: int) -> str:
    """The head of a loop over the positions `task` of `count` that a block, or a cluster of blocks, takes.

    If rounds of B alternate in direction, the next position is the mirror image of r B + k at the end of the round,
    2 (r + 1) B - 1 - (r B + k). It follows from `task` alone: a variable for the step takes a register, and kernels
    that use all of theirs spill one.
    """
    block, blocks = (
        f"{name}.x / {cluster}" if cluster > 1 else f"{name}.x" for name in ("blockIdx", "gridDim")
    )
    step = f"task += {blocks}"
    if alternates(order):
        each = Index(blocks).operand
        step = f"task = (task / {each} + 1) * {each} * 2 - 1 - task"
    return f"for (int task = {block}; task < {count}; {step})"


def task_index(order: Order, size: str, names: Sequence[str], extents: Sequence[str]) -> list[str]:
    """Lines that define the coordinates of the task at position `task` of an order whose parameter is `size`."""
    *outer, last = extents
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
                f"const int section = task / {last} / {size} * {size};",
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
