"""Moves a conversion to a narrower type past the waits before its first use.

While a product reads its operand from registers, the next operand cannot take these registers. If the conversion
follows the wait, it can, and only the wide tile is held in the meantime.
"""

from __future__ import annotations

from pykittens.ir.nodes import Block, Call, Kernel, Node, WaitProducts, all_blocks, blocks, walk
from pykittens.ir.structure import inputs, leaving, uses


def sink(kernel: Kernel) -> None:
    """Sink conversions in every block, inner blocks first."""
    for role in kernel.roles:
        for block in reversed(all_blocks(role.body)):
            for node in list(block.nodes):
                if isinstance(node, Call) and node.op.effects.narrows and _is_narrower(node):
                    _move(block, node)


def _is_narrower(call: Call) -> bool:
    """Whether the elements of the result have fewer bits than those of the operands."""
    bits = call.results[0].dtype.bits
    return all(bits < v.dtype.bits for v in inputs(call))


def _move(block: Block, call: Call) -> None:
    nodes = block.nodes
    start = nodes.index(call)
    last_wait = start
    for position in range(start + 1, len(nodes)):
        node = nodes[position]
        if any(call.results[0] is v for v in inputs(node)) or _used_inside(call, node):
            break
        if isinstance(node, WaitProducts):
            last_wait = position
    if last_wait > start:
        nodes.insert(last_wait + 1, call)
        del nodes[start]


def _used_inside(call: Call, node: Node) -> bool:
    """Whether a node's blocks use the result, or hand it to the node: to be carried round it, or merged after it."""
    inside = (v for inner in blocks(node) for n in walk(inner) for v in uses(n))
    return any(call.results[0] is v for v in (*leaving(node), *inside))
