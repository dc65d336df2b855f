"""Stages of pipelines: how they are filled and emptied, and the arrivals that complete their barriers."""

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
from pykittens.ir.values import Global, SharedTile, SharedVector, TileRef
from pykittens.targets.simt.memory import starts_aligned
from pykittens.targets.target import Target


def ends(call: Call) -> tuple[SharedTile, TileRef | Global]:
    """The shared tile of a copy, and what it comes from or goes to."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = call.args["src" if stores else "dst"], call.args["dst" if stores else "src"]
    assert isinstance(tile, SharedTile)
    assert isinstance(ref, TileRef | Global)
    return tile, ref


MOST_OF_A_BOX = 256  # elements along an axis of what the copy engine moves at once
LINE = 128  # bytes: a box starts at a multiple of them
# What the copy engine combines in memory. Of 16-bit floats it would drop a NaN in a maximum.
COMBINED_IN_BULK = {
    "add": ("f32", "f16", "bf16", "int32"),
    "max": ("int32",),
    "min": ("int32",),
}


def box_cols(tile: SharedTile) -> int | None:
    """Columns of the equal boxes in which a tile or vector is moved; None if it cannot be cut into some."""
    if not isinstance(tile, SharedVector):
        panel = tile.type.layout.panel_cols
        return panel if tile.cols % panel == 0 else None
    if tile.length <= MOST_OF_A_BOX:
        return tile.length
    unit = LINE // tile.dtype.bytes
    lengths = range(unit, MOST_OF_A_BOX + 1, unit)
    return max((n for n in lengths if tile.length % n == 0), default=None)


def _is_reached(call: Call) -> bool:
    """Whether the copy engine of Hopper can carry a copy out but for windows: whole panels, aligned tensors."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = ends(call)
    op = call.args.get("op")
    if op is not None and tile.dtype.name not in COMBINED_IN_BULK[op]:
        return False
    return box_cols(tile) is not None and ref.type.aligned and (ref.type.whole_rows or not stores)


def edged_axes(ref: TileRef | Global) -> list[int]:
    """The axes of which a window has edges inside the tensor: of the last two."""
    rank = len(ref.first.index)
    return [axis for axis in ref.windows if axis >= rank - 2]


def is_bulk(role: Role, call: Call) -> bool:
    """Whether the copy engine of Hopper carries a copy out; else the lanes do. Edges of windows it does not know."""
    return _is_reached(call) and not edged_axes(ends(call)[1])


def is_split(call: Call) -> bool:
    """Whether the copy engine carries a copy out where no edge of a window cuts the tile, the lanes where one does."""
    return _is_reached(call) and bool(edged_axes(ends(call)[1])) and not call.args.get("multicast")


def moves_pieces(call: Call, target: Target) -> bool:
    """Whether the lanes move a copy in pieces of 16 bytes; else, or where only an engine's rests are left, elements."""
    tile, ref = ends(call)
    whole = tile.cols * tile.dtype.bytes % 16 == 0
    combines = call.args.get("op") is not None
    return whole and not target.engines and starts_aligned(ref) and not combines


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
                    bulk = target.runs_on(role, node)
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
