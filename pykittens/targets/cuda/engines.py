"""Who does the work of a call: an engine that carries it on after the instruction, or the lanes that run the role.

An engine may take copies (`Engine.COPY_IN`, `Engine.COPY_OUT`) and products (`Engine.PRODUCT`). The decisions in order:

1. `Target.engines` names for each engine the function that says why a call is left to the lanes: on Hopper
   `beyond_wgmma` and `beyond_copy_engine`. Without an entry, as on Ampere and Ada, all such calls are left to them.
2. `Target.find` looks for a lowering in the target and then in its parents. The lowerings of Hopper (wgmma.py, bulk.py)
   decline for the same reasons, so that a call falls back to products of single warps (mma_sync.py, which itself
   declines what the tensor cores of a generation do not multiply) and to copies by lanes (copies.py), which go in
   pieces of 16 bytes if `moves_pieces`, else element by element.
3. A copy of a tile that the edge of a window may cut is decided when the program runs (`is_split`): bulk.py writes
   both ways.
4. What else depends on who works asks `Target.carries` and `by_lanes`: the lanes of a warp that run a role (`lanes`,
   for warp_assignment.py), the waits and fences of a role (`CudaEmitter.started`), and the arrivals that complete the
   barriers of a stage (`fillings` and `stage_copies` in stages.py).
"""

from __future__ import annotations

from pykittens.ir.nodes import Call, Role, operands, walk
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, RegTile, RegVector, SharedTile, SharedVector, TileRef
from pykittens.ops.mma import a_is_transposed, b_is_transposed
from pykittens.targets.simt.memory import starts_aligned
from pykittens.targets.target import Target

# -- products --------------------------------------------------------------------------------------


def beyond_wgmma(role: Role, call: Call) -> str | None:
    """Why a product is not one of warpgroups, so that single warps multiply."""
    a = call.args["a"]
    if role.warps % 4:
        return f"a group of {role.warps} warps is no warpgroup"
    if a.dtype.bits == 16:
        return None
    if not isinstance(a, SharedTile):
        return f"warpgroups have {a.dtype} operands in registers in another order"
    if a_is_transposed(call.op) or not b_is_transposed(call.op):
        return f"warpgroups read {a.dtype} operands with k along the rows of memory only"
    return None


# -- copies ----------------------------------------------------------------------------------------

MOST_OF_A_BOX = 256  # elements along an axis of what the copy engine moves at once
LINE = 128  # bytes: a box starts at a multiple of them
# What the copy engine combines in memory. Of 16-bit floats it would drop a NaN in a maximum.
COMBINED_IN_BULK = {
    "add": ("f32", "f16", "bf16", "int32"),
    "max": ("int32",),
    "min": ("int32",),
}


def ends(call: Call) -> tuple[SharedTile, TileRef | Global]:
    """The shared tile of a copy, and what it comes from or goes to."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = call.args["src" if stores else "dst"], call.args["dst" if stores else "src"]
    assert isinstance(tile, SharedTile)
    assert isinstance(ref, TileRef | Global)
    return tile, ref


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


def beyond_copy_engine(role: Role, call: Call) -> str | None:
    """Why the lanes must copy: the engine moves whole panels between aligned tensors and shared memory."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = ends(call)
    reached = box_cols(tile) and ref.type.aligned and (ref.type.whole_rows or not stores)
    op = call.args.get("op")
    combines = op is None or tile.dtype.name in COMBINED_IN_BULK[op]
    in_shares = call.args.get("multicast") and edged_axes(ref)  # of a tile that may be cut
    if reached and combines and not in_shares:
        return None
    return "the copy engine does not reach the tensor or the part of a panel"


def edged_axes(ref: TileRef | Global) -> list[int]:
    """The axes of which a window has edges inside the tensor: of the last two."""
    rank = len(ref.first.index)
    return [axis for axis in ref.windows if axis >= rank - 2]


def is_split(call: Call) -> bool:
    """Whether a copy within the engine's reach is left to the lanes where the edge of a window cuts the tile."""
    copies = call.op.effects.engine in (Engine.COPY_IN, Engine.COPY_OUT)
    return copies and bool(edged_axes(ends(call)[1]))


def moves_pieces(call: Call, target: Target) -> bool:
    """Whether the lanes move a copy in pieces of 16 bytes; else, or where only an engine's rests are left, elements."""
    tile, ref = ends(call)
    whole = tile.cols * tile.dtype.bytes % 16 == 0
    combines = call.args.get("op") is not None
    return whole and not target.engines and starts_aligned(ref) and not combines


# -- roles -----------------------------------------------------------------------------------------


def by_lanes(role: Role, call: Call, target: Target) -> bool:
    """Whether the lanes that run a role do the work of a call, always or where an engine cannot."""
    return not target.carries(role, call) or is_split(call)


def lanes(role: Role, target: Target) -> int:
    """Lanes of a warp that run a role: one if all it does is to start copies that an engine carries on."""
    calls = [n for n in walk(role.body) if isinstance(n, Call)]
    works = any(by_lanes(role, c, target) for c in calls if c.op.effects.engine is not None)
    registers = any(
        isinstance(v, RegTile | RegVector) for c in calls for v in (*c.results, *operands(c.args))
    )
    return 1 if role.is_service and not works and not registers else 32
