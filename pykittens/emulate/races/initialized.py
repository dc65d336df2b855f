"""Tracks written elements: finds reads of others, incomplete outputs, and tiles wholly outside."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pykittens.emulate.finding import Finding, Kind, Level, Scope, Step
from pykittens.emulate.memory import Array, Box, GlobalTile
from pykittens.emulate.races.conflicts import does, past, who
from pykittens.emulate.races.shadow import Record
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.watch import Access
from pykittens.ir.nodes import (
    Block,
    Call,
    ForTasks,
    Grid,
    If,
    Kernel,
    While,
    blocks,
    coordinates,
    tensors,
    walk,
    written,
)
from pykittens.ir.structure import uses
from pykittens.ir.values import Global, Scalar, TileRef, Value

Mask = np.ndarray[Any, np.dtype[np.bool_]]

MANY = 8  # tiles wholly outside are told of where they are one in so many, or more


class Written:
    """Masks of what has been written, of the shared tiles of the blocks that run and of every output."""

    def __init__(
        self,
        kernel: Kernel,
        tensors: Mapping[str, Array],
        names: Mapping[str, str],
        undefined: Sequence[str],
        report: Callable[[Finding], None],
    ) -> None:
        self.kernel, self.names, self.report = kernel, names, report
        self.masks: dict[str, Mask] = {
            names[n]: np.zeros(tensors[n].shape, np.bool_) for n in written(kernel)
        }
        # What holds nothing before the launch: as its caller says, or because it is NaN everywhere.
        self.undefined = {names[n] for n in undefined if n in names}
        self.undefined |= {n for n in self.masks if _is_nothing(tensors[n])}
        self.tiles: dict[SharedMemory, Mask] = {}
        # Accesses wholly outside a tensor, and all, by the line and tensor.
        self.wholly: dict[tuple[Call, str], int] = {}
        self.all: dict[tuple[Call, str], int] = {}

    def forget_shared(self) -> None:
        """Other blocks start, with shared memory that holds nothing."""
        self.tiles = {}

    # -- shared memory -------------------------------------------------------------------------

    def shared(self, memory: SharedMemory, record: Record) -> None:
        """Shared memory is accessed."""
        mask = self.tiles.get(memory)
        if mask is None:
            mask = self.tiles[memory] = np.zeros((memory.type.rows, memory.type.cols), np.bool_)
        r = record.region
        part = mask[r.top : r.bottom, r.left : r.right]
        if not record.access.reads:
            part[...] = True
        elif not part.all():
            missing = part.size - int(part.sum())
            which = (
                "nothing has"
                if missing == part.size
                else f"{missing} of {part.size} elements nobody has"
            )
            self.report(
                Finding(
                    Kind.UNWRITTEN_MEMORY,
                    f"{memory.name} is read, of which {which} written",
                    (Step(who(record.group), does(record), record.call.loc),),
                    "a store or a copy into it before it is read",
                    "fill the whole of it before it is read, in every pass: a stage that was given back holds nothing",
                )
            )

    def empties(self, regions: Sequence[SharedRegion]) -> None:
        """A stage has been given back."""
        for region in regions:
            if region.memory in self.tiles:
                self.tiles[region.memory][...] = False

    # -- tensors -------------------------------------------------------------------------------

    def tensor(self, tile: GlobalTile, box: Box, record: Record) -> None:
        """A tensor is accessed."""
        self.count(record.call, tile.name, box)
        name = self.names[tile.name]
        if name not in self.masks or box.inside.is_empty:
            return
        part = self._part(name, box)
        if record.access is not Access.WRITE and name in self.undefined and not part.all():
            self.report(
                Finding(
                    Kind.UNWRITTEN_MEMORY,
                    f"`{tile.name}` is {past(record)} where the launch has not written it, and it holds nothing before",
                    (Step(who(record.group), does(record), record.call.loc),),
                    f"a store to `{tile.name}` that comes before",
                    f"write `{tile.name}` first, or pass it with contents",
                )
            )
        if not record.access.reads:
            part[...] = True

    def _part(self, name: str, box: Box) -> Mask:
        """What has been written of a tile of a tensor."""
        r = box.inside
        plane: Mask = self.masks[name][box.leading]
        return (
            plane[r.top : r.bottom, r.left : r.right] if plane.ndim > 1 else plane[r.left : r.right]
        )

    def flag(self, tile: GlobalTile) -> None:
        """A flag is signalled."""
        self._part(self.names[tile.name], tile.box(1, 1))[...] = True

    def outside(self, tile: GlobalTile, rows: int, cols: int, call: Call) -> None:
        """A copy reads a tensor that nobody writes."""
        self.count(call, tile.name, tile.box(rows, cols))

    def count(self, call: Call, name: str, box: Box) -> None:
        """Count an access, and whether it lies wholly outside."""
        key = (call, name)
        self.all[key] = self.all.get(key, 0) + 1
        if box.inside.is_empty:
            self.wholly[key] = self.wholly.get(key, 0) + 1

    # -- the end of the launch -----------------------------------------------------------------

    def finish(self) -> None:
        """The launch is over: tell of outputs that are left out, and of work for nothing."""
        for name, mask in self.masks.items():
            if mask.size and not mask.all() and not self._is_of_flags(name):
                self._left_out(name, mask)
        for (call, name), count in self.wholly.items():
            every = self.all[call, name]
            if count * MANY < every:
                continue  # the ends of a ragged grid, which cost little
            self.report(
                Finding(
                    Kind.OUT_OF_RANGE,
                    f"{count} of {every} tiles of `{name}` that are moved here lie wholly outside it: work for nothing",
                    (Step("this line", "moves tiles that are not there", call.loc),),
                    "",
                    "a cluster works on neighbours together, the last on what is not there: where that is much, take a "
                    "smaller cluster or smaller tiles"
                    if self.kernel.cluster > 1
                    else "let grid and loops end with the tensor: pk.cdiv(extent, tile), tensor.tiles(rows, cols)",
                    Level.NOTE,
                    Scope.EVERY_SCHEDULE,
                )
            )

    def _left_out(self, name: str, mask: Mask) -> None:
        writes = [
            (call, inside)
            for call, inside in _writes(self.kernel.body)
            if self._tensor(call) == name
        ]
        steps = tuple(Step("this line", f"writes `{name}`", call.loc) for call, _ in writes[:2])
        meant = self._is_input(name)
        numbers = {p for p in self.kernel.params if isinstance(p, Scalar)}
        by_data = any(_goes_by_data(call, numbers) for call, _ in writes)
        if meant and by_data and name not in self.undefined:
            return  # a cache, or a table of sums: what it holds counts, and data say what changes
        if not mask.any():
            message = f"`{name}` is an output, and no element of it is written"
        else:
            message = f"{_share(mask)} of `{name}` is never written: {_where(~mask)}"
            kept = name not in self.undefined and any(conditional for _, conditional in writes)
            meant = meant or by_data or kept
        level = Level.WARNING if meant else Level.ERROR
        self.report(
            Finding(
                Kind.UNWRITTEN_MEMORY,
                message,
                steps,
                "",
                "let the grid cover the last tiles, pk.cdiv(extent, tile); if the rest is meant to stay, ignore this",
                level,
                Scope.EVERY_SCHEDULE,
            )
        )

    def _tensor(self, call: Call) -> str:
        (name,) = tensors(call, call.op.effects.writes)
        return self.names[name]

    def _is_of_flags(self, name: str) -> bool:
        """Whether a tensor holds nothing but flags, of which some may be nobody's."""
        return all(
            call.op.effects.signals
            for call, _ in _writes(self.kernel.body)
            if self._tensor(call) == name
        )

    def _is_input(self, name: str) -> bool:
        """Whether a tensor is read, too, or combined with, so that its contents before the launch mean something."""
        for node in walk(self.kernel.body):
            if isinstance(node, Call):
                effects = node.op.effects
                combined = effects.writes if node.args.get("op") is not None else ()
                if any(self.names[t] == name for t in tensors(node, (*effects.reads, *combined))):
                    return True
        return False


