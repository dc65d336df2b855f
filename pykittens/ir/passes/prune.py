"""Drops pure operations whose results nothing uses, and values carried or merged for nobody."""

from __future__ import annotations

from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    Grid,
    If,
    Kernel,
    Tasks,
    While,
    blocks,
    inputs,
    leaving,
    walk,
)
from pykittens.ir.values import Value


def prune(kernel: Kernel) -> None:
    """Drop dead values until none is left."""
    while _prune_once(kernel):
        pass


def _prune_once(kernel: Kernel) -> bool:
    used: set[Value] = {v for v, _ in kernel.statics}
    if isinstance(kernel.launch, Tasks | Grid):
        used |= {d for d in kernel.launch.dims if isinstance(d, Value)}
    for node in walk(kernel.body):
        used.update(inputs(node))
        used.update(leaving(node))
    changed = False
    for node in walk(kernel.body):
        match node:
            case For() | ForTasks() | While():
                kept = [c for c in node.carried if c.param in used or c.result in used]
                changed |= len(kept) < len(node.carried)
                node.carried[:] = kept
            case If():
                merged = [m for m in node.merged if m.result in used]
                changed |= len(merged) < len(node.merged)
                node.merged[:] = merged
            case _:
                pass
    return _drop_calls(kernel.body, used) or changed


def _drop_calls(block: Block, used: set[Value]) -> bool:
    kept = [
        n
        for n in block.nodes
        if not (isinstance(n, Call) and n.op.effects.pure and not any(r in used for r in n.results))
    ]
    changed = len(kept) < len(block.nodes)
    block.nodes[:] = kept
    for node in kept:
        for inner in blocks(node):
            changed |= _drop_calls(inner, used)
    return changed
