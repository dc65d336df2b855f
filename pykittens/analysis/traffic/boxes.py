"""The boxes of tensors that the lines of a kernel move: the bytes of each tensor, for given shapes.

Boxes of one tensor are cut into pieces of one size, and each piece has a number, so lines that move the same rows in
tiles of several sizes ask for the same pieces. If the sizes differ too much, each line has its own pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from pykittens.analysis.requests import sides
from pykittens.analysis.sectors import SECTOR
from pykittens.analysis.traffic.vector import Column, Columns, IntArray
from pykittens.emulate.memory import Array
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, calls
from pykittens.ir.peers import Peers, peers_of
from pykittens.ir.values import Global, TileRef
from pykittens.ops.gather import names_elements

# The most pieces of a box.
MOST_PIECES = 64

# Rows of a table of boxes, which has a column per box. UNIT: the task or block that moves it.
LANE, UNIT, LINE, BOX, BYTES = range(5)
UNKNOWN = -1  # the number of a box whose position only a running kernel knows


@dataclass(frozen=True)
class TensorLine:
    """A tensor operand of a call, which moves `sides` elements of each axis at once.

    units: the elements of each axis that its coordinates count. scattered: an index selects the rows or elements.
    peers: the blocks of a cluster that move a share each, if the call is a multicast copy.
    """

    call: Call
    ref: TileRef | Global
    reads: bool
    writes: bool
    sides: tuple[int, ...]
    units: tuple[int, ...]
    scattered: bool
    peers: Peers | None

    @property
    def tensor(self) -> str:
        return self.ref.first.tensor.name

    @property
    def loc(self) -> Loc | None:
        return self.call.loc


@dataclass(frozen=True)
class Grain:
    """The cut of a tensor's boxes into pieces with `sides` elements of each axis, in row-major order from `first`.

    margin: pieces before the first one of each axis, which windows may reach.
    """

    shape: tuple[int, ...]  # of the tensor
    sides: tuple[int, ...]
    margin: int
    first: int

    @property
    def tiles(self) -> tuple[int, ...]:
        """Pieces along each axis."""
        pairs = zip(self.shape, self.sides, strict=True)
        return tuple(-(-extent // side) + self.margin for extent, side in pairs)

    @property
    def count(self) -> int:
        """Pieces of the whole tensor."""
        return prod(self.tiles)


def lines_of(kernel: Kernel) -> list[TensorLine]:
    """The tensor operands of the calls of a kernel."""
    return [line for call in calls(kernel.body) for line in _lines_of_call(call, kernel.cluster)]


def _lines_of_call(call: Call, cluster: int) -> Iterator[TensorLine]:
    effects = call.op.effects
    for name in dict.fromkeys((*effects.reads, *effects.writes)):
        ref = call.args[name]
        if not isinstance(ref, TileRef | Global):
            continue
        rows, cols = sides(call)
        if names_elements(call):
            rows, cols = 1, rows * cols
        scattered = effects.index is not None
        peers = peers_of(call, cluster)
        writes = name in effects.writes
        # An operation that combines a value with memory reads the memory first.
        combined = writes and call.args.get("op") not in (None, "store")
        reads = name in effects.reads or combined
        units = ref.first.sides(rows, cols)
        moves = ref.first.sides(rows // peers.count if peers else rows, cols)
        if moves[-1] == 1:
            # CUDA C++ Programming Guide, "Global Memory": a request for one element asks the cache for a sector.
            moves = (*moves[:-1], max(SECTOR // ref.type.dtype.bytes, 1))
        yield TensorLine(call, ref, reads, writes, moves, units, scattered, peers)


class Boxes:
    """The numbers of the boxes that lines move, for tensors of these shapes."""

    def __init__(self, lines: list[TensorLine], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.lines, self.shapes, self.count = lines, shapes, 0
        self.grains: list[Grain] = []
        of_class: dict[tuple[Any, ...], Grain] = {}
        for line in lines:
            key = (line.tensor, *self._pieces(line))
            if key not in of_class:
                of_class[key] = Grain(self.shapes[line.tensor], *key[1:], self.count)
                self.count += of_class[key].count
            self.grains.append(of_class[key])

    def _pieces(self, line: TensorLine) -> tuple[tuple[int, ...], int]:
        """Sides and margin of the pieces of a line's boxes."""
        alike = [o for o in self.lines if o.tensor == line.tensor and not o.scattered]
        margin = int(any(o.ref.first.windows for o in alike))
        sides = tuple(gcd(*of_axis) for of_axis in zip(*(o.sides for o in alike), strict=True))
        most = max((prod(o.sides) // prod(sides) for o in alike), default=1)
        return (sides if alike and most <= MOST_PIECES else line.sides), margin

    def boxes(self, number: int, lanes: Columns, rank: Column) -> IntArray:
        """The table of the pieces that a line moves in each lane; `rank` is the block's rank in its cluster."""
        line, grain = self.lines[number], self.grains[number]
        found = None if line.scattered else self._coordinates(line, lanes)
        if found is None:
            return self._unknown(number, lanes.count)
        index, bounds = found
        starts = [b[0] + i * unit for b, i, unit in zip(bounds, index, line.units, strict=True)]
        if line.peers:
            rows = line.ref.first.plane[0]
            starts[rows] = starts[rows] + line.peers.number(rank) * line.sides[rows]
        if line.units[-1] == 1:
            starts[-1] = starts[-1] // line.sides[-1] * line.sides[-1]
        pieces = self.pieces(line, grain)
        table = np.zeros((5, prod(pieces), lanes.count), np.int64)
        table[LANE], table[LINE] = np.arange(lanes.count), number
        for at, piece in enumerate(np.ndindex(*pieces)):
            place: Column = 0
            size: Column = line.ref.type.dtype.bytes
            for axis, side in enumerate(grain.sides):
                first = starts[axis] + piece[axis] * side
                most = min(side, line.sides[axis])
                size = size * _overlap(first, most, bounds[axis], grain.shape[axis])
                place = place * grain.tiles[axis] + first // side + grain.margin
            table[BYTES, at] = size
            table[BOX, at] = np.where(size > 0, grain.first + place, 0)
        return table.swapaxes(1, 2).reshape(5, -1)

    def _coordinates(
        self, line: TensorLine, lanes: Columns
    ) -> tuple[list[Column], list[list[Column]]] | None:
        """The index of a line's box and the bounds of its axes; None if one is not known."""
        ref, shape = line.ref.first, self.shapes[line.tensor]
        index = [lanes.value(i) for i in ref.index]
        windows = {a: [lanes.value(x) for x in w.bounds] for a, w in ref.windows.items()}
        if any(x is None for x in (*index, *(x for w in windows.values() for x in w))):
            return None
        return index, [windows.get(a, [0, 0, extent]) for a, extent in enumerate(shape)]

    def element(self, number: int, lanes: Columns, content: Array, fill: Any) -> Column:
        """The element that a line reads from a tensor with this content; None if its position is not known."""
        line = self.lines[number]
        if (found := self._coordinates(line, lanes)) is None:
            return None
        position, inside = _position(self.shapes[line.tensor], *found)
        values = content.reshape(-1)[np.where(inside, position, 0)]
        return np.where(inside, values, fill)

    @staticmethod
    def pieces(line: TensorLine, grain: Grain) -> tuple[int, ...]:
        """The pieces of a box of a line along each axis."""
        return tuple(-(-n // side) for n, side in zip(line.sides, grain.sides, strict=True))

    def _unknown(self, number: int, count: int) -> IntArray:
        """Boxes of a line at unknown positions: one per lane, cut to the size of the tensor."""
        line, shape = self.lines[number], self.grains[number].shape
        size = prod(map(min, line.sides, shape)) * line.ref.type.dtype.bytes
        return np.stack(
            [np.arange(count), *(np.full(count, x) for x in (0, number, UNKNOWN, size))]
        )


def _overlap(first: Column, side: int, bounds: list[Column], extent: int) -> Column:
    """How many of the `side` elements from `first` lie inside an axis and its window."""
    _, low, high = bounds
    end = np.minimum(np.minimum(first + side, high), extent)
    return np.maximum(end - np.maximum(np.maximum(first, low), 0), 0)


def _position(
    extents: tuple[int, ...], index: list[Column], bounds: list[list[Column]]
) -> tuple[Column, Column]:
    """The flat index of an element of an array with these extents, and whether it lies in the array and its windows."""
    position: Column = 0
    inside: Column = np.True_
    for extent, i, (origin, low, high) in zip(extents, index, bounds, strict=False):
        at = origin + i
        position = position * extent + at
        inside = inside & (at >= np.maximum(low, 0)) & (at < np.minimum(high, extent))
    return position, inside
