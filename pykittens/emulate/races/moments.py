"""Records who uses which shared tile and who has waited for whom, and tells what led from one access to another.

The events reach this watcher before the race detector, so the latest one is the second access of a conflict.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pykittens.emulate.barriers import Barrier, Copy
from pykittens.emulate.block import BlockRun
from pykittens.emulate.elements import Elements
from pykittens.emulate.finding import Moment, TileMoment
from pykittens.emulate.group import Group
from pykittens.emulate.memory import Area, Box, GlobalTile
from pykittens.emulate.races.conflicts import who
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.shared import SharedItems, Signalled
from pykittens.emulate.watch import Access, Watcher
from pykittens.ir.nodes import Call, Node
from pykittens.ir.op import Engine
from pykittens.ir.stages import Acquire

_KEPT = 256  # events of a block: two accesses that conflict are rarely further apart
_MOST_TILES = 3  # of a ring that are shown; of a longer one only the tile itself
_MOST_LATER = 4  # uses after the first access that are shown, the second access among them
_READERS = {Engine.PRODUCT: "product", Engine.COPY_OUT: "store"}
_Memory = tuple[SharedMemory, ...]


@dataclass(frozen=True, eq=False)
class Event:
    """What a group, or the copy engine for none, does, and the tiles of its block after it.

    what: {} stands for a tile of `memory`, which has those that it concerns. fills: whether they hold data from here
    on. saw: for the end of a wait, the signals that it waited for.
    """

    number: int
    group: Group | None
    what: str
    node: Node
    tiles: Mapping[SharedMemory, TileMoment]
    memory: _Memory = ()
    fills: bool = False
    saw: tuple[int, ...] = ()


class Moments(Watcher):
    """The latest events of each block that runs."""

    def __init__(self) -> None:
        self.together((), ())

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        self.events: dict[BlockRun, deque[Event]] = {b: deque(maxlen=_KEPT) for b in blocks}
        self.rings = {b: [*_rings(b)] for b in blocks}
        self.tiles: dict[BlockRun, dict[SharedMemory, TileMoment]] = {
            b: {m: TileMoment(_label(m)) for ring in rings for m in ring}
            for b, rings in self.rings.items()
        }
        self.count = 0
        self.running: tuple[Group, Call] | None = None
        self.copies: dict[Copy, Group] = {}
        # The tiles that each unfinished product or store of a group reads.
        self.reads: dict[tuple[Group, Engine], deque[_Memory]] = defaultdict(deque)
        # The signals since the last phase of a barrier was complete, and those of each phase.
        self.arrived: dict[Barrier, list[int]] = defaultdict(list)
        self.phases: dict[Barrier, list[tuple[int, ...]]] = defaultdict(list)

    def conflict(self, memory: str, first: tuple[Group, Call], second: Group) -> tuple[Moment, ...]:
        """The moments up to the latest event, which is the second access; empty if nothing else is known."""
        events = self.events.get(second.block, ())
        if not events or (new := events[-1]).group is not second:
            return ()
        for tile in (m for m in new.memory if m.name == memory):
            for old in reversed(events):
                if (old.group, old.node) == first and tile in old.memory and old is not new:
                    found = self.between(tile, old, new)
                    return found if len(found) > 2 else ()
        return ()

    def between(self, memory: SharedMemory, old: Event, new: Event) -> tuple[Moment, ...]:
        """The moments of two accesses to a tile, of its filling before, and of all between them that concerns both."""
        assert new.group is not None
        events = {e.number: e for e in self.events[new.group.block] if e.number <= new.number}
        uses = [n for n, e in events.items() if memory in e.memory]
        filled = [n for n in uses if n < old.number and events[n].fills]
        later = [n for n in uses if n > old.number]
        shown = {*filled[-1:], old.number, *later[-_MOST_LATER:]}
        seen: dict[int, int] = {}  # by the end of a wait, the signal of the first group
        for n, e in events.items():
            sent = [s for s in e.saw if s in events and events[s].group is old.group]
            if sent and e.group is new.group is not old.group and sent[-1] > min(shown):
                seen = {n: sent[-1]}
        order = sorted(shown | {*seen, *seen.values()})
        ring = next(r for r in self.rings[new.group.block] if memory in r)
        ring = ring if len(ring) <= _MOST_TILES else (memory,)
        return tuple(
            Moment(
                _who(e.group),
                e.what.replace("{}", _label(memory)),
                e.node.loc,
                tuple(e.tiles[m] for m in ring),
                next((order.index(s) for w, s in seen.items() if n >= w), None),
                e in (old, new),
            )
            for n, e in ((n, events[n]) for n in order)
        )

    # -- accesses ------------------------------------------------------------------------------

    def runs(self, group: Group, call: Call) -> None:
        self.running = (group, call) if group.block in self.events else None

    def ran(self, group: Group, call: Call) -> None:
        self.running = None

    def touches(
        self,
        where: GlobalTile | SharedRegion,
        box: Box | Area,
        access: Access,
        elements: Elements | None = None,
    ) -> None:
        if self.running is None or not isinstance(where, SharedRegion) or where.memory is None:
            return
        (group, call), memory = self.running, (where.memory,)
        if not access.reads:
            self._change(group.block, memory, contents=f"stored by {_who(group)}")
        self._add(group, call, f"{access.value} {{}}", memory, fills=not access.reads)

    def starts_copy(self, group: Group, call: Call, copy: Copy) -> None:
        if (memory := _of([copy.dst], group.block)) and group.block in self.events:
            self.copies[copy] = group
            self._change(group.block, memory, contents=str(copy.src), landing=True)
            self._add(group, call, f"starts a copy of {copy.src} into {{}}", memory)

    def lands(self, copy: Copy) -> None:
        self.running = None
        if (group := self.copies.pop(copy, None)) is not None:
            memory = _of([copy.dst], group.block)
            self._change(group.block, memory, landing=False)
            self._add(
                None, copy.call, f"{copy.src} has landed in {{}}", memory, group.block, fills=True
            )
            self.arrived[copy.barrier].append(self.count)

    def starts_product(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        memory = _of(args.values(), group.block)
        if group.role.is_warpgroup:
            self._starts(group, call, Engine.PRODUCT, memory)
        else:
            self._add(group, call, "multiplies {}", memory)

    def starts_store(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        self._starts(group, call, Engine.COPY_OUT, _of([args["src"]], group.block))

    def _starts(self, group: Group, call: Call, engine: Engine, memory: _Memory) -> None:
        reader = f"a {_READERS[engine]}"
        for m in memory:
            self._change(group.block, (m,), readers=(*self.tiles[group.block][m].readers, reader))
        self.reads[group, engine].append(memory)
        self._add(group, call, f"starts {reader} that reads {{}}", memory)

    def finishes(self, group: Group, node: Node, engine: Engine, pending: int, read: bool) -> None:
        reads, done = self.reads[group, engine], list[SharedMemory]()
        while len(reads) > pending:
            for m in reads.popleft():
                readers = [*self.tiles[group.block][m].readers]
                readers.remove(f"a {_READERS[engine]}")
                self._change(group.block, (m,), readers=tuple(readers))
                done.append(m)
        if done:
            which = f"all but {pending} of its" if pending else "its"
            what = f"waits until {which} {_READERS[engine]}s are done"
            self._add(group, node, what, tuple(done))

    # -- synchronisation -----------------------------------------------------------------------

    def arrives(self, group: Group, node: Node, what: Signalled) -> None:
        if isinstance(what, Barrier) and group.block in self.events:
            name = _plain(what.name)
            state = f"signals that {name.replace(' to be ', ' is ')}"
            self._add(group, node, state if " to be " in name else f"arrives on {name}")
            self.arrived[what].append(self.count)

    def completes(self, barrier: Barrier) -> None:
        self.phases[barrier].append(tuple(self.arrived.pop(barrier, ())))

    def takes(self, group: Group, node: Acquire, barrier: Barrier, phase: int) -> None:
        saw = self.phases[barrier][phase] if phase >= 0 else ()
        self._add(group, node, f"ends its wait for {_plain(barrier.name)}", saw=saw)

    def passes(self, group: Group, call: Call, what: Signalled) -> None:
        if isinstance(what, Barrier):
            saw = self.phases[what][-1] if self.phases[what] else ()
            self._add(group, call, f"ends its wait for {_plain(what.name)}", saw=saw)

    def _add(
        self,
        group: Group | None,
        node: Node,
        what: str,
        memory: _Memory = (),
        block: BlockRun | None = None,
        **others: Any,
    ) -> None:
        block = block or (group.block if group is not None else None)
        if block in self.events:
            self.count += 1
            event = Event(self.count, group, what, node, self.tiles[block], memory, **others)
            self.events[block].append(event)

    def _change(self, block: BlockRun, memory: _Memory, **changes: Any) -> None:
        """Replace the tiles, as earlier events keep theirs."""
        tiles = self.tiles[block]
        self.tiles[block] = {**tiles, **{m: replace(tiles[m], **changes) for m in memory}}


def _rings(block: BlockRun) -> Iterator[_Memory]:
    """The tiles of each declaration: of shared memory, or of a field of the stages of a pipeline."""
    found = [s.items if isinstance(s, SharedItems) else [s] for s in block.shared.values()]
    for ring in block.rings.values():
        found += [[stage[name] for stage in ring.stages] for name in ring.pipeline.tiles]
    yield from (_of(items, block) for items in found)


def _of(values: Iterable[Any], block: BlockRun) -> _Memory:
    """The tiles of a block among these values, each once."""
    regions = (v.memory for v in values if isinstance(v, SharedRegion))
    return tuple(dict.fromkeys(m for m in regions if m is not None and m.block == block.number))


def _who(group: Group | None) -> str:
    return "copy engine" if group is None else who(group)


def _label(memory: SharedMemory) -> str:
    """The name of a tile, without that of its pipeline."""
    return _plain(re.sub(r" of `[^`]*`$", "", memory.name))


def _plain(name: str) -> str:
    return name.replace("`", "")
