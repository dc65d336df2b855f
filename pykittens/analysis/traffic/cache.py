"""Bytes that a launch asks of the L2 cache, and bytes that memory moves, for given shapes and a device.

The blocks that run at one time go on at one rate of bytes. The cache holds the boxes that were asked for last (LRU, by
bytes, as one piece: the two halves that NVIDIA's larger caches have are not told apart). Blocks that ask for one box in
the same step of time ask memory once. What is written goes to memory when it leaves the cache, at the latest after the
end. Nothing is in the cache when the launch starts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from pykittens.analysis.traffic.boxes import BOX, BYTES, LINE, UNKNOWN, Line, Places
from pykittens.analysis.traffic.launch import Launch
from pykittens.analysis.traffic.schedule import TIME, in_time
from pykittens.analysis.traffic.trace import Guess, Trace
from pykittens.analysis.traffic.vector import IntArray
from pykittens.emulate.memory import Array
from pykittens.ir.nodes import Kernel
from pykittens.types.devices import DeviceSpec


@dataclass(frozen=True)
class Moved:
    """Bytes: asked of the cache for reading and writing, read from memory and written to it.

    least_read, least_written: as if the cache had room for everything.
    """

    asked_read: int = 0
    asked_written: int = 0
    hbm_read: int = 0
    hbm_written: int = 0
    least_read: int = 0
    least_written: int = 0

    def __add__(self, other: Moved) -> Moved:
        mine, theirs = vars(self), vars(other)
        return Moved(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def asked_bytes(self) -> int:
        return self.asked_read + self.asked_written

    @property
    def hbm_bytes(self) -> int:
        return self.hbm_read + self.hbm_written

    @property
    def least_bytes(self) -> int:
        """Each distinct box once in, if it is read before it is written, and once out, if it is written."""
        return self.least_read + self.least_written

    @property
    def hit_rate(self) -> float:
        """The share of the bytes asked for reading that the cache had; 1 where none were asked for."""
        return 1 - self.hbm_read / self.asked_read if self.asked_read else 1.0


@dataclass(frozen=True)
class Traffic:
    """The bytes of a launch: altogether, by tensor and by line. `blocks` run at one time.

    Bytes of memory count for the line that asked for them first. guesses: on which values in memory the numbers rest;
    without any they hold for every content.
    """

    device: DeviceSpec
    blocks: int
    total: Moved
    tensors: Mapping[str, Moved]
    lines: tuple[tuple[Line, Moved], ...]
    guesses: tuple[Guess, ...]

    @property
    def hbm_seconds(self) -> float:
        """How long the device's memory takes at least for these bytes."""
        return self.total.hbm_bytes / self.device.hbm_bytes_per_second


