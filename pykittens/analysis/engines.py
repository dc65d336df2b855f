"""Which moves an engine of sm_90a carries on after the instruction, and which are left to the lanes.

The copy engine moves boxes: PTX ISA, "cp.async.bulk.tensor", and docs/facts.md. Products of warpgroups are `wgmma`.
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, SharedTile, SharedVector, TileRef
from pykittens.ops.mma import a_is_transposed, b_is_transposed

MOST_OF_A_BOX = 256  # elements along an axis
LINE_BYTES = 128  # a box of a part of a vector starts at a multiple of them
# Of 16-bit floats the engine would drop a NaN in a maximum.
COMBINED = {"add": ("f32", "f16", "bf16", "int32"), "max": ("int32",), "min": ("int32",)}


def ends(call: Call) -> tuple[SharedTile, TileRef]:
    """The shared tile of a copy, and the tile of a tensor that it comes from or goes to."""
    names = ("src", "dst") if call.op.effects.engine is Engine.COPY_OUT else ("dst", "src")
    tile, ref = (call.args[name] for name in names)
    assert isinstance(tile, SharedTile)
    assert isinstance(ref, TileRef | Global)
    return tile, ref.first


def box_cols(tile: SharedTile) -> int | None:
    """Columns of the boxes in which a tile or vector is moved; None where it cannot be cut into whole ones."""
    if not isinstance(tile, SharedVector):
        panel = tile.type.layout.panel_cols
        return panel if tile.cols % panel == 0 else None
    if tile.length <= MOST_OF_A_BOX:
        return tile.length
    unit = LINE_BYTES // tile.dtype.bytes
    lengths = range(unit, MOST_OF_A_BOX + 1, unit)
    return max((n for n in lengths if tile.length % n == 0), default=None)


def is_bulk(call: Call) -> bool:
    """Whether the copy engine carries a copy out; of a window, where none of its edges cuts the tile."""
    tile, ref = ends(call)
    op = call.args.get("op")
    if op is not None and tile.dtype.name not in COMBINED[op]:
        return False
    if call.args.get("multicast") and any(axis >= len(ref.index) - 2 for axis in ref.windows):
        return False
    stores = call.op.effects.engine is Engine.COPY_OUT
    return box_cols(tile) is not None and ref.type.aligned and (ref.type.whole_rows or not stores)


def is_wgmma(call: Call, warps: int) -> bool:
    """Whether a product is one of warpgroups; else single warps multiply."""
    a = call.args["a"]
    if warps % 4:
        return False
    along_rows = not a_is_transposed(call.op) and b_is_transposed(call.op)
    return a.dtype.bits == 16 or (isinstance(a, SharedTile) and along_rows)
