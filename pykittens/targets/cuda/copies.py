"""Copies between tensors and stages by the lanes of a group: by pieces of 16 bytes, or by elements."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.op import Engine
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import copy_operands, moves_pieces
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.cuda.sync import meet
from pykittens.targets.simt.memory import address_of, combined_type
from pykittens.targets.target import Lowerings

COPIES = Lowerings()

# The type of an element while it is copied, by its bits.
BITS = {8: "unsigned char", 16: "unsigned short", 32: "u32", 64: "u64"}


@COPIES.lower("load_async")
def lower_load_async(e: CudaEmitter, call: Call) -> None:
    _copy(e, call, "start_copy", "copy_in")
    if call.args["dst"].stage is None:
        _signal(e, call)


def _signal(e: CudaEmitter, call: Call) -> None:
    """Signal the bytes of a copy by lanes on its semaphore."""
    if moves_pieces(call, e.target):
        e.line("copies_wait();")
    if e.target.engines:
        e.line("fence_async();")
    meet(e)
    with e.one_thread():
        semaphore, bytes_ = call.args["signal"], call.args["dst"].type.bytes
        e.line(f"semaphore_land({e.names(semaphore)}, {bytes_});")


@COPIES.lower("store_async")
def lower_store_async(e: CudaEmitter, call: Call) -> None:
    _copy(e, call, "copy_back", "copy_out")


def _copy(e: CudaEmitter, call: Call, by_pieces: str, by_elements: str) -> None:
    """The call of a device function that copies by pieces or elements, or combines memory with the copied elements."""
    (tile, ref), op = copy_operands(call), call.args.get("op")
    stores, bits = call.op.effects.engine is Engine.COPY_OUT, BITS[tile.dtype.bits]
    at = address_of(e, ref, tile.rows, tile.cols)
    pointer = f"({'' if stores else 'const '}{combined_type(tile.dtype) if op else bits}*)"
    matrix = f"{pointer}({at.matrix}), {at.operands}"
    to = shared_location(e, tile)
    shared = f"{to.row}, {to.byte}, {tile.type.layout.panel_bytes}"
    shape = f"{tile.rows}, {tile.cols}, {tile.type.layout.swizzle}"
    lanes = "lane"
    if moves_pieces(call, e.target):
        head = f"{by_pieces}<{shape}, {32 * e.role.warps}, {bits}>"
        lanes = "lane" if e.role.is_service else "thread"
    else:
        head = "" if e.role.warps == 1 else "if (warp == 0) "
        head += (
            f"combine_out<{op.capitalize()}, {shape}>" if op else f"{by_elements}<{shape}, {bits}>"
        )
    operands = (matrix, shared) if stores else (shared, matrix)
    e.line(f"{head}({', '.join(operands)}, {lanes});")
