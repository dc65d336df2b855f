"""Sectors: the 32-byte blocks of global memory that the requests of a line touch, beside the fewest possible.

A request of a warp asks the cache once for every sector that one of its lanes touches. Source: CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory". Modelled address by address: loads and stores of lanes, for a tile within
the tensor, with the strides and the address of the tensor. An index known when the kernel is recorded is used, any
other is taken as 1; rows and elements that an index selects are taken as neighbours. Assumed: a box of the copy engine
is one request. Hits of the first-level cache between requests are ignored, and flags are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from pykittens.analysis.accesses import (
    PIECE,
    Address,
    by_elements,
    by_granules,
    chunk_moves,
    copy_threads,
    element_moves,
    held,
    skewed_moves,
)
from pykittens.analysis.requests import NOWHERE, Cost, Move, Requests, costs, in_order, sides
from pykittens.ir.nodes import Call, Kernel, Role, moved
from pykittens.ir.peers import peers_of
from pykittens.ir.values import Global, RegTile, RegVector, TileRef
from pykittens.ops.gather import names_elements
from pykittens.targets.cuda.engines import (
    beyond_copy_engine,
    box_cols,
    copy_operands,
    moves_granules,
)
from pykittens.targets.simt.memory import has_granules, starts_aligned
from pykittens.types.layouts import LANES

SECTOR = 32  # bytes


class Tensor(Protocol):
    """A tensor argument: strides in elements, the address of element 0 and the bytes of one."""

    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def address(self) -> int: ...
    @property
    def itemsize(self) -> int: ...


def sectors(requests: Requests) -> int:
    """The number of sectors that requests touch, each counted once per request."""
    there = requests.addresses != NOWHERE
    _, first = in_order(np.where(there, requests.addresses // SECTOR, NOWHERE))
    return int(first.sum())


def fewest(requests: Requests) -> int:
    """The number of sectors that the bytes of each request would fill if they were contiguous."""
    _, first = in_order(requests.addresses)
    return int((-(-first.sum(axis=1) * requests.size // SECTOR)).sum())


def located(ref: TileRef, tensor: Tensor, rows: int, cols: int) -> Address:
    """The address of each element of a tile of rows x cols that lies within the tensor."""
    sides, at = ref.sides(rows, cols), 0
    for axis, index in enumerate(ref.index):
        window = ref.windows.get(axis)
        origin = window.origin if window is not None and isinstance(window.origin, int) else 0
        place = origin + (index if isinstance(index, int) else 1) * sides[axis]
        at += place * tensor.strides[axis]
    down, across = (0, *(tensor.strides[axis] for axis in ref.plane))[-2:]
    return lambda row, col: tensor.address + (at + row * down + col * across) * tensor.itemsize


def _is_at_start(ref: TileRef) -> bool:
    """Whether the first column of a tile is known to be the first column of its matrix."""
    axis = ref.plane[-1]
    if not (isinstance(ref.index[axis], int) and ref.index[axis] == 0):
        return False
    window = ref.windows.get(axis)
    if window is None or window.low is window.origin:
        return True
    return all(isinstance(x, int) and x == 0 for x in (window.low, window.origin))


def global_costs(kernel: Kernel, tensors: Mapping[str, Tensor]) -> list[Cost]:
    """The sectors that each line of a lowered kernel touches on sm_90a, and the fewest that hold the same bytes."""
    moves = partial(global_moves, tensors=tensors, cluster=kernel.cluster)
    return costs(kernel, moves, sectors, fewest)


def global_moves(
    role: Role, call: Call, tensors: Mapping[str, Tensor], cluster: int = 1
) -> Iterator[Move]:
    """The moves of one operation of a group of a role to and from tensors."""
    effects, what = call.op.effects, call.op.shown
    for operand in (*effects.reads, *effects.writes):
        ref = call.args[operand]
        if not isinstance(ref, TileRef | Global) or operand in effects.flags:
            continue
        ref, stores = ref.first, operand in effects.writes
        name, tensor = ref.tensor.name, tensors[ref.tensor.name]
        if effects.engine is None:
            requests = list(_of_value(role, call, ref, tensor, stores))
            yield Move(what, name, requests, names_elements(call))
        elif beyond_copy_engine(role, call) is None:
            yield Move(what, name, [_of_boxes(call, ref, tensor, cluster)], assumed=True)
        else:
            rows, cols = sides(call)
            at, size = located(ref, tensor, rows, cols), tensor.itemsize
            if moves_granules(call):
                requests = list(by_granules(rows, cols, size, at, stores, copy_threads(role)))
            else:
                requests = [by_elements(rows, cols, size, at)]
            yield Move(what, name, requests)


def _of_value(
    role: Role, call: Call, ref: TileRef, tensor: Tensor, stores: bool
) -> Iterator[Requests]:
    """The requests for a tile, a vector or one element between a tensor and registers; `index` may select the rows."""
    value: Any = moved(call)
    if not isinstance(value, RegTile | RegVector):
        # All lanes read the element, one writes it.
        first, lane = located(ref, tensor, 1, 1)(0, 0), np.arange(LANES)
        request = Requests.of(np.full((1, LANES), first), tensor.itemsize, not stores or lane == 0)
        yield request.times(1 if stores else role.warps)
        return
    if names_elements(call):
        pitch = abs(tensor.strides[ref.plane[-1]]) * tensor.itemsize if ref.is_strided else None
        yield from element_moves(held(value.type, role.warps), tensor.itemsize, stores, pitch)
        return
    rows, cols = sides(call)
    at = located(ref, tensor, 1 if "index" in call.args else rows, cols)
    chunks = held(
        value.type, role.warps, bool(call.args.get("transposed")), tensor=not ref.is_strided
    )
    aligned = starts_aligned(ref) and (cols % chunks.size == 0 or _is_at_start(ref))
    op = call.args.get("op")
    skewed = not (aligned or ref.is_strided or op)
    if skewed and has_granules(value.type, ref.dtype, role.warps):
        yield from skewed_moves(chunks, ref.dtype, at, stores)
    else:
        yield from chunk_moves(chunks, ref.dtype, at, aligned, stores, op)


def _of_boxes(call: Call, ref: TileRef, tensor: Tensor, cluster: int) -> Requests:
    """The requests of the copy engine, one per box; each block copies its share of a tile for the cluster."""
    tile, _ = copy_operands(call)
    at, size, width = located(ref, tensor, *sides(call)), tensor.itemsize, box_cols(tile.type)
    assert width is not None
    peers = peers_of(call, cluster)
    rows = tile.rows // (peers.count if peers else 1)
    box, row, piece = np.ogrid[: tile.cols // width, :rows, : width * size // PIECE]
    addresses = at(row, box * width + piece * (PIECE // size))
    return Requests.of(addresses.reshape(len(box), -1), PIECE)
