"""Elements that change lanes through shared memory, as the lowerings of sm_90a write and read them.

An element is written to its place in the group's scratch memory and read from its place in the result. The compiler
moves the neighbours that a lane holds at once, up to 16 bytes, where places of neighbours are neighbours. Counted as if
there were room for all elements. Where one value a warp goes round (reductions to a scalar, scans of vectors) no two
lanes meet in a bank, and none is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pykittens.analysis.accesses import PIECE, Requests, chunk_moves, held
from pykittens.ir.nodes import Call
from pykittens.ops.reduce import Reduction
from pykittens.ops.shape import bounds
from pykittens.types.dtypes import DType, int8
from pykittens.types.layouts import LANES, plain_chunk
from pykittens.types.tiles import RT, RV, Spread

# Elements between the rows of a tile that is turned: a column of it then lies in other banks.
PITCH = 4

Exchange = Callable[[Call, int], Iterator[Requests]]
EXCHANGES: dict[str, Exchange] = {}


def exchanges(call: Call, warps: int) -> Iterator[Requests]:
    """What an operation moves through scratch memory in a group of so many warps; nothing, for most."""
    found = EXCHANGES.get(call.op.name) or EXCHANGES.get(
        call.op.family.name if call.op.family else ""
    )
    if found is not None:
        yield from found(call, warps)


def _of(name: str) -> Callable[[Exchange], Exchange]:
    """Decorator: how an operation, or a family of them, exchanges elements."""

    def keep(function: Exchange) -> Exchange:
        EXCHANGES[name] = function
        return function

    return keep


def _as_stored(dtype: DType) -> DType:
    """A dtype of whole numbers of the size that an element has in memory: a bool is a byte."""
    return int8 if dtype.kind == "bool" else dtype


def _made(call: Call) -> Any:
    (result,) = call.results
    return result


def _put(value: Any, warps: int, first: int = 0) -> Iterator[Requests]:
    """A vector written from the place `first` on."""
    at, size = held(value.type, warps), value.dtype.bytes
    yield from chunk_moves(
        at,
        _as_stored(value.dtype),
        lambda row, col: (first + col) * size,
        aligned=first % at.size == 0,
        stores=True,
    )


def _take(result: Any, warps: int, first: int = 0) -> Iterator[Requests]:
    """A vector read from the place `first` on, what is behind its end included."""
    at, size = held(result.type, warps), result.dtype.bytes
    yield from chunk_moves(
        replace(at, count=at.size),
        _as_stored(result.dtype),
        lambda row, col: (first + col) * size,
        aligned=first % at.size == 0,
        stores=False,
    )


@_of("transpose")
def _transpose(call: Call, warps: int) -> Iterator[Requests]:
    tile, result = call.args["tile"], _made(call)
    pitch, size = tile.cols + PITCH, tile.dtype.bytes
    dtype = _as_stored(tile.dtype)
    yield from chunk_moves(
        held(tile.type, warps), dtype, lambda row, col: (row * pitch + col) * size, True, True
    )
    yield from chunk_moves(
        held(result.type, warps), dtype, lambda row, col: (col * pitch + row) * size, False, False
    )


@_of("spread")
def _spread(call: Call, warps: int) -> Iterator[Requests]:
    vector, result = call.args["vector"], _made(call)
    if vector.type != result.type:
        yield from _put(vector, warps)
        yield from _take(result, warps)


@_of("row")
def _row(call: Call, warps: int) -> Iterator[Requests]:
    """Row 0 stands for any: the four lanes that hold it write it."""
    tile, result = call.args["tile"], _made(call)
    at, size = held(tile.type, warps), tile.dtype.bytes
    at = replace(at, owner=at.row == 0)
    yield from chunk_moves(at, _as_stored(tile.dtype), lambda row, col: col * size, True, True)
    yield from _take(result, warps)


@_of("part")
def _part(call: Call, warps: int) -> Iterator[Requests]:
    """A part of a plain vector that begins in another lane than the whole."""
    x, result = call.args["x"], _made(call)
    if isinstance(x.type, RT):
        return
    ((start, _),) = bounds(x, call.args["index"])
    chunk = plain_chunk(result.type.length, warps)
    in_place = chunk == plain_chunk(x.type.length, warps) and start % (chunk * warps * LANES) == 0
    if not in_place:
        yield from _put(x, warps)
        yield from _take(result, warps, start)


@_of("concat")
def _concat(call: Call, warps: int) -> Iterator[Requests]:
    a, b, result = call.args["a"], call.args["b"], _made(call)
    if isinstance(result.type, RV) and result.type.spread is Spread.PLAIN:
        yield from _put(a, warps)
        yield from _put(b, warps, a.type.length)
        yield from _take(result, warps)


@_of("col_reduce")
def _col_reduce(call: Call, warps: int) -> Iterator[Requests]:
    """Each warp writes what its rows give; all read what all wrote."""
    tile = call.args["tile"]
    if warps == 1:
        return
    wide = max(tile.dtype.bytes, tile.dtype.compute.bytes)
    assert isinstance(call.op.scalar, Reduction)
    sizes = [wide, 4] if call.op.scalar.finds else [wide]  # with its place, which is an int32
    whole = len(sizes) * wide
    # Lanes of a column hold the same and take turns to write.
    warp, pair, lane = np.ogrid[:warps, : tile.cols // 8, :LANES]
    place = (warp * tile.cols + 8 * pair + 2 * (lane % 4)) * whole
    parts = [(k * whole + i * wide, size) for k in range(2) for i, size in enumerate(sizes)]
    if 2 * whole <= PIECE:  # neighbours go at once
        parts = [(0, 2 * whole)]
    for at, size in parts:
        yield Requests.of(place + at, size, lane // 4 == pair % 8)
        yield Requests.of(place + at, size).times(warps)
