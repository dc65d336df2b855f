"""Copies between tensors and stages: by the copy engine in boxes, or by the lanes of the warp."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, SharedTile, TileRef
from pykittens.targets.cuda.emitter import HopperEmitter
from pykittens.targets.cuda.shared import shared_place
from pykittens.targets.cuda.sm_90 import SM_90, is_bulk
from pykittens.targets.simt.memory import place, scaled
from pykittens.targets.source import MapSlot


@SM_90.lower("load_async")
def lower_load_async(e: HopperEmitter, call: Call) -> None:
    tile, src = call.args["dst"], call.args["src"]
    full = e.full_barrier(tile.stage.acquire)
    if not is_bulk(call):
        _lanes_copy(e, tile, src, into_shared=True)
        return
    parts = e.kernel.cluster if call.args["multicast"] else 1
    rows = tile.rows // parts
    blocks = (1 << parts) - 1
    with e.one_thread():
        if e.arms_each_copy(tile.stage.acquire):
            e.line(f"barrier_expect({full}, {tile.type.bytes});")
        for to, coordinates, name in _boxes(e, tile, src, rows):
            if parts == 1:
                e.line(f"copy_box({to}, {name}, {full}, {', '.join(coordinates)});")
            else:
                to += f" + rank * {rows * tile.type.layout.swizzle}"
                coordinates[1] += f" + (int)rank * {rows}"
                e.line(f"multicast_box({blocks}, {to}, {name}, {full}, {', '.join(coordinates)});")


@SM_90.lower("store_async")
def lower_store_async(e: HopperEmitter, call: Call) -> None:
    tile, dst = call.args["src"], call.args["dst"]
    if not is_bulk(call):
        _lanes_copy(e, tile, dst, into_shared=False)
        return
    with e.one_thread():
        for source, coordinates, name in _boxes(e, tile, dst, tile.rows):
            e.line(f"store_box({name}, {source}, {', '.join(coordinates)});")
        e.line("stores_commit();")


def _boxes(
    e: HopperEmitter, tile: SharedTile, ref: TileRef | Global, rows: int
) -> list[tuple[str, list[str], str]]:
    """The boxes of a tile, one a panel: shared address, coordinates with the innermost first, map."""
    layout = tile.type.layout
    tensor = ref.tensor if isinstance(ref, TileRef) else ref.owner
    index = ref.index if isinstance(ref, TileRef) else ref.leading + (0,) * ref.rank
    slot = MapSlot(tensor.name, rows, layout.panel_cols, layout.swizzle)
    name = e.tensor_map(slot, tensor)
    at = shared_place(e, tile).address
    boxes = []
    for panel in range(tile.cols // layout.panel_cols):
        x = scaled(e, index[-1], tile.cols)
        if panel:
            x = str(panel * layout.panel_cols) if x == "0" else f"{x} + {panel * layout.panel_cols}"
        y = scaled(e, index[-2], tile.rows)
        leading = [e.scalar(i) for i in reversed(index[:-2])]
        to = at if panel == 0 else f"{at} + {panel * layout.panel_bytes}"
        boxes.append((to, [x, y, *leading], name))
    return boxes


def _lanes_copy(
    e: HopperEmitter, tile: SharedTile, ref: TileRef | Global, into_shared: bool
) -> None:
    layout = tile.type.layout
    at = place(e, ref, tile.rows, tile.cols)
    bits = "unsigned short" if tile.dtype.bits == 16 else "u32"
    template = f"<{tile.rows}, {tile.cols}, {layout.swizzle}, {bits}>"
    to = shared_place(e, tile)
    shared = f"{to.row}, {to.byte}, {layout.panel_bytes}"
    matrix = f"({'const ' if into_shared else ''}{bits}*)({at.matrix})"
    tensor = f"{matrix}, {at.stride}, {at.row}, {at.col}, {at.rows}, {at.cols}"
    first = "" if e.role.warps == 1 else "if (warp == 0) "
    if into_shared:
        e.line(f"{first}copy_in{template}({shared}, {tensor}, lane);")
    else:
        e.line(f"{first}copy_out{template}({tensor}, {shared}, lane);")
