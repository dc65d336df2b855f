"""Copies between tensors and stages by the lanes of a group: by pieces of 16 bytes, aligned granules or elements."""

from __future__ import annotations

from contextlib import nullcontext

from pykittens.ir.nodes import Call
from pykittens.ir.op import Engine
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import (
    copy_operands,
    moves_granules,
    moves_narrowly,
    moves_pieces,
)
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.cuda.sync import meet
from pykittens.targets.cuda.warp_assignment import pieces_in_flight
from pykittens.targets.index import Index
from pykittens.targets.simt.memory import address_of, combined_type
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import LANES

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
    if moves_pieces(call):
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
    """The call of a device function that copies, or combines memory with the copied elements."""
    (tile, ref), op = copy_operands(call), call.args.get("op")
    stores, bits = call.op.effects.engine is Engine.COPY_OUT, BITS[tile.dtype.bits]
    at = address_of(e, ref, tile.rows, tile.cols)
    if at.is_strided:
        _copy_elements(e, call, at)
        return
    pointer = f"({'' if stores else 'const '}{combined_type(tile.dtype) if op else bits}*)"
    matrix = f"{pointer}({at.matrix}), {at.operands}"
    to = shared_location(e, tile)
    shared = f"{to.row}, {to.byte}, {tile.type.layout.panel_bytes}"
    shape = f"{tile.rows}, {tile.cols}, {tile.type.layout.swizzle}"
    lanes = "lane"
    if moves_pieces(call) or moves_granules(call):
        lanes = "lane" if e.role.is_service and e.team.sharers == 1 else "thread"
        function = by_pieces if moves_pieces(call) else f"{by_elements}_skewed"
        threads = str(e.team.copy_threads)
        if function.endswith("_skewed") and call not in e.in_flight:
            # The checks of a debug program take registers, too.
            threads += f", {1 if e.debug else pieces_in_flight(e.team, e.kernel, e.target)}"
        head = f"{function}<{shape}, {threads}, {bits}>"
        if call in e.in_flight:
            e.pieces.append(e.names.unique("pieces"))
            head = f"InFlight<{shape}, {threads}, {bits}> {e.pieces[-1]}"
    else:
        head = "" if e.role.warps == 1 else "if (warp == 0) "
        head += (
            f"combine_out<{op.capitalize()}, {shape}>" if op else f"{by_elements}<{shape}, {bits}>"
        )
    operands = ", ".join((*((matrix, shared) if stores else (shared, matrix)), lanes))
    if moves_narrowly(call) and call not in e.in_flight:
        head = f"if (!start_narrow<{shape}, {threads}>({operands})) {head}"
    e.line(f"{head}({operands});")
    if e.in_flight.get(call) is call:
        e.line(" ".join(f"{pieces}.keep();" for pieces in e.pieces))
        e.pieces.clear()


def _copy_elements(e: CudaEmitter, call: Call, at: TileAddress) -> None:
    """A loop of one warp over the elements of a tile whose columns are no neighbours in memory."""
    (tile, _), op = copy_operands(call), call.args.get("op")
    type_ = combined_type(tile.dtype) if op else BITS[tile.dtype.bits]
    to, layout, element = shared_location(e, tile), tile.type.layout, at.element("at_row", "at_col")
    byte = to.byte + Index("at_col") * tile.dtype.bytes
    shared = to.row + f"shared_at<{layout.swizzle}>(at_row, {byte}, {layout.panel_bytes})"
    with nullcontext() if e.role.warps == 1 else e.braces("if (warp == 0) {"):
        count = tile.rows * tile.cols
        with e.braces(f"NO_UNROLL for (int i = lane; i < {count}; i += {LANES}) {{"):
            e.line(f"const int at_row = i / {tile.cols}, at_col = i % {tile.cols};")
            if call.op.effects.engine is Engine.COPY_IN:
                found = f"load_element((const {type_}*)({element.matrix}), {element.operands}, 0)"
                e.line(f"store_shared({shared}, {found});")
                return
            function = f"combine_element<{op.capitalize()}>" if op else "store_element"
            memory = f"({type_}*)({element.matrix}), {element.operands}"
            e.line(f"{function}({memory}, fetched<{type_}>({shared}));")
