"""The structure of any node: the values that it reads and binds, and those that its blocks yield.

Passes call these functions instead of matching loops and branches.
"""

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
    Node,
    Require,
    Role,
    Sharing,
    WaitProducts,
    While,
    blocks,
    calls,
    operands,
    tensors,
    walk,
    written,
)
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile, Value


def bindings(node: Node | None) -> list[Any]:
    """The list of the values that a loop carries or a branch merges; a new list for any other node."""
    match node:
        case For() | ForTasks() | While():
            return node.carried
        case If():
            return node.merged
        case _:
            return []


def heads(node: Node) -> list[Value]:
    """The values that a node binds at the head of its blocks: indices and carried values."""
    carried = [b.param for b in bindings(node) if isinstance(b, Carried)]
    match node:
        case ForTasks():
            return [*node.index, *carried]
        case For() | Role() if node.index is not None:
            return [node.index, *carried]
        case _:
            return carried


def yielded(node: Node, block: Block) -> list[Any]:
    """The values that a block of a node yields at its end: carried or merged values, or the condition of a `while`."""
    match node:
        case While() if block is node.test:
            return [node.condition]
        case For() | ForTasks() | While():
            return [c.next for c in node.carried]
        case If():
            return [m.then if block is node.then else m.otherwise for m in node.merged]
        case _:
            return []


def results(node: Node) -> list[Value]:
    """The values that a node binds for the nodes after it."""
    match node:
        case Call():
            return node.results
        case Grid() | Sharing():
            return [*node.index]
        case _:
            return [b.result for b in bindings(node)]


def definitions(block: Block) -> list[Value]:
    """The values that the nodes of a block and of the blocks inside it bind, in program order."""
    return [v for node in walk(block) for v in (*heads(node), *results(node))]


def reads(node: Node) -> Iterator[Any]:
    """The operands, bounds and conditions of a node, without carried values and without its blocks."""
    match node:
        case Call():
            yield from operands(node.args)
        case Require() | If():
            yield node.condition
        case Grid():
            yield from node.dims
        case For():
            yield from (node.start, node.stop)
        case ForTasks():
            yield from (*node.tasks.dims, node.tasks.order.size)
        case WaitProducts():
            yield from node.frees  # what it completes is made by the product, not read here
        case _:
            pass


def inputs(node: Node) -> Iterator[Value]:
    """The values that a node uses before its blocks, including the initial ones that it carries."""
    if isinstance(node, Call):  # by far the most nodes
        return operands(node.args)
    carried = (b.init for b in bindings(node) if isinstance(b, Carried))
    return (v for v in (*reads(node), *carried) if isinstance(v, Value))


def leaving(node: Node) -> Iterator[Value]:
    """The values that the blocks of a node yield."""
    return (v for b in blocks(node) for v in yielded(node, b) if isinstance(v, Value))


def uses(node: Node) -> list[Value]:
    """The values that a node uses before its blocks, and those that its blocks yield."""
    return [*inputs(node), *leaving(node)]


def sources(value: Value) -> Iterator[Any]:
    """The operands of the operation that computes a value, or the values that a loop or branch binds to it."""
    if isinstance(value.source, Call):
        yield from operands(value.source.args)
    for binding in bindings(value.source):
        if any(value is name for name in binding.names):
            yield from binding.sources


def fetches_written(kernel: Kernel) -> bool:
    """Whether the copy engine fetches from a tensor that the kernel writes: fences then have to cover tensors."""
    fetches = (c for c in calls(kernel.body) if c.op.effects.engine is Engine.COPY_IN)
    fetched = {t for c in fetches for t in tensors(c, c.op.effects.reads)}
    stored = written(kernel)
    # With `inplace`, one tensor may be several arguments.
    return bool(stored and fetched) if kernel.inplace else not fetched.isdisjoint(stored)


def views_of(tile: SharedTile) -> list[Call]:
    """The operations that select a tile of shared memory in the memory it is part of, the last one first."""
    found: list[Call] = []
    while isinstance(view := tile.source, Call):
        found.append(view)
        tile = _viewed(view)
    return found


def memory_of(tile: SharedTile) -> SharedTile:
    """The memory of which a tile is a view; of a stage, its tile."""
    views = views_of(tile)
    return _viewed(views[-1]) if views else tile


def _viewed(view: Call) -> SharedTile:
    return next(a for a in view.args.values() if isinstance(a, SharedTile))


def inputs_of(call: Call) -> tuple[str, ...]:
    """The operands whose contents before the call matter: those that it reads, and those that it combines with."""
    effects = call.op.effects
    return effects.reads + (effects.writes if call.args.get("op") is not None else ())