def traffic(
    kernel: Kernel,
    shapes: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, Any],
    device: DeviceSpec,
    blocks_per_sm: int = 1,
    contents: Mapping[str, Array] = MappingProxyType({}),
) -> Traffic:
    """The traffic of a launch of a lowered kernel, for tensors of these shapes and these scalar arguments.

    contents: arrays of those tensors whose numbers may be read, such as indices and lengths; else they are guessed at.
    """
    trace = Trace.of(Launch.of(kernel, shapes, scalars), shapes, contents)
    room = max(device.sms * blocks_per_sm // kernel.cluster, 1) * kernel.cluster
    blocks = min(trace.launch.units, room)
    cache = Cache(trace.places, device.l2_bytes)
    for requests in in_time(trace, blocks):
        cache.ask(requests)
    cache.flush()
    lines = tuple(zip(trace.lines, cache.moved(), strict=True))
    tensors = {
        name: _of_tensor([m for line, m in lines if line.tensor == name], cache.bytes_of(name))
        for name in dict.fromkeys(line.tensor for line, _ in lines)
    }
    total = sum(tensors.values(), Moved())
    return Traffic(device, blocks, total, tensors, lines, tuple(trace.guesses))


def _of_tensor(moved: list[Moved], size: int) -> Moved:
    """What the lines move of one tensor together; where places are guessed, no more than all of it must be moved."""
    total = sum(moved, Moved())
    return replace(
        total,
        least_read=min(total.least_read, size),
        least_written=min(total.least_written, size),
    )


@dataclass
class Cache:
    """The boxes held, the one asked for longest ago first, and what each line made them cost."""

    places: Places
    capacity: int
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)  # bytes of a box
    written: dict[int, int] = field(default_factory=dict)  # by which line; not in memory yet
    used: int = 0
    strangers: int = 0  # boxes at places that nobody knows

    def __post_init__(self) -> None:
        lines = self.places.lines
        self.reads = np.array([x.reads for x in lines], bool)
        self.writes = np.array([x.writes for x in lines], bool)
        self.asked = np.zeros(len(lines), np.int64)
        self.hbm_read, self.hbm_written = [0] * len(lines), [0] * len(lines)
        self.least_read = np.zeros(len(lines), np.int64)
        self.least_written = np.zeros(len(lines), np.int64)
        self.met = np.zeros(self.places.count, bool)
        self.met_written = np.zeros(self.places.count, bool)
        grains = zip(lines, self.places.grains, strict=True)
        sizes = [
            min(g.rows, x.rows) * min(g.cols, x.cols) * x.ref.type.dtype.bytes for x, g in grains
        ]
        self.step = max(1, *sizes) if sizes else 1  # of time: what the largest box takes

    def ask(self, requests: IntArray) -> None:
        """Ask for boxes in the order of time."""
        lines = requests[LINE]
        self.asked += np.bincount(lines, requests[BYTES], len(self.asked)).astype(np.int64)
        unknown = np.flatnonzero(requests[BOX] == UNKNOWN)
        requests[BOX, unknown] = UNKNOWN - self.strangers - np.arange(len(unknown))
        self.strangers += len(unknown)
        requests = _once_a_step(requests, requests[TIME] // self.step, self.writes[lines])
        self._count_least(requests)
        self._replace(requests)

    def _count_least(self, requests: IntArray) -> None:
        """Count the boxes that are met for the first time."""
        lines, boxes, sizes = requests[LINE], requests[BOX], requests[BYTES]
        written = np.flatnonzero(self.writes[lines])
        new_written = written[_new(boxes[written], self.met_written)]
        new = _new(boxes, self.met)
        new_read = new[self.reads[lines[new]]]  # what is written before it is read need not come in
        for least, chosen in ((self.least_written, new_written), (self.least_read, new_read)):
            least += np.bincount(lines[chosen], sizes[chosen], len(least)).astype(np.int64)

    def _replace(self, requests: IntArray) -> None:
        held, written, capacity = self.held, self.written, self.capacity
        reads, writes = self.reads.tolist(), self.writes.tolist()
        columns = (requests[row].tolist() for row in (BOX, LINE, BYTES))
        used = self.used
        for box, line, size in zip(*columns, strict=True):
            if box in held:
                held.move_to_end(box)
            else:
                held[box] = size
                used += size
                if reads[line]:
                    self.hbm_read[line] += size
            if writes[line]:
                written[box] = line
            while used > capacity:
                gone, bytes_ = held.popitem(last=False)
                used -= bytes_
                if gone in written:
                    self.hbm_written[written.pop(gone)] += bytes_
        self.used = used

    def flush(self) -> None:
        """Write what is not in memory yet."""
        for box, line in self.written.items():
            self.hbm_written[line] += self.held[box]
        self.written.clear()

    def moved(self) -> list[Moved]:
        """What each line has moved."""
        found = []
        for i, line in enumerate(self.places.lines):
            asked = int(self.asked[i])
            least = int(self.least_read[i]), int(self.least_written[i])
            reads, writes = asked * line.reads, asked * (line.writes and not line.reads)
            found.append(Moved(reads, writes, self.hbm_read[i], self.hbm_written[i], *least))
        return found

    def bytes_of(self, tensor: str) -> int:
        """The size of a tensor."""
        line = next(x for x in self.places.lines if x.tensor == tensor)
        return prod(self.places.shapes[tensor]) * line.ref.type.dtype.bytes


def _new(boxes: IntArray, met: Any) -> IntArray:
    """Where boxes that have not been met stand for the first time; they are met then."""
    _, first = np.unique(boxes, return_index=True)
    found = boxes[first]
    known = found >= 0
    new = ~known
    new[known] = ~met[found[known]]
    met[found[known]] = True
    return first[new]


def _once_a_step(requests: IntArray, steps: IntArray, writes: Any) -> IntArray:
    """The requests without those for a box that another block asks for in the same step, in the same order."""
    boxes = requests[BOX] - requests[BOX].min(initial=0)
    kinds = boxes * 2 + writes
    keys = (steps - steps.min(initial=2**62)) * (int(kinds.max(initial=0)) + 1) + kinds
    _, first = np.unique(keys, return_index=True)
    return requests[:, np.sort(first)]
