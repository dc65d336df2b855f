"""The bytes that a launch asks of the L2 cache, and the bytes that memory moves, for given shapes and a device.

Concurrent blocks move bytes at the same rate. The cache holds the most recently used boxes (LRU, by bytes; the two
halves of NVIDIA's larger caches are modelled as one cache). Blocks that ask for one box in the same time step ask
memory once. Written boxes go to memory when they leave the cache, at the latest after the launch. The cache is empty
when the launch starts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from pykittens.analysis.traffic.boxes import BOX, BYTES, LINE, UNKNOWN, Boxes, TensorLine
from pykittens.analysis.traffic.launch import LaunchWork
from pykittens.analysis.traffic.schedule import TIME, in_time
from pykittens.analysis.traffic.trace import Guess, Trace
from pykittens.analysis.traffic.vector import IntArray
from pykittens.emulate.memory import Array
from pykittens.ir.nodes import Kernel
from pykittens.types.devices import DeviceSpec


@dataclass(frozen=True)
class Moved:
    """Bytes asked of the cache for reading and writing, and bytes read from memory and written to it.

    least_read, least_written: those of a cache that holds everything.
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
        """The bytes of each distinct box, read once unless it is written first, and written once if at all."""
        return self.least_read + self.least_written

    @property
    def hit_rate(self) -> float:
        """The share of the bytes asked for reading that the cache holds; 1 if none are asked for."""
        return 1 - self.hbm_read / self.asked_read if self.asked_read else 1.0


@dataclass(frozen=True)
class Traffic:
    """The bytes of a launch: in total, by tensor and by line. `blocks` run at one time.

    Bytes of memory count for the line that asked for them first. guesses: the assumptions about values in memory;
    without any, the numbers hold for every content.
    """

    device: DeviceSpec
    blocks: int
    total: Moved
    tensors: Mapping[str, Moved]
    lines: tuple[tuple[TensorLine, Moved], ...]
    guesses: tuple[Guess, ...]

    @property
    def hbm_seconds(self) -> float:
        """The least time that the device's memory takes for these bytes."""
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

    contents: the arrays of tensors whose elements may be read, such as indices and lengths; others are guessed.
    """
    trace = Trace(LaunchWork.of(kernel, shapes, scalars), shapes, contents)
    room = max(device.sms * blocks_per_sm // kernel.cluster, 1) * kernel.cluster
    blocks = min(trace.launch.most, room)
    cache = Cache(trace.boxes, device.l2_bytes)
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
    """The bytes that the lines move of one tensor; the least are at most its size, even if positions are guessed."""
    total = sum(moved, Moved())
    return replace(
        total, least_read=min(total.least_read, size), least_written=min(total.least_written, size)
    )


@dataclass
class Cache:
    """The boxes in the cache, least recently used first, and the bytes that each line causes."""

    boxes: Boxes
    capacity: int
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)  # bytes of a box
    written: dict[int, int] = field(default_factory=dict)  # the last line; not in memory yet
    used: int = 0
    unknown: int = 0  # boxes at unknown positions

    def __post_init__(self) -> None:
        lines = self.boxes.lines
        self.reads = np.array([x.reads for x in lines], bool)
        self.writes = np.array([x.writes for x in lines], bool)
        self.asked = np.zeros(len(lines), np.int64)
        self.hbm_read, self.hbm_written = [0] * len(lines), [0] * len(lines)
        self.least_read = np.zeros(len(lines), np.int64)
        self.least_written = np.zeros(len(lines), np.int64)
        self.met = np.zeros(self.boxes.count, bool)
        self.met_written = np.zeros(self.boxes.count, bool)
        grains = zip(lines, self.boxes.grains, strict=True)
        sizes = [prod(map(min, g.sides, x.sides)) * x.ref.type.dtype.bytes for x, g in grains]
        self.step = max(1, *sizes) if sizes else 1  # a time step, in bytes: the largest box

    def ask(self, requests: IntArray) -> None:
        """Ask for boxes, in the order of time."""
        lines = requests[LINE]
        self.asked += np.bincount(lines, requests[BYTES], len(self.asked)).astype(np.int64)
        unknown = np.flatnonzero(requests[BOX] == UNKNOWN)
        requests[BOX, unknown] = UNKNOWN - self.unknown - np.arange(len(unknown))
        self.unknown += len(unknown)
        requests = _once_a_step(requests, requests[TIME] // self.step, self.writes[lines])
        self._count_least(requests)
        self._replace(requests)

    def _count_least(self, requests: IntArray) -> None:
        """Count the boxes that are asked for the first time."""
        lines, boxes, sizes = requests[LINE], requests[BOX], requests[BYTES]
        written = np.flatnonzero(self.writes[lines])
        new_written = written[_new(boxes[written], self.met_written)]
        new = _new(boxes, self.met)
        new_read = new[
            self.reads[lines[new]]
        ]  # a box that is written first is not read from memory
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
        """Write the boxes that are not in memory yet."""
        for box, line in self.written.items():
            self.hbm_written[line] += self.held[box]
        self.written.clear()

    def moved(self) -> list[Moved]:
        """The bytes that each line has moved."""
        found = []
        for i, line in enumerate(self.boxes.lines):
            asked = int(self.asked[i])
            least = int(self.least_read[i]), int(self.least_written[i])
            reads, writes = asked * line.reads, asked * (line.writes and not line.reads)
            found.append(Moved(reads, writes, self.hbm_read[i], self.hbm_written[i], *least))
        return found

    def bytes_of(self, tensor: str) -> int:
        """The size of a tensor."""
        line = next(x for x in self.boxes.lines if x.tensor == tensor)
        return prod(self.boxes.shapes[tensor]) * line.ref.type.dtype.bytes


def _new(boxes: IntArray, met: Any) -> IntArray:
    """The indices of the first requests for boxes that are not in `met`, which are added to it."""
    _, first = np.unique(boxes, return_index=True)
    found = boxes[first]
    known = found >= 0
    new = ~known
    new[known] = ~met[found[known]]
    met[found[known]] = True
    return first[new]


def _once_a_step(requests: IntArray, steps: IntArray, writes: Any) -> IntArray:
    """The requests in the same order, without repeated requests for a box in one step."""
    boxes = requests[BOX] - requests[BOX].min(initial=0)
    kinds = boxes * 2 + writes
    keys = (steps - steps.min(initial=2**62)) * (int(kinds.max(initial=0)) + 1) + kinds
    _, first = np.unique(keys, return_index=True)
    return requests[:, np.sort(first)]
