"""Drops what only computes values that nothing reads: operations, loops, branches, carried and merged values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    Grid,
    If,
    Kernel,
    Node,
    Sharing,
    Tasks,
    While,
    all_blocks,
    blocks,
    walk,
)
from pykittens.ir.structure import bindings, reads, results, sources
from pykittens.ir.values import Value


def prune(kernel: Kernel) -> None:
    """Drop every value that no effect, bound or condition depends on."""
    asked: list[Any] = [v for v, _ in kernel.statics]
    if isinstance(kernel.launch, Tasks | Grid):
        asked += kernel.launch.dims
    live = live_values(kernel.body, asked)
    for node in walk(kernel.body):
        carried = bindings(node)
        carried[:] = [b for b in carried if not live.isdisjoint(b.names)]
    for block in all_blocks(kernel.body):
        block.nodes[:] = [n for n in block.nodes if is_live(n, live)]


def live_values(block: Block, asked: Iterable[Any] = ()) -> set[Value]:
    """The values that effects, bounds and conditions of a block depend on, or those that are asked for."""
    work = [*asked]
    for node in walk(block):
        if _stays(node):
            work += reads(node)
        if isinstance(node, While):
            work.append(node.condition)
    live: set[Value] = set()
    while work:
        value = work.pop()
        if isinstance(value, Value) and value not in live:
            live.add(value)
            work += sources(value)
            if isinstance(value.source, For | If):
                work += reads(value.source)
    return live


def is_live(node: Node, live: set[Value]) -> bool:
    """Whether a node has effects, or makes a value that is live."""
    return _stays(node) or not live.isdisjoint(results(node))


def _stays(node: Node) -> bool:
    """Whether a node stays even if nothing reads its results."""
    if isinstance(node, Call):
        return not node.op.effects.removable
    if isinstance(node, For | If):
        return any(_stays(inner) for block in blocks(node) for inner in block.nodes)
    return not isinstance(node, Sharing)
