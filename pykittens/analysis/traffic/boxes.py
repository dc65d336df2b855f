"""The boxes of tensors that the lines of a kernel move: which bytes of which tensor, for given shapes.

Boxes of one tensor are cut into pieces of one size, and each piece has a number: so lines that move the same rows in
tiles of several sizes ask for the same pieces. Where sizes differ too much for that, each has pieces of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from pykittens.analysis.requests import sides
from pykittens.analysis.sectors import SECTOR
from pykittens.analysis.traffic.vector import Column, IntArray, Lanes
from pykittens.emulate.memory import Array
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, calls
from pykittens.ir.values import Global, RegVector, TileRef

# A box is cut into so many pieces at most.
MOST_PIECES = 64

# Rows of a table of boxes, a column a box. UNIT: the task or block that moves it.
LANE, UNIT, LINE, BOX, BYTES = range(5)
UNKNOWN = -1  # the number of a box whose place only a running kernel knows


@dataclass(frozen=True)
class Line:
    """An operand of a call that stands for a tensor: in one go it moves `rows` x `cols` elements.

    units: what its coordinates count in. scattered: each of the rows is named by an index of its own. shared: the
    blocks of a cluster move a part each.
    """

    call: Call
    ref: TileRef | Global
    reads: bool
    writes: bool
    rows: int
    cols: int
    units: tuple[int, int]
    scattered: bool
    shared: bool

    @property
    def tensor(self) -> str:
        return self.ref.first.tensor.name

    @property
    def loc(self) -> Loc | None:
        return self.call.loc


@dataclass(frozen=True)
class Grain:
    """How the boxes of a tensor are cut: pieces of rows x cols, numbered from `first` in the order of their places.

    margin: pieces that may stick out before the first row and the first column, as those of windows do.
    """

    shape: tuple[int, ...]  # of the tensor, at least two axes
    rows: int
    cols: int
    margin: int
    first: int

    @property
    def tiles(self) -> tuple[int, int]:
        down, across = -(-self.shape[-2] // self.rows), -(-self.shape[-1] // self.cols)
        return down + self.margin, across + self.margin

    @property
    def count(self) -> int:
        """Pieces of the whole tensor."""
        return prod(self.shape[:-2]) * prod(self.tiles)


def lines_of(kernel: Kernel) -> list[Line]:
    """Every operand of a call of the kernel that stands for a tensor."""
    return [line for call in calls(kernel.body) for line in _lines_of_call(call, kernel.cluster)]


def _lines_of_call(call: Call, cluster: int) -> Iterator[Line]:
    effects = call.op.effects
    for name in dict.fromkeys((*effects.reads, *effects.writes)):
        ref = call.args[name]
        if not isinstance(ref, TileRef | Global):
            continue
        rows, cols = sides(call)
        scattered = rows > 1 and any(
            isinstance(a, RegVector) and a.dtype.is_int for a in call.args.values()
        )
        shared = bool(call.args.get("multicast")) and cluster > 1
        writes = name in effects.writes
        # What is combined with memory is read there first.
        combined = writes and call.args.get("op") not in (None, "store")
        reads = name in effects.reads or combined
        units = (rows, cols)
        if rows == cols == 1:
            # CUDA C++ Programming Guide, "Global Memory": the cache is asked for a sector even if one element is meant.
            cols = max(SECTOR // ref.type.dtype.bytes, 1)
        rows = rows // cluster if shared else rows
        yield Line(call, ref, reads, writes, rows, cols, units, scattered, shared)


class Places:
    """Numbers for the boxes that lines move, for tensors of these shapes."""

    def __init__(self, lines: list[Line], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.lines, self.count = lines, 0
        self.shapes = {n: s if len(s) > 1 else (1, *s) for n, s in shapes.items()}
        self.grains: list[Grain] = []
        of_class: dict[tuple[Any, ...], Grain] = {}
        for line in lines:
            key = (line.tensor, *self._sides(line))
            if key not in of_class:
                of_class[key] = Grain(self.shapes[line.tensor], *key[1:], self.count)
                self.count += of_class[key].count
            self.grains.append(of_class[key])

    def _sides(self, line: Line) -> tuple[int, int, int]:
        """Rows, columns and margin of the pieces that a line's boxes are cut into."""
        alike = [o for o in self.lines if o.tensor == line.tensor and not o.scattered]
        rows, cols = gcd(*(o.rows for o in alike)), gcd(*(o.cols for o in alike))
        most = max((o.rows // rows * (o.cols // cols) for o in alike), default=1)
        fits = alike and most <= MOST_PIECES
        margin = int(any(o.ref.first.windows for o in alike))
        return (rows, cols, margin) if fits else (line.rows, line.cols, margin)

    def boxes(self, number: int, lanes: Lanes, rank: Column) -> IntArray:
        """The table of what a line moves, as many pieces a lane; `rank` is the block's place in its cluster."""
        line, grain = self.lines[number], self.grains[number]
        found = None if line.scattered else self._coordinates(line, lanes)
        if found is None:
            return self._unknown(number, lanes.count)
        index, bounds = found
        plane, inside = _place(grain.shape[:-2], index, bounds)
        row = bounds[-2][0] + index[-2] * line.units[0] + (rank * line.rows if line.shared else 0)
        col = bounds[-1][0] + index[-1] * line.units[1]
        if line.units == (1, 1):
            col = col // line.cols * line.cols
        table = np.zeros((5, lanes.count, *self.pieces(line, grain)), np.int64)
        table[LANE] = np.arange(lanes.count)[:, None, None]
        table[LINE] = number
        for i, j in np.ndindex(*table.shape[2:]):
            r, c = row + i * grain.rows, col + j * grain.cols
            rows = _overlap(r, min(grain.rows, line.rows), bounds[-2], grain.shape[-2])
            cols = _overlap(c, min(grain.cols, line.cols), bounds[-1], grain.shape[-1])
            size = rows * cols * line.ref.type.dtype.bytes * inside
            down, across = r // grain.rows + grain.margin, c // grain.cols + grain.margin
            place = (plane * grain.tiles[0] + down) * grain.tiles[1] + across
            table[BYTES, :, i, j] = size
            table[BOX, :, i, j] = np.where(size > 0, grain.first + place, 0)
        return table.reshape(5, -1)

    def _coordinates(
        self, line: Line, lanes: Lanes
    ) -> tuple[list[Column], list[list[Column]]] | None:
        """The index of a line's box and the bounds of its axes, of two axes at least; None where one is not known."""
        ref, shape = line.ref.first, self.shapes[line.tensor]
        index = [lanes.value(i) for i in ref.index]
        windows = {a: [lanes.value(x) for x in w.bounds] for a, w in ref.windows.items()}
        if any(x is None for x in (*index, *(x for w in windows.values() for x in w))):
            return None
        if len(index) == 1:
            index, windows = [0, *index], {a + 1: w for a, w in windows.items()}
        return index, [windows.get(a, [0, 0, extent]) for a, extent in enumerate(shape)]

    def element(self, number: int, lanes: Lanes, content: Array, fill: Any) -> Column:
        """What a line finds that reads one element of a tensor of this content; None where its place is not known."""
        line = self.lines[number]
        if (found := self._coordinates(line, lanes)) is None:
            return None
        place, inside = _place(self.shapes[line.tensor], *found)
        values = content.reshape(-1)[np.where(inside, place, 0)]
        return np.where(inside, values, fill)

    @staticmethod
    def pieces(line: Line, grain: Grain) -> tuple[int, int]:
        """How many pieces a box of a line has, down and across."""
        return -(-line.rows // grain.rows), -(-line.cols // grain.cols)

    def _unknown(self, number: int, count: int) -> IntArray:
        """Boxes of a line at places that nobody knows: one a lane, as large as the tensor lets it be."""
        line, shape = self.lines[number], self.grains[number].shape
        size = min(line.rows, shape[-2]) * min(line.cols, shape[-1]) * line.ref.type.dtype.bytes
        return np.stack(
            [np.arange(count), *(np.full(count, x) for x in (0, number, UNKNOWN, size))]
        )


def _overlap(first: Column, side: int, bounds: list[Column], extent: int) -> Column:
    """How many of the elements from `first` on lie inside an axis, and inside the window of it."""
    _, low, high = bounds
    end = np.minimum(np.minimum(first + side, high), extent)
    return np.maximum(end - np.maximum(np.maximum(first, low), 0), 0)


def _place(
    extents: tuple[int, ...], index: list[Column], bounds: list[list[Column]]
) -> tuple[Column, Column]:
    """The number of an element in an array of these extents, and whether it lies inside and in its windows."""
    place: Column = 0
    inside: Column = np.True_
    for extent, i, (origin, low, high) in zip(extents, index, bounds, strict=False):
        at = origin + i
        place = place * extent + at
        inside = inside & (at >= np.maximum(low, 0)) & (at < np.minimum(high, extent))
    return place, inside
