"""Stages of pipelines: how they are filled and emptied, and the arrivals that complete their barriers."""

from __future__ import annotations

from itertools import takewhile

from pykittens.ir.nodes import Block, Call, Kernel, Role, blocks, operands, takes, walk
from pykittens.ir.op import Engine
from pykittens.ir.peers import groups_of_peers, writers
from pykittens.ir.stages import Acquire, Leave, Pipeline, Side
from pykittens.ir.values import SharedTile
from pykittens.targets.cuda.engines import (
    by_lanes,
    calls,
    copy_operands,
    moves_granules,
    moves_narrowly,
    moves_pieces,
    rows_between,
)
from pykittens.targets.cuda.warp_assignment import Team, copy_warps, pieces_together
from pykittens.targets.target import Target
from pykittens.types.tiles import MOST_ARRIVALS


def _writes(role: Role) -> list[tuple[Call, Acquire]]:
    """The calls of a role that write to stages, each with the stage."""
    tiles = [(c, c.args[c.op.effects.writes[0]]) for c in calls(role) if c.op.effects.writes]
    return [(c, t.stage.acquire) for c, t in tiles if isinstance(t, SharedTile) and t.stage]


def fillings(role: Role, pipeline: Pipeline, target: Target) -> tuple[bool, bool]:
    """How a role fills stages: whether by copies whose end each lane signals, and whether in other ways.

    Rows that start at any address are copied in one way or the other, which the program finds out.
    """
    writes = [call for call, stage in _writes(role) if stage.pipeline is pipeline]
    started = [_starts(c) and by_lanes(role, c, target) for c in writes]
    pieces = bool(writes) and all(started) and all(moves_pieces(c) for c in writes)
    return any(started), bool(target.engines) or not pieces


def fences_copies(kernel: Kernel, role: Role, pipeline: Pipeline, target: Target) -> bool:
    """Whether an engine of a role reads stages that lanes copy: after its wait for them, the role needs a fence."""
    copied = any(fillings(r, pipeline, target)[0] for r in kernel.roles)
    return copied and any(
        target.carries(role, call) and x.stage.acquire.pipeline is pipeline
        for call in calls(role)
        if call.op.effects.engine is not None
        for x in operands(call.args)
        if isinstance(x, SharedTile) and x.stage is not None
    )


def _starts(call: Call) -> bool:
    """Whether lanes that do a call may start copies whose end they do not wait for."""
    is_copy = call.op.effects.engine is Engine.COPY_IN
    return is_copy and (moves_pieces(call) or moves_narrowly(call))


def arrivals(kernel: Kernel, pipeline: Pipeline, side: Side, target: Target) -> int:
    """Arrivals that complete a barrier of a stage: one per warp, and one per lane if lanes signal their copies."""
    shared = copy_warps(kernel, target)
    roles = [r for r in kernel.roles if takes(r.body, pipeline, side)]
    warps = {r: r.groups * r.warps * shared.get(r, 1) for r in roles}
    if side == "drain":
        blocks_ = writers(groups_of_peers(kernel, pipeline))
        total = len(blocks_) * sum(warps[r] for r in roles)
    else:
        total = 0
        for role in roles:
            each_lane, each_warp = fillings(role, pipeline, target)
            total += warps[role] * (32 * each_lane + each_warp)
    # NVRTC 13.0 crashes on a count of 0 (docs/facts.md).
    assert 1 <= total <= MOST_ARRIVALS, f"no barrier completes after {total} arrivals"
    return total


def stage_copies(kernel: Kernel, acquire: Acquire, target: Target) -> tuple[list[Call], bool]:
    """The bulk copies into a stage, and whether their bytes alone can complete its barrier.

    So it is if each runs exactly once, nothing else writes the stage, and nothing of effect follows the last one.
    """
    writes = [(r, call) for r in kernel.roles for call, stage in _writes(r) if stage is acquire]
    bulk = [call for role, call in writes if not by_lanes(role, call, target)]
    siblings = next(b.nodes for n in walk(kernel.body) for b in blocks(n) if acquire in b.nodes)
    if not bulk or len(bulk) < len(writes) or not all(call in siblings for call in bulk):
        return bulk, False
    rest = siblings[max(map(siblings.index, bulk)) + 1 :]
    inside = takewhile(lambda n: not isinstance(n, Leave) or n.acquire is not acquire, rest)
    return bulk, all(isinstance(n, Call) and n.op.effects.pure for n in inside)


def loads_together(team: Team, block: Block, target: Target) -> list[list[Call]]:
    """Runs of copies to a stage whose loads lanes have in flight together: registers hold all of their pieces.

    Between the copies of a run numbers are computed and memory is prefetched.
    """
    runs: list[list[Call]] = []
    stage, left = None, 0
    for node in block.nodes:
        if isinstance(node, Call) and (node.op.effects.pure or node.op.effects.prefetches):
            continue
        pieces = _alike_pieces(team, node, target) if isinstance(node, Call) else None
        if not isinstance(node, Call) or pieces is None:
            stage = None
            continue
        acquire = node.args["dst"].stage.acquire
        if acquire is not stage or pieces > left:
            runs.append([])
            stage, left = acquire, pieces_together(team.role)
        runs[-1].append(node)
        left -= pieces
    return [run for run in runs if len(run) > 1]


def _alike_pieces(team: Team, call: Call, target: Target) -> int | None:
    """Pieces of each lane that copies a tile at any address to a stage, if they are alike."""
    if call.op.effects.engine is not Engine.COPY_IN or target.carries(team.role, call):
        return None
    tile, _ = copy_operands(call)
    if tile.stage is None or moves_pieces(call) or not moves_granules(call):
        return None
    between = rows_between(tile, team.copy_threads)
    return None if between is None else -(-tile.rows // between)
