"""Multicast copies: blocks that share one must name the same tile, of which each copies a part to all of them."""

from __future__ import annotations

from collections.abc import Callable

from pykittens.emulate.barriers import Barrier, Copy
from pykittens.emulate.finding import Finding, FindingStep, Kind
from pykittens.emulate.group import Group, name_in_launch
from pykittens.emulate.memory import Box, GlobalTile, Place
from pykittens.ir.nodes import Call

# The tile that a copy names: its tensor, the place of its plane, first row and first column.
_Tile = tuple[str, Place, int, int]


class Multicasts:
    """The tiles that blocks have copied to the stages of a cluster, in the phases that are not complete."""

    def __init__(self, report: Callable[[Finding], None]) -> None:
        self.report = report
        self.tiles: dict[tuple[Barrier, object], tuple[int, FindingStep, _Tile]] = {}

    def starts(self, group: Group, call: Call, copy: Copy, box: Box, phase: int) -> None:
        """A block starts to copy its part of a tile to a stage of a block of its cluster, in a phase of its barrier."""
        assert isinstance(copy.src, GlobalTile), "no tile that was sent is multicast"
        tile = copy.src.name, box.place, box.row, box.col
        key = copy.barrier, copy.dst.memory
        step = FindingStep(name_in_launch(group), f"copies its part of {_named(tile)}", call.loc)
        before, first, other = self.tiles.get(key, (-1, step, tile))
        if before != phase:
            self.tiles[key] = phase, step, tile
        elif other != tile:
            self.report(_different(copy, first, step))


def _different(copy: Copy, *steps: FindingStep) -> Finding:
    stage = copy.dst.memory.name if copy.dst.memory is not None else "a stage"
    return Finding(
        Kind.MULTICAST,
        f"{stage} gets parts of different tiles: each block that shares a multicast copy copies one part for all",
        tuple(sorted(steps, key=lambda step: step.who)),
        "one tile for all blocks that share the copy",
        "omit multicast=True for a tile of the block's own; the coordinates of a tile of the whole cluster do not "
        "depend on the axis along which its blocks lie, the last of a grid; blocks of one row or one column of a "
        "cluster share a tile with multicast=pk.peers(...)",
    )


def _named(tile: _Tile) -> str:
    name, place, row, col = tile
    sides = iter((f"row {row}", f"column {col}")[-place.count(slice(None)) :])
    at = (next(sides) if isinstance(i, slice) else str(i) for i in place)
    return f"`{name}` at [{', '.join(at)}]"