def _writes(block: Block, conditional: bool = False) -> Iterator[tuple[Call, bool]]:
    """The operations that write tensors, and whether they stand under a run-time `if` or `while`."""
    for node in block.nodes:
        if isinstance(node, Call) and any(tensors(node, node.op.effects.writes)):
            yield node, conditional
        for inner in blocks(node):
            yield from _writes(inner, conditional or isinstance(node, If | While))


def _goes_by_data(call: Call, arguments: Container[Value]) -> bool:
    """Whether the place that is written follows from data: from numbers that were loaded or given to the kernel."""
    refs = [call.args[o] for o in call.op.effects.writes]
    places = [c for r in refs if isinstance(r, TileRef | Global) for c in coordinates(r)]
    return call.op.name == "scatter" or _are_of(places, arguments, set())


def _are_of(values: Iterable[Any], arguments: Container[Value], seen: set[Value]) -> bool:
    """Whether one of these values follows from an element of a tensor or from one of these arguments."""
    for value in values:
        if not isinstance(value, Value) or value in seen:
            continue
        seen.add(value)
        node = value.source
        if value in arguments or (isinstance(node, Call) and node.op.effects.reads):
            return True
        # How many tasks there are is no place, though a number may say it.
        of_a_grid = isinstance(node, Grid) or (
            isinstance(node, ForTasks) and any(value is i for i in node.index)
        )
        if node is None or of_a_grid:
            continue
        if _are_of(uses(node), arguments, seen):
            return True
    return False


def _is_nothing(array: Array) -> bool:
    """Whether an array of floats is NaN everywhere, as who makes an output that must be written makes it."""
    if array.size == 0 or array.dtype.kind in "iub":
        return False
    first = array[(0,) * array.ndim]
    return bool(first != first) and bool(np.isnan(array.astype(np.float32)).all())


def _share(mask: Mask) -> str:
    """How much of a tensor is not written."""
    share = 100 * (1 - float(mask.mean()))
    if share > 99:
        return "more than 99%"
    return f"{share:.0f}%" if share >= 1 else "less than 1%"


def _where(missing: Mask) -> str:
    """The smallest box that holds what is not written."""
    names = [*(f"axis {i}" for i in range(missing.ndim - 2)), "rows", "columns"][-missing.ndim :]
    told = []
    for axis, name in enumerate(names):
        along = np.flatnonzero(missing.any(axis=tuple(a for a in range(missing.ndim) if a != axis)))
        first, last = int(along[0]), int(along[-1])
        if (first, last) != (0, missing.shape[axis] - 1):
            told.append(f"{name} {first} to {last}")
    return ", ".join(told) or "spread over all of it"
