"""Puts loads that wait for tags side by side, so that they wait together.

Each of them takes a way to memory and back; side by side they take one. What is computed between them, and does not
depend on them, goes before the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from pykittens.ir.nodes import Block, Call, Kernel, Node, all_blocks
from pykittens.ir.structure import inputs
from pykittens.ir.values import Scalar, Value

MOST = 24  # registers of a lane for loads that wait together


def bring_together(kernel: Kernel) -> None:
    """Reorder every block."""
    for role in kernel.roles:
        for block in all_blocks(role.body):
            block.nodes[:] = _ordered(block)


def runs(block: Block, registers: Callable[[Value], int]) -> list[list[Call]]:
    """The loads that stand side by side, in their order, as many at a time as MOST registers hold."""
    found: list[list[Call]] = []
    left = 0
    for node in block.nodes:
        if not _waits(node):
            left = 0
            continue
        own = registers(node.results[0])
        if own > left:
            found.append([])
            left = max(MOST, own)
        found[-1].append(node)
        left -= own
    return found


def _waits(node: Node) -> TypeGuard[Call]:
    """Whether a node is a load that waits for tags."""
    return isinstance(node, Call) and node.op.effects.tagged and bool(node.op.effects.waits)


def _ordered(block: Block) -> list[Node]:
    done: list[Node] = []
    loads: list[Call] = []
    between: list[Call] = []  # since the last load
    for node in block.nodes:
        known = {id(v) for load in loads for v in load.results}
        needs = bool(known) and isinstance(node, Call) and any(id(v) in known for v in inputs(node))
        if _waits(node) and not needs:
            done += between
            loads.append(node)
            between = []
        elif loads and not needs and _computes_numbers(node):
            between.append(node)
        else:
            done += [*loads, *between, node]
            loads, between = [], []
    return [*done, *loads, *between]


def _computes_numbers(node: Node) -> TypeGuard[Call]:
    """Whether a node only computes numbers."""
    if not isinstance(node, Call):
        return False
    return node.op.effects.pure and all(isinstance(v, Scalar) for v in node.results)
