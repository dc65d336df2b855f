"""Bank conflicts: cycles that shared memory takes for a line of a kernel, against those without conflicts.

Shared memory has 32 banks of 4 bytes. In a cycle each gives one word, to all lanes that ask for that word; lanes that
ask for several words of a bank wait for one another. A request of more than 4 bytes a lane is served in phases, of 16
lanes for 8 bytes and of 8 for 16; so is a load or store of matrices, a phase a matrix. Sources: CUDA C++ Programming
Guide, "Shared Memory" of the compute capabilities 5.x, which later ones keep; PTX ISA, "ldmatrix": eight addresses of
rows of 16 bytes a matrix. The phases are no promise of the vendor's; profilers count wavefronts so.

Modelled, address by address: what lanes load, store, copy and exchange, operands of single warps' products. Assumed:
a product of a warpgroup reads its operands as matrices of 8 rows of 16 bytes, `b` once for each 64 rows and `a` once,
and the copy engine moves 128 bytes a cycle, as lines that its swizzle turns in themselves. Barriers are not counted.
A tile starts at a multiple of 1024 bytes, a view at a multiple of 8 rows and of its own width, a part of a vector at a
multiple of its length: what it costs does not depend on which view or stage it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykittens.analysis.accesses import (
    NOWHERE,
    Numbers,
    Requests,
    by_elements,
    chunk_moves,
    core_matrices,
    elements,
    held,
    in_order,
    left_fragments,
    lines,
    matrices,
    pairs,
    right_fragments,
)
from pykittens.analysis.engines import ends, is_bulk, is_wgmma
from pykittens.analysis.exchanges import exchanges
from pykittens.errors import Loc
from pykittens.ir.nodes import Block, Call, Kernel, Role, blocks
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile, SharedVector
from pykittens.ops.mma import a_is_transposed, b_is_transposed
from pykittens.types.layouts import LANES, part_is_aligned
from pykittens.types.tiles import RT, RV, SCALAR

BANKS, WORD = 32, 4
LINE = BANKS * WORD  # bytes that shared memory moves in a cycle


@dataclass(frozen=True)
class SharedCost:
    """Cycles of shared memory for one run of a line by one group, and the fewest that its requests could take.

    what: the operation. tile: the tile or vector, or "scratch". assumed: the order of the accesses is not known.
    """

    loc: Loc | None
    what: str
    cycles: int
    ideal: int
    tile: str
    assumed: bool = False


def phases(requests: Requests) -> Numbers:
    """The addresses of the lanes that are served together, phases by lanes."""
    found = requests.addresses.reshape(-1, min(LANES, LINE // requests.size))
    served: Numbers = found[(found != NOWHERE).any(axis=1)]
    return served


def cycles(requests: Requests) -> int:
    """Cycles that requests take: in each phase, the most words that one bank is asked for."""
    addresses = phases(requests)
    if not len(addresses):
        return 0
    words = addresses[:, :, None] // WORD + np.arange(max(requests.size // WORD, 1))
    words = np.where(addresses[:, :, None] == NOWHERE, NOWHERE, words).reshape(len(addresses), -1)
    words, first = in_order(words)  # a word that several lanes ask for counts once
    phase = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    asked = np.bincount((phase * BANKS + words % BANKS)[first], minlength=len(words) * BANKS)
    return int(asked.reshape(-1, BANKS).max(axis=1).sum())


def fewest(requests: Requests) -> int:
    """Cycles that requests would take without conflicts: one a phase, which moves at most what a cycle can."""
    return len(phases(requests))


@dataclass(frozen=True, eq=False)
class SharedMove:
    """What an operation moves to or from one shared tile, or through scratch memory where there is none."""

    what: str
    tile: SharedTile | None
    requests: list[Requests]
    assumed: bool = False


def shared_costs(kernel: Kernel) -> list[SharedCost]:
    """What each line of a lowered kernel costs in shared memory, on sm_90a, in the order of the program."""
    found: dict[object, SharedCost] = {}
    for role, call in calls(kernel):
        for move in shared_moves(call, role.warps if role is not None else 1):
            total, ideal = sum(map(cycles, move.requests)), sum(map(fewest, move.requests))
            cost = SharedCost(call.loc, move.what, total, ideal, _named(move.tile), move.assumed)
            key = (id(role), str(cost.loc), cost.what, cost.tile)
            if (old := found.get(key)) is not None:
                cost = replace(old, cycles=old.cycles + total, ideal=old.ideal + ideal)
            found[key] = cost
    return list(found.values())


def _named(tile: SharedTile | None) -> str:
    if tile is None:
        return "scratch"
    return f"{tile.name} {tile.type}" if tile.name else str(tile.type)


def calls(kernel: Kernel) -> Iterator[tuple[Role | None, Call]]:
    """The operations of a kernel with the roles that run them; None for those that every warp does for itself."""

    def visit(role: Role | None, block: Block) -> Iterator[tuple[Role | None, Call]]:
        for node in block.nodes:
            if isinstance(node, Call):
                yield role, node
            for inner in blocks(node):
                yield from visit(node if isinstance(node, Role) else role, inner)

    yield from visit(None if kernel.has_roles else kernel.roles[0], kernel.body)


def shared_moves(call: Call, warps: int) -> Iterator[SharedMove]:
    """What one operation of a group of so many warps moves."""
    effects, what = call.op.effects, call.op.shown
    if effects.engine is Engine.PRODUCT:
        yield from _of_product(call, warps)
    elif effects.engine is not None:
        tile, _ = ends(call)
        by_lanes = not is_bulk(call)
        size = tile.dtype.bytes
        requests = (
            by_elements(tile.rows, tile.cols, size, tile.type.layout.offset)
            if by_lanes
            else lines(tile.type.bytes)
        )
        yield SharedMove(what, tile, [requests], assumed=not by_lanes)
    else:
        for name in (*effects.reads, *effects.writes):
            if isinstance(tile := call.args[name], SharedTile):
                stores = name in effects.writes
                value: Any = call.args["value"] if stores else call.results[0]
                transposed = bool(call.args.get("transposed"))
                requests_ = _of_value(tile, value.type, warps, stores, transposed)
                yield SharedMove(what, tile, requests_)
        if scratch := list(exchanges(call, warps)):
            yield SharedMove(what, None, scratch)


def _of_value(
    tile: SharedTile, value: RT | RV | SCALAR, warps: int, stores: bool, transposed: bool
) -> list[Requests]:
    """A load or store between a shared tile or vector and registers."""
    if isinstance(value, SCALAR):
        return [Requests.of(np.zeros((warps, LANES)), tile.dtype.bytes)]
    if isinstance(tile, SharedVector):
        offset = tile.type.layout.offset
        aligned = tile.whole is tile or part_is_aligned(tile.length, warps)
        return list(chunk_moves(held(value, warps), tile.dtype, offset, aligned, stores))
    if tile.dtype.bits == 16:
        return [matrices(tile.type, warps, transposed)]
    return [(elements if transposed else pairs)(tile.type, warps)]


def _of_product(call: Call, warps: int) -> Iterator[SharedMove]:
    """The shared operands of a product, each by itself."""
    a, b, (result,) = call.args["a"], call.args["b"], call.results
    a_across, b_across = a_is_transposed(call.op), not b_is_transposed(call.op)
    a_shared, by_warpgroups = isinstance(a, SharedTile), is_wgmma(call, warps)
    if by_warpgroups:
        times = result.type.rows // 64  # type: ignore[union-attr]
        left, right = core_matrices(a.type) if a_shared else None, core_matrices(b.type)
    else:
        times, reordered = warps, not a_shared and b.dtype.bits != 16
        left = left_fragments(a.type, a_across) if a_shared else None
        right = right_fragments(b.type, b_across, reordered)
    if left is not None:
        yield SharedMove(f"{call.op.shown} a", a, [left], by_warpgroups)
    yield SharedMove(f"{call.op.shown} b", b, [right.times(times)], by_warpgroups)
