"""Sectors: parts of 32 bytes of global memory that the requests of a line touch, against the fewest they could.

A request of a warp asks the cache for every sector that one of its lanes touches, once. Source: CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory". Modelled, address by address: loads and stores of lanes, of a tile that no
edge cuts, with the strides and the address of the tensor. An index known when the kernel is recorded is taken as it
is, any other as 1; rows that an index names are taken as neighbours. Assumed: a box of the copy engine is one request.
What the first-level cache keeps between requests is not counted, nor are flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from pykittens.analysis.accesses import (
    NOWHERE,
    PIECE,
    Requests,
    by_elements,
    chunk_moves,
    held,
    in_order,
)
from pykittens.analysis.banks import calls
from pykittens.analysis.engines import box_cols, ends, is_bulk
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, RegTile, RegVector, TileRef
from pykittens.types.layouts import LANES
from pykittens.types.tiles import RT

SECTOR = 32  # bytes


class Tensor(Protocol):
    """A tensor argument: strides in elements, the address of element 0 and the bytes of one."""

    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def address(self) -> int: ...
    @property
    def itemsize(self) -> int: ...


@dataclass(frozen=True)
class GlobalCost:
    """Sectors of global memory for one run of a line by one group, and the fewest that hold the bytes it moves.

    what: the operation. tensor: its name. assumed: the order of the accesses is not known.
    """

    loc: Loc | None
    what: str
    sectors: int
    ideal: int
    tensor: str
    assumed: bool = False


@dataclass(frozen=True)
class Place:
    """Where a tile starts in a tensor: its address, the elements from a row to the next, the bytes of one.

    aligned: chunks of neighbours start at multiples of their size, where a tile is cut into whole ones.
    at_start: the first column is known to be 0.
    """

    address: int
    stride: int
    itemsize: int
    aligned: bool
    at_start: bool

    def of(self, row: Any, col: Any) -> Any:
        """The address of an element of the tile."""
        return self.address + (row * self.stride + col) * self.itemsize


def sectors(requests: Requests) -> int:
    """Sectors that requests touch, each counted once a request."""
    there = requests.addresses != NOWHERE
    _, first = in_order(np.where(there, requests.addresses // SECTOR, NOWHERE))
    return int(first.sum())


def fewest(requests: Requests) -> int:
    """Sectors that would hold the bytes that requests touch, were they neighbours."""
    _, first = in_order(requests.addresses)
    return int((-(-first.sum(axis=1) * requests.size // SECTOR)).sum())


def place(ref: TileRef, tensor: Tensor, rows: int, cols: int) -> Place:
    """Where a tile of rows x cols starts, away from edges."""
    rank, at = len(ref.index), 0
    for axis, index in enumerate(ref.index):
        unit = cols if axis == rank - 1 else rows if axis == rank - 2 else 1
        window = ref.windows.get(axis)
        origin = window.origin if window is not None and isinstance(window.origin, int) else 0
        at += (origin + (index if isinstance(index, int) else 1) * unit) * tensor.strides[axis]
    window, aligned = ref.windows.get(rank - 1), ref.type.aligned
    at_start = isinstance(ref.index[-1], int) and ref.index[-1] == 0
    if window is not None:
        bounds = (window.low, window.origin)
        known = all(isinstance(x, int) and x * ref.dtype.bytes % 16 == 0 for x in bounds)
        aligned = aligned and known
        at_start = at_start and (bounds[0] is bounds[1] or bounds[0] == bounds[1] == 0)
    stride = tensor.strides[-2] if rank > 1 else 0
    return Place(tensor.address + at * tensor.itemsize, stride, tensor.itemsize, aligned, at_start)


@dataclass(frozen=True, eq=False)
class GlobalMove:
    """What an operation moves to or from a tensor."""

    what: str
    tensor: str
    requests: list[Requests]
    assumed: bool = False


def global_costs(kernel: Kernel, tensors: Mapping[str, Tensor]) -> list[GlobalCost]:
    """What each line of a lowered kernel costs in global memory, on sm_90a, in the order of the program."""
    found: dict[object, GlobalCost] = {}
    for role, call in calls(kernel):
        warps = role.warps if role is not None else 1
        for move in global_moves(call, warps, tensors, kernel.cluster):
            total, ideal = sum(map(sectors, move.requests)), sum(map(fewest, move.requests))
            cost = GlobalCost(call.loc, move.what, total, ideal, move.tensor, move.assumed)
            key = (id(role), str(cost.loc), cost.what, cost.tensor)
            if (old := found.get(key)) is not None:
                cost = replace(old, sectors=old.sectors + total, ideal=old.ideal + ideal)
            found[key] = cost
    return list(found.values())


def global_moves(
    call: Call, warps: int, tensors: Mapping[str, Tensor], cluster: int = 1
) -> Iterator[GlobalMove]:
    """What one operation of a group of so many warps moves."""
    effects, what = call.op.effects, call.op.shown
    if effects.engine in (Engine.COPY_IN, Engine.COPY_OUT):
        _, ref = ends(call)
        name = ref.tensor.name
        requests = _of_copy(call, tensors[name], cluster)
        yield GlobalMove(what, name, [requests], assumed=is_bulk(call))
        return
    for operand in (*effects.reads, *effects.writes):
        ref = call.args[operand]
        if isinstance(ref, TileRef | Global) and operand not in effects.waits + effects.signals:
            name, stores = ref.first.tensor.name, operand in effects.writes
            requests_ = list(_of_value(call, ref.first, tensors[name], warps, stores))
            yield GlobalMove(what, name, requests_)


def _of_value(
    call: Call, ref: TileRef, tensor: Tensor, warps: int, stores: bool
) -> Iterator[Requests]:
    """A tile, a vector or one element between a tensor and registers; `index` may name the rows."""
    value: Any = call.args["value"] if stores else call.results[0]
    if not isinstance(value, RegTile | RegVector):
        # All lanes read it, one writes it.
        first, lane = place(ref, tensor, 1, 1).address, np.arange(LANES)
        request = Requests.of(np.full((1, LANES), first), tensor.itemsize, not stores or lane == 0)
        yield request.times(1 if stores else warps)
        return
    type_ = value.type
    rows, cols = (type_.rows, type_.cols) if isinstance(type_, RT) else (1, type_.length)
    transposed = bool(call.args.get("transposed"))
    if transposed:
        rows, cols = cols, rows
    at = place(ref, tensor, 1 if "index" in call.args else rows, cols)
    chunks = held(type_, warps, transposed)
    aligned = at.aligned and (cols % chunks.size == 0 or at.at_start)
    yield from chunk_moves(chunks, ref.dtype, at.of, aligned, stores, call.args.get("op"))


def _of_copy(call: Call, tensor: Tensor, cluster: int) -> Requests:
    """A copy between a tensor and shared memory: a box is one request of the engine."""
    tile, ref = ends(call)
    at, size = place(ref, tensor, tile.rows, tile.cols), tensor.itemsize
    width = box_cols(tile)
    if width is None or not is_bulk(call):
        return by_elements(tile.rows, tile.cols, size, at.of)
    # Of a tile for the whole cluster each block fetches its share.
    rows = tile.rows // (cluster if call.args.get("multicast") else 1)
    box, row, piece = np.ogrid[: tile.cols // width, :rows, : width * size // PIECE]
    addresses = at.of(row, box * width + piece * (PIECE // size))
    return Requests.of(addresses.reshape(len(box), -1), PIECE)
