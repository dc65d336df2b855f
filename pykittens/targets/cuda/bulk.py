"""Copies between tensors and stages by the copy engine of Hopper, in boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pykittens.ir.evaluate import is_natural
from pykittens.ir.nodes import Call, Leave, WaitStores
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, SharedTile, SharedVector, TileRef
from pykittens.targets.cuda import copies
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import beyond_copy_engine, box_cols, edged_axes, ends, is_split
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_access
from pykittens.targets.index import Index
from pykittens.targets.source import MapSlot
from pykittens.targets.target import Lowerings

BULK = Lowerings()


@contextmanager
def _where_whole(
    e: CudaEmitter, call: Call, by_lanes: Callable[[Any, Call], None]
) -> Iterator[None]:
    """What the engine does, where no edge of a window cuts the tile; else the lanes do it."""
    if not is_split(call):
        yield
        return
    with e.braces(f"if ({_is_whole(e, call)}) {{", None):
        yield
    with e.braces("} else {"):
        by_lanes(e, call)


def _is_whole(e: CudaEmitter, call: Call) -> str:
    """Whether no element of a tile lies inside the tensor and outside the window, and the engine can start there."""
    tile, ref = ends(call)
    ref = ref.first
    rank, tensor = len(ref.index), ref.tensor
    tests = []
    for axis in edged_axes(ref):
        window, size = ref.windows[axis], tile.cols if axis == rank - 1 else tile.rows
        at, low, high = _coordinate(e, ref, axis, size), e.scalar(window.low), e.scalar(window.high)
        tests.append(f"{at} >= {low}")
        if axis == rank - 1 and (pieces := 16 // tile.dtype.bytes) > 1:
            # docs/facts.md: elsewhere the engine stops the kernel.
            tests.append(f"{at % pieces} == 0")
        tests.append(f"({at + size} <= {high} || {high} == {e.extent(tensor, axis)})")
    return " && ".join(tests)


def _coordinate(e: CudaEmitter, ref: TileRef, axis: int, unit: int) -> Index:
    """The element of an axis of the tensor at which a tile starts."""
    at, window = e.index(ref.index[axis]) * unit, ref.windows.get(axis)
    return at if window is None else e.index(window.origin) + at


@BULK.lower("load_async", declines=beyond_copy_engine)
def lower_load_async(e: CudaEmitter, call: Call) -> None:
    tile, src = call.args["dst"], call.args["src"]
    by_hand = tile.stage is None
    full = e.names(call.args["signal"]) if by_hand else e.full_barrier(tile.stage.acquire)
    parts = e.kernel.cluster if call.args["multicast"] else 1
    rows = tile.rows // parts
    blocks = (1 << parts) - 1
    with _where_whole(e, call, copies.lower_load_async), e.one_thread():
        if not by_hand and e.arms_each_copy(tile.stage.acquire):
            e.line(f"barrier_expect({full}, {tile.type.bytes});")
        for to, coordinates, name in _boxes(e, tile, src, rows):
            if parts > 1:
                to += Index("rank") * (rows * tile.type.layout.swizzle)
                coordinates[1] += Index("(int)rank") * rows
            function = "copy_box(" if parts == 1 else f"multicast_box({blocks}, "
            e.line(f"{function}{to}, {name}, {full}, {', '.join(map(str, coordinates))});")


@BULK.lower("store_async", declines=beyond_copy_engine)
def lower_store_async(e: CudaEmitter, call: Call) -> None:
    tile, dst = call.args["src"], call.args["dst"]
    function = f"{call.args['op'] or 'store'}_box"
    with _where_whole(e, call, copies.lower_store_async), e.one_thread():
        boxes = _boxes(e, tile, dst, tile.rows)
        # docs/facts.md: a store before the first element would stop the kernel; such a tile lies wholly outside.
        ahead = [e.scalar(i) for i in dst.first.index[-2:] if not is_natural(i)]
        with (
            e.braces(f"if ({' && '.join(f'{i} >= 0' for i in ahead)}) {{")
            if ahead
            else nullcontext()
        ):
            for source, coordinates, name in boxes:
                e.line(f"{function}({name}, {source}, {', '.join(map(str, coordinates))});")
            e.line("stores_commit();")


def _boxes(
    e: CudaEmitter, tile: SharedTile, ref: TileRef | Global, rows: int
) -> list[tuple[Index, list[Index], str]]:
    """The boxes of a tile, one a panel: shared address, coordinates with the innermost first, map."""
    layout, ref, width = tile.type.layout, ref.first, box_cols(tile)
    assert width is not None, f"{tile} cannot be cut into boxes"
    is_vector = isinstance(tile, SharedVector)
    distance = width * tile.dtype.bytes if is_vector else layout.panel_bytes
    name = e.tensor_map(MapSlot(ref.tensor.name, rows, width, layout.swizzle), ref.tensor)
    rank, at = len(ref.index), shared_location(e, tile).address
    check_access(e, ref, tile.rows, tile.cols)
    boxes = []
    for box in range(tile.cols // width):
        x = _coordinate(e, ref, rank - 1, tile.cols) + box * width
        outer = [_coordinate(e, ref, rank - 2, tile.rows)] if rank > 1 else []
        outer += [_coordinate(e, ref, axis, 1) for axis in reversed(range(rank - 2))]
        boxes.append((at + box * distance, [x, *outer], name))
    return boxes


# -- in step with the engine ----------------------------------------------------------------------


@BULK.lower(Leave)
def leave_to_engines(e: CudaEmitter, node: Leave) -> None:
    """Copies arrive with their bytes; what lanes have stored is made seen by the engines first."""
    full = e.full_barrier(node.acquire)
    if e.team_lanes == 1:
        if e.arms_each_copy(node.acquire):
            e.line(f"barrier_arrive({full});")
        return
    e.line("fence_async();")
    e.line("__syncwarp();")
    e.line(f"if (lane == 0) barrier_arrive({full});")


@BULK.lower(WaitStores)
def wait_stores(e: CudaEmitter, node: WaitStores) -> None:
    if e.started(Engine.COPY_OUT):
        e.line("stores_wait_read();" if node.read else "stores_wait();")


@BULK.lower("store_wait")
def lower_store_wait(e: CudaEmitter, call: Call) -> None:
    """One thread of the group has started the stores and waits for them; the others wait for it."""
    if e.started(Engine.COPY_OUT):
        word = "stores_wait_read" if call.args["read"] else "stores_wait"
        e.line(f"{word}<{call.args['pending']}>();")
    meet(e)


@BULK.lower("fence_async")
def lower_fence_async(e: CudaEmitter, call: Call) -> None:
    e.line("fence_async();")
