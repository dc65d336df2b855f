"""Tracks written elements: finds reads of unwritten memory, incomplete outputs, and tiles wholly outside a tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.emulate.memory import Array, Box, GlobalTile, plane_of
from pykittens.emulate.races.conflicts import does, past, who
from pykittens.emulate.races.outputs import Mask, incomplete
from pykittens.emulate.races.shadow import AccessRecord
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.watch import Access
from pykittens.ir.nodes import Call, Kernel, written

MANY = 8  # tiles wholly outside are reported if at least one tile in so many is


class Initialized:
    """Masks of the written elements of the shared tiles of running blocks and of the tensors that the kernel writes."""

    def __init__(
        self,
        kernel: Kernel,
        tensors: Mapping[str, Array],
        names: Mapping[str, str],
        undefined: Sequence[str],
        kept: Sequence[str],
        report: Callable[[Finding], None],
    ) -> None:
        self.kernel, self.names, self.report = kernel, names, report
        self.masks: dict[str, Mask] = {
            names[n]: np.zeros(tensors[n].shape, np.bool_) for n in written(kernel)
        }
        # Tensors without contents before the launch: named by the caller, or NaN everywhere.
        self.undefined = {names[n] for n in undefined if n in names}
        self.undefined |= {n for n in self.masks if _is_nan(tensors[n])}
        self.kept = {names[n] for n in kept if n in names}
        # The most elements of each axis written at once.
        self.largest: dict[str, tuple[int, ...]] = {}
        # The shared tiles that are written in part, and those that one access wrote whole.
        self.tiles: dict[SharedMemory, Mask] = {}
        self.written: set[SharedMemory] = set()
        # Accesses by line and tensor: all, and those wholly outside the tensor.
        self.accesses: Counter[tuple[Call, str]] = Counter()
        self.outside: Counter[tuple[Call, str]] = Counter()

    def forget_shared(self) -> None:
        """Other blocks start, with empty shared memory."""
        self.tiles, self.written = {}, set()

    # -- shared memory -------------------------------------------------------------------------

    def shared(self, memory: SharedMemory, record: AccessRecord) -> None:
        """Shared memory is accessed."""
        if memory in self.written:
            return
        is_whole = record.elements is None and record.region.covers(memory.whole)
        if is_whole and record.access is Access.WRITE:
            self.written.add(memory)
            return
        mask = self.tiles.get(memory)
        if mask is None:
            mask = self.tiles[memory] = np.zeros((memory.type.rows, memory.type.cols), np.bool_)
        self._check_shared(memory, record, mask)
        if not record.access.reads:
            mask[_named(record)] = True

    def _check_shared(self, memory: SharedMemory, record: AccessRecord, mask: Mask) -> None:
        """Report a read of elements that are not written."""
        part = mask[_named(record)]
        if record.access is not Access.WRITE and not part.all():
            missing = part.size - int(part.sum())
            which = "it" if missing == part.size else f"{missing} of its {part.size} elements"
            self._unwritten(
                record,
                f"{memory.name} is {past(record)}, and nothing has written {which}",
                "a store or a copy into it before it is read",
                "write all of it before it is read, in every pass: a stage that was released holds nothing",
            )

    def _unwritten(self, record: AccessRecord, message: str, missing: str, help: str) -> None:
        """Report an access that reads unwritten memory."""
        step = FindingStep(who(record.group), does(record), record.call.loc)
        self.report(Finding(Kind.UNWRITTEN_MEMORY, message, (step,), missing, help))

    def empties(self, regions: Sequence[SharedRegion]) -> None:
        """A stage has been released."""
        for region in regions:
            assert region.memory is not None
            self.written.discard(region.memory)
            if region.memory in self.tiles:
                self.tiles[region.memory][...] = False

    # -- tensors -------------------------------------------------------------------------------

    def tensor(self, tile: GlobalTile, box: Box, record: AccessRecord) -> None:
        """A tensor is accessed."""
        if record.elements is None:
            self.count(record.call, tile.name, box)
        name = self.names[tile.name]
        if name not in self.masks or box.inside.is_empty:
            return
        mask = plane_of(self.masks[name], box.place)
        at = _named(record)
        if record.access is not Access.WRITE and name in self.undefined and not mask[at].all():
            self._unwritten(
                record,
                f"`{tile.name}` is {past(record)} at elements that the launch has not written, and holds nothing "
                "before the launch",
                f"an earlier store to `{tile.name}`",
                f"write `{tile.name}` first, or pass it with contents",
            )
        if not record.access.reads:
            mask[at] = True
            if record.elements is None:
                sides = tuple(map(len, box.ranges))
                self.largest[name] = tuple(map(max, sides, self.largest.get(name, sides)))

    def flag(self, tile: GlobalTile) -> None:
        """A flag is signalled."""
        box = tile.box(1, 1)
        box.of(self.masks[self.names[tile.name]])[...] = True

    def count(self, call: Call, name: str, box: Box) -> None:
        """Count an access, and whether it lies wholly outside its tensor and the stated windows."""
        self.accesses[call, name] += 1
        if box.is_outside:
            self.outside[call, name] += 1

    def finish(self) -> None:
        """The launch is over: report incomplete outputs and wasted work."""
        for name, mask in self.masks.items():
            if mask.size and not mask.all() and name not in self.kept:
                largest, is_undefined = self.largest.get(name, ()), name in self.undefined
                found = incomplete(self.kernel, self.names, name, mask, is_undefined, largest)
                if found is not None:
                    self.report(found)
        for (call, name), count in self.outside.items():
            accesses = self.accesses[call, name]
            if count * MANY < accesses:
                continue  # the ends of a ragged grid, which cost little
            self.report(
                Finding(
                    Kind.OUT_OF_RANGE,
                    f"{count} of {accesses} tiles of `{name}` that are moved here lie wholly outside it: wasted work",
                    (FindingStep("this line", "moves tiles outside the tensor", call.loc),),
                    "",
                    "the blocks of a cluster work on neighbouring tiles, and those of the last cluster reach past the "
                    "end: if that is much, use a smaller cluster or smaller tiles"
                    if self.kernel.cluster > 1
                    else "let grid and loops end with the tensor: pk.cdiv(extent, tile), tensor.tiles(rows, cols); if "
                    "tiles are meant to lie outside, as in a halo, take them from a tensor.window(axis, start, stop)",
                    Level.NOTE,
                    Scope.EVERY_SCHEDULE,
                )
            )


def _named(record: AccessRecord) -> Any:
    """The elements of a matrix that an access touches, as an index of their mask."""
    r = record.region
    cols: Any = slice(r.left, r.right) if record.elements is None else record.elements
    return (slice(r.top, r.bottom), cols)


def _is_nan(array: Array) -> bool:
    """Whether an array of floats is NaN everywhere, as callers fill an output that must be written."""
    if array.size == 0 or array.dtype.kind in "iub":
        return False
    first: Any = array[(0,) * array.ndim]
    return bool(first != first) and bool(np.isnan(array.astype(np.float32)).all())
