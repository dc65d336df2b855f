"""How the stages of pipelines are filled and emptied, and how many arrivals complete their barriers."""

from __future__ import annotations

from pykittens.ir.nodes import (
    Acquire,
    Block,
    Call,
    For,
    ForTasks,
    If,
    Kernel,
    Pipeline,
    Role,
    Side,
    While,
    blocks,
    is_multicast,
    takes,
    walk,
)
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile
from pykittens.targets.cuda.engines import by_lanes, moves_pieces
from pykittens.targets.target import Target


def fillings(role: Role, pipeline: Pipeline, target: Target) -> tuple[bool, bool]:
    """How a role fills stages: whether by copies that each lane is told the end of, and whether in other ways."""
    writes = [
        n
        for n in walk(role.body)
        if isinstance(n, Call)
        and n.op.effects.writes
        and isinstance(tile := n.args[n.op.effects.writes[0]], SharedTile)
        and tile.stage is not None
        and tile.stage.acquire.pipeline is pipeline
    ]
    by_pieces = [c.op.effects.engine is Engine.COPY_IN and moves_pieces(c, target) for c in writes]
    return any(by_pieces), not all(by_pieces) or not by_pieces


def arrivals(kernel: Kernel, pipeline: Pipeline, side: Side, target: Target) -> int:
    """Arrivals that complete a barrier of a stage, by all groups that take part.

    One a warp; and one a lane, where each lane is told when its copies have landed.
    """
    taking = [r for r in kernel.roles if takes(r.body, pipeline, side)]
    if side == "drain":
        blocks_ = kernel.cluster if is_multicast(kernel, pipeline) else 1
        return blocks_ * sum(r.groups * r.warps for r in taking)
    total = 0
    for role in taking:
        by_lanes, by_warp = fillings(role, pipeline, target)
        total += role.groups * role.warps * (32 * by_lanes + by_warp)
    return total


def stage_copies(kernel: Kernel, acquire: Acquire, target: Target) -> tuple[list[Call], bool]:
    """The bulk copies into a stage, and whether each is run exactly once and nothing else writes it."""
    once: list[Call] = []
    certain = True

    def visit(role: Role, block: Block, repeated: bool) -> None:
        nonlocal certain
        for node in block.nodes:
            if isinstance(node, Call) and node.op.effects.writes:
                tile = node.args[node.op.effects.writes[0]]
                if isinstance(tile, SharedTile) and tile.stage and tile.stage.acquire is acquire:
                    bulk = not by_lanes(role, node, target)
                    certain = certain and bulk and not repeated
                    if bulk:
                        once.append(node)
            inside = repeated or isinstance(node, If | While | For | ForTasks)
            for inner in blocks(node):
                visit(role, inner, inside and not _holds(inner, acquire))

    for role in kernel.roles:
        visit(role, role.body, False)
    return once, certain


def _holds(block: Block, acquire: Acquire) -> bool:
    return any(n is acquire for n in walk(block))
