"""Copies between tensors and stages by the lanes of a group: in pieces of 16 bytes, or element by element."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import moves_pieces
from pykittens.targets.cuda.shared import shared_place
from pykittens.targets.cuda.sync import meet
from pykittens.targets.simt.memory import COMBINED_TYPES, place
from pykittens.targets.target import Lowerings

COPIES = Lowerings()

BITS = {
    8: "unsigned char",
    16: "unsigned short",
    32: "u32",
    64: "u64",
}  # an element's, as it is moved


@COPIES.lower("load_async")
def lower_load_async(e: CudaEmitter, call: Call) -> None:
    matrix, shared = _matrix(e, call, "dst", "src"), _shared(e, call, "dst")
    if moves_pieces(call, e.target):
        thread = "lane" if e.role.is_service else "thread"
        e.line(f"start_copy{_template(e, call, 'dst', True)}({shared}, {matrix}, {thread});")
    else:
        e.line(
            f"{_first_warp(e)}copy_in{_template(e, call, 'dst', False)}({shared}, {matrix}, lane);"
        )
    if call.args["dst"].stage is None:
        _bring(e, call)


def _bring(e: CudaEmitter, call: Call) -> None:
    """Tell the semaphore of a copy by lanes that its bytes have come."""
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
    matrix, shared = _matrix(e, call, "src", "dst"), _shared(e, call, "src")
    if moves_pieces(call, e.target):
        thread = "lane" if e.role.is_service else "thread"
        e.line(f"copy_back{_template(e, call, 'src', True)}({matrix}, {shared}, {thread});")
    elif (op := call.args["op"]) is not None:
        tile = call.args["src"]
        template = f"<{op.capitalize()}, {tile.rows}, {tile.cols}, {tile.type.layout.swizzle}>"
        e.line(f"{_first_warp(e)}combine_out{template}({matrix}, {shared}, lane);")
    else:
        e.line(
            f"{_first_warp(e)}copy_out{_template(e, call, 'src', False)}({matrix}, {shared}, lane);"
        )


def _first_warp(e: CudaEmitter) -> str:
    return "" if e.role.warps == 1 else "if (warp == 0) "


def _template(e: CudaEmitter, call: Call, tile_name: str, pieces: bool) -> str:
    tile = call.args[tile_name]
    threads = f"{32 * e.role.warps}, " if pieces else ""
    return (
        f"<{tile.rows}, {tile.cols}, {tile.type.layout.swizzle}, {threads}{BITS[tile.dtype.bits]}>"
    )


def _shared(e: CudaEmitter, call: Call, tile_name: str) -> str:
    """Where the tile starts, its byte in a row, and the distance of panels."""
    tile = call.args[tile_name]
    to = shared_place(e, tile)
    return f"{to.row}, {to.byte}, {tile.type.layout.panel_bytes}"


def _matrix(e: CudaEmitter, call: Call, tile_name: str, ref_name: str) -> str:
    """The matrix in global memory, the tile's place in it and its extents."""
    tile = call.args[tile_name]
    at = place(e, call.args[ref_name], tile.rows, tile.cols)
    const = "const " if ref_name == "src" else ""
    combines = call.args.get("op") is not None
    word = COMBINED_TYPES[tile.dtype.name] if combines else BITS[tile.dtype.bits]
    pointer = f"({const}{word}*)({at.matrix})"
    return f"{pointer}, {at.stride}, {at.row}, {at.col}, {at.rows}, {at.cols}"
