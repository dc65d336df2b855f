"""Copies between tensors and stages by the copy engine of Hopper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pykittens.ir.evaluate import is_natural
from pykittens.ir.nodes import Call, WaitStores
from pykittens.ir.op import Engine
from pykittens.ir.peers import peers_of
from pykittens.ir.stages import Leave
from pykittens.ir.structure import fetches_written
from pykittens.ir.values import Global, SharedTile, SharedVector, TileRef
from pykittens.targets.cuda import copies, pipeline
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import (
    MAX_BOX_EXTENT,
    beyond_copy_engine,
    beyond_prefetch_engine,
    box_cols,
    by_lanes,
    calls,
    copy_operands,
    edged_axes,
    is_split,
)
from pykittens.targets.cuda.pipeline import RANK, mask_of
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_access
from pykittens.targets.index import Index, least
from pykittens.targets.simt.memory import address_of, combined_type
from pykittens.targets.source import MapSlot
from pykittens.targets.target import Lowerings
from pykittens.types.tiles import ST, SV, shared_tile

BULK = Lowerings()


@contextmanager
def _if_whole(e: CudaEmitter, call: Call, by_lanes: Callable[[Any, Call], None]) -> Iterator[None]:
    """A block that runs if no edge of a window cuts the tile; otherwise the lanes copy."""
    if not is_split(call):
        yield
        return
    with e.braces(f"if ({_is_whole(e, call)}) {{", None):
        yield
    with e.braces("} else {"):
        by_lanes(e, call)


def _is_whole(e: CudaEmitter, call: Call) -> str:
    """Whether every element of a tile inside the tensor is inside the window, and the engine can start at the tile."""
    tile, ref = copy_operands(call)
    ref, tests = ref.first, []
    sides = ref.sides(tile.rows, tile.cols)
    for axis in edged_axes(ref):
        window, size = ref.windows[axis], sides[axis]
        at, low, high = _coordinate(e, ref, axis, size), e.scalar(window.low), e.scalar(window.high)
        tests.append(f"{at} >= {low}")
        if axis == ref.plane[-1] and (pieces := 16 // tile.dtype.bytes) > 1:
            # docs/facts.md: the engine stops the kernel at other columns.
            tests.append(f"{at % pieces} == 0")
        tests.append(f"({at + size} <= {high} || {high} == {e.extent(ref.tensor, axis)})")
    return " && ".join(tests)


def _coordinate(e: CudaEmitter, ref: TileRef, axis: int, unit: int) -> Index:
    """The coordinate along an axis of the tensor at which a tile starts."""
    at, window = e.index(ref.index[axis]) * unit, ref.windows.get(axis)
    return at if window is None else e.index(window.origin) + at


@BULK.lower("load_async", declines=beyond_copy_engine, engine=Engine.COPY_IN)
def lower_load_async(e: CudaEmitter, call: Call) -> None:
    tile, src = call.args["dst"], call.args["src"]
    acquire = tile.stage.acquire if tile.stage is not None else None
    full = e.full_barrier(acquire) if acquire else e.names(call.args["signal"])
    function = "copy_box_first(" if call.args["evict_first"] else "copy_box("
    rows, number = tile.rows, Index(0)
    if peers := peers_of(call, e.kernel.cluster):  # each of them copies some of the rows
        rows //= peers.count
        number = peers.number(RANK)
        function = f"multicast_box({mask_of(peers, e.kernel.cluster)}, "
    with _if_whole(e, call, copies.lower_load_async), e.one_thread():
        if acquire and e.arms_each_copy(acquire):
            e.line(f"barrier_expect({full}, {tile.type.bytes});")
        boxes = _boxes(e, tile, src, rows)
        with _if_cut(e, tile, src, full) if len(boxes) > 1 and not peers else nullcontext():
            for to, coordinates, name in boxes:
                if peers:
                    to += number * (rows * tile.type.layout.swizzle)
                    coordinates[1] += Index(f"(int){number.operand}") * rows
                e.line(f"{function}{to}, {name}, {full}, {', '.join(map(str, coordinates))});")


@BULK.lower("prefetch", declines=beyond_prefetch_engine)
def lower_prefetch(e: CudaEmitter, call: Call) -> None:
    src, rows, cols = call.args["src"], call.args["rows"], call.args["cols"]
    with e.one_thread():
        for coordinates, name in _boxes_of(e, shared_tile(src.dtype, rows, cols), src, rows):
            e.line(f"prefetch_box({name}, {', '.join(map(str, coordinates))});")


@BULK.lower("store_async", declines=beyond_copy_engine, engine=Engine.COPY_OUT)
def lower_store_async(e: CudaEmitter, call: Call) -> None:
    tile, dst, op = call.args["src"], call.args["dst"], call.args["op"] or "store"
    function = f"{op}_box"
    with _if_whole(e, call, copies.lower_store_async), e.one_thread():
        if isinstance(tile, SharedVector) and tile.length > MAX_BOX_EXTENT:
            _store_run(e, tile, dst, f"{op}_run")
            return
        boxes = _boxes(e, tile, dst, tile.rows)
        # docs/facts.md: a store before the first element stops the kernel. Such a tile lies outside the tensor.
        index = [dst.first.index[axis] for axis in dst.first.plane]
        tests = [f"{e.scalar(i)} >= 0" for i in index if not is_natural(i)]
        with e.braces(f"if ({' && '.join(tests)}) {{") if tests else nullcontext():
            for source, coordinates, name in boxes:
                e.line(f"{function}({name}, {source}, {', '.join(map(str, coordinates))});")
            e.line("stores_commit();")


def _run(
    e: CudaEmitter, vector: SharedVector, ref: TileRef | Global, part: bool
) -> tuple[str, str, Index]:
    """A vector of a tensor as one run: whether all or, with `part`, some of it is inside, its start, and its bytes."""
    at, ref = address_of(e, ref, 1, vector.length), ref.first
    sides = [(at.row, at.rows, 1)] if len(ref.plane) > 1 else []
    sides.append((at.col, at.cols, 1 if part else vector.length))
    tests = []
    for axis, (first, end, size) in zip(ref.plane, sides, strict=True):
        tests += [] if is_natural(ref.index[axis]) else [f"{first} >= 0"]
        tests.append(f"{first} < {end}" if size == 1 else f"{first + size} <= {end}")
    start = Index(at.matrix) + Index("(i64)" + at.row.operand) * at.stride + at.col
    length = least(vector.length, Index(at.cols) - at.col) if part else Index(vector.length)
    return " && ".join(tests), str(start), length * vector.dtype.bytes


def _store_run(e: CudaEmitter, vector: SharedVector, dst: TileRef | Global, function: str) -> None:
    """A vector of several boxes at once: the part of it that is inside the tensor, whose rows are whole."""
    is_there, start, bytes_ = _run(e, vector, dst, part=True)
    place = f"({combined_type(vector.dtype)}*)({start})"
    with e.braces(f"if ({is_there}) {{"):
        e.line(f"{function}({place}, {shared_location(e, vector).address}, {bytes_});")
    e.line("stores_commit();")


@contextmanager
def _if_cut(e: CudaEmitter, tile: SharedTile, src: TileRef | Global, full: str) -> Iterator[None]:
    """A block that copies boxes; those of a vector only if an edge cuts it, which else is copied as one run."""
    if not isinstance(tile, SharedVector):
        yield
        return
    is_whole, start, bytes_ = _run(e, tile, src, part=False)
    with e.braces(f"if ({is_whole}) {{", None):
        e.line(f"copy_run({shared_location(e, tile).address}, {start}, {bytes_}, {full});")
    with e.braces("} else {"):
        yield


def _boxes(
    e: CudaEmitter, tile: SharedTile, ref: TileRef | Global, rows: int
) -> list[tuple[Index, list[Index], str]]:
    """The boxes of a tile, one per panel: shared address, coordinates with the innermost first, and map."""
    layout, width = tile.type.layout, box_cols(tile.type)
    assert width is not None, f"{tile} cannot be cut into boxes"
    is_vector = isinstance(tile, SharedVector)
    distance = width * tile.dtype.bytes if is_vector else layout.panel_bytes
    at = shared_location(e, tile).address
    found = enumerate(_boxes_of(e, tile.type, ref, rows))
    return [(at + box * distance, coordinates, name) for box, (coordinates, name) in found]


def _boxes_of(
    e: CudaEmitter, type_: ST, ref: TileRef | Global, rows: int
) -> list[tuple[list[Index], str]]:
    """The boxes of a tensor in a tile of a type: coordinates and map."""
    layout, ref, width = type_.layout, ref.first, box_cols(type_)
    assert width is not None, f"{type_} cannot be cut into boxes"
    rank, line = len(ref.index), width * type_.dtype.bytes
    # CUDA Driver API, cuTensorMapEncodeTiled: what a box may be.
    assert 1 <= rank <= 5, f"a tensor map has no {rank} axes"
    assert 1 <= min(rows, width) <= max(rows, width) <= MAX_BOX_EXTENT, f"a box of {rows} x {width}"
    assert line % 16 == 0, f"a row of a box has {line} bytes"
    is_vector = isinstance(type_, SV)
    assert is_vector or line <= layout.swizzle, f"a row of {line} bytes, {layout.swizzle} swizzled"
    row_axis = ref.plane[0] if len(ref.plane) > 1 else rank - 2
    slot = MapSlot(ref.tensor.name, rows, width, layout.swizzle, row_axis)
    name, sides = e.tensor_map(slot, ref.tensor), ref.sides(type_.rows, type_.cols)
    check_access(e, ref, type_.rows, type_.cols)
    boxes = []
    for box in range(type_.cols // width):
        x, *outer = (_coordinate(e, ref, axis, sides[axis]) for axis in slot.axes(rank))
        boxes.append(([x + box * width, *outer], name))
    return boxes


# -- synchronisation with the engine ---------------------------------------------------------------


@BULK.lower(Leave)
def leave_to_engines(e: CudaEmitter, node: Leave) -> None:
    """Signal a full stage: the engine's copies arrive with their bytes."""
    if e.team_lanes > 1:
        pipeline.leave(e, node)
    elif e.arms_each_copy(node.acquire):
        e.line(f"barrier_arrive({e.full_barrier(node.acquire)});")


