"""The positions of a role in the rings of its pipelines, of which those that are always equal share a variable.

A role counts the stages of a ring that it has filled, drained and given back. If blocks use several counts in rounds,
in which each rises by one, they are equal before and after a round; their variable steps after its last use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pykittens.ir.nodes import Block, Call, Node, all_blocks, walk, within
from pykittens.ir.stages import Acquire, GiveBack, Pipeline

Use = Acquire | GiveBack
Position = tuple[Pipeline, str]  # "fill", "drain" or "back"


def position_of(use: Use) -> Position:
    """The position in a ring at which a node takes a stage or returns one."""
    return use.pipeline, use.side if isinstance(use, Acquire) else "back"


@dataclass(frozen=True)
class SharedTurn:
    """A variable: the positions that it holds, and the nodes after which it steps."""

    positions: tuple[Position, ...]
    ends: frozenset[Node]


def shared_turns(body: Block) -> Iterator[SharedTurn]:
    """The variables of a role, in the order of their first use."""
    uses: dict[Position, list[tuple[Block, Use]]] = {}
    for block in all_blocks(body):
        for node in block.nodes:
            if isinstance(node, Acquire | GiveBack):
                uses.setdefault(position_of(node), []).append((block, node))
    # A question needs the position at each moment.
    asked = {n.args.get("ring") for n in walk(body) if isinstance(n, Call)}
    alike: dict[object, list[Position]] = {}
    for position, of in uses.items():
        is_single = position[0] not in asked and all(
            isinstance(n, Acquire) or (n.exact and n.count == 1) for _, n in of
        )
        where = position[0].stages, *(block for block, _ in of)
        alike.setdefault(where if is_single else position, []).append(position)
    for positions in alike.values():
        ends = _ends(positions, uses)
        if ends is not None:
            yield SharedTurn(tuple(positions), ends)
            continue
        for position in positions:
            yield SharedTurn((position,), frozenset(node for _, node in uses[position]))


def _ends(
    positions: Sequence[Position], uses: Mapping[Position, Sequence[tuple[Block, Use]]]
) -> frozenset[Node] | None:
    """The last use of each round, which uses every position once; None if blocks do not use them in rounds."""
    of: dict[Node, Position] = {node: p for p in positions for _, node in uses[p]}
    ends = set[Node]()
    for block in dict.fromkeys(block for p in positions for block, _ in uses[p]):
        at = [i for i, node in enumerate(block.nodes) if node in of]
        for first in range(0, len(at), len(positions)):
            some = at[first : first + len(positions)]
            between = [block.nodes[i] for i in range(some[0], some[-1]) if i not in some]
            if any(inner in of for node in between for inner in within(node)):
                return None
            if {of[block.nodes[i]] for i in some} != set(positions):
                return None
            ends.add(block.nodes[some[-1]])
    return frozenset(ends)
