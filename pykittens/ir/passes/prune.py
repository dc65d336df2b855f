"""Drops pure operations with unused results, and carried or merged values that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykittens.ir.nodes import (
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    Grid,
    If,
    Kernel,
    Merged,
    Require,
    Tasks,
    While,
    blocks,
    operands,
    walk,
)
from pykittens.ir.values import Value


def prune(kernel: Kernel) -> None:
    """Keep what effects, bounds and conditions need, and what that needs in turn."""
    live = _live(kernel)
    for node in walk(kernel.body):
        match node:
            case For() | ForTasks() | While():
                node.carried[:] = [c for c in node.carried if c.param in live or c.result in live]
            case If():
                node.merged[:] = [m for m in node.merged if m.result in live]
            case _:
                pass
    _drop_calls(kernel.body, live)


def _live(kernel: Kernel) -> set[Value]:
    """Every value that something which stays reads."""
    made_of: dict[Value, Carried | Merged] = {}
    work: list[Any] = [v for v, _ in kernel.statics]
    if isinstance(kernel.launch, Tasks | Grid):
        work += kernel.launch.dims
    for node in walk(kernel.body):
        work += _needs(node)
        match node:
            case For() | ForTasks() | While():
                made_of.update({v: c for c in node.carried for v in (c.param, c.result)})
            case If():
                made_of.update({m.result: m for m in node.merged})
            case _:
                pass
    live: set[Value] = set()
    while work:
        value = work.pop()
        if not isinstance(value, Value) or value in live:
            continue
        live.add(value)
        match made_of.get(value):
            case Carried() as c:
                work += (c.init, c.next)
            case Merged() as m:
                work += (m.then, m.otherwise)
            case None:
                if isinstance(value.source, Call):
                    work += operands(value.source.args)
    return live


def _needs(node: object) -> Iterator[Any]:
    """What a node reads that stays whoever uses its results."""
    match node:
        case Call():
            if not node.op.effects.pure:
                yield from operands(node.args)
        case For():
            yield from (node.start, node.stop)
        case ForTasks():
            yield from node.tasks.dims
        case Grid():
            yield from node.dims
        case If() | While() | Require():
            yield node.condition
        case _:
            pass


def _drop_calls(block: Block, live: set[Value]) -> None:
    block.nodes[:] = [
        n
        for n in block.nodes
        if not (isinstance(n, Call) and n.op.effects.pure and not any(r in live for r in n.results))
    ]
    for node in block.nodes:
        for inner in blocks(node):
            _drop_calls(inner, live)