@BULK.lower(WaitStores)
def wait_stores(e: CudaEmitter, node: WaitStores) -> None:
    if e.started(Engine.COPY_OUT):
        e.line("stores_wait_read();" if node.read else "stores_wait();")


def _stores_by_lanes(e: CudaEmitter) -> bool:
    """Whether lanes do asynchronous stores of the role in a kernel that fetches what it writes."""
    stores = calls(e.role, Engine.COPY_OUT)
    return any(by_lanes(e.role, c, e.target) for c in stores) and fetches_written(e.kernel)


@BULK.lower("store_wait")
def lower_store_wait(e: CudaEmitter, call: Call) -> None:
    """The thread that started the stores waits for them, and the others wait for this thread."""
    if e.started(Engine.COPY_OUT):
        function = "stores_wait_read" if call.args["read"] else "stores_wait"
        e.line(f"{function}<{call.args['pending']}>();")
    if not call.args["read"] and _stores_by_lanes(e):
        e.line("fence_engines();")
    meet(e)


@BULK.lower("fence_async")
def lower_fence_async(e: CudaEmitter, call: Call) -> None:
    """The fence of shared memory and, if the copy engine fetches what the kernel writes, of global memory."""
    e.line("fence_async();")
    if fetches_written(e.kernel):
        e.line("fence_engines();")
