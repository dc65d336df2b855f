"""The race detector: compares the clock of each access with those of earlier accesses to the same memory.

A finding about two accesses holds for every schedule in which the groups wait for the same phases, not only for the
one that ran: it does not depend on when a copy happened to land.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pykittens.emulate.barriers import Barrier, Copy, Sent
from pykittens.emulate.block import BlockRun
from pykittens.emulate.elements import Elements
from pykittens.emulate.finding import Finding
from pykittens.emulate.group import Group
from pykittens.emulate.memory import Area, Array, Box, GlobalTile
from pykittens.emulate.races import protocol
from pykittens.emulate.races.clocks import (
    FENCE_SHARED,
    FENCE_TENSORS,
    OF_A_GROUP,
    PRODUCTS,
    STORES_READ,
    STORES_WRITTEN,
    TIME,
    BarrierClock,
    Clock,
    FlagClock,
    GroupClock,
    new_clock,
)
from pykittens.emulate.races.conflicts import conflict, several_values, who
from pykittens.emulate.races.initialized import Initialized
from pykittens.emulate.races.moments import Moments
from pykittens.emulate.races.multicast import Multicasts
from pykittens.emulate.races.shadow import (
    AccessRecord,
    LaneMapping,
    SharedShadow,
    TensorShadow,
    in_matrices,
)
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.shared import Signalled, Turn
from pykittens.emulate.watch import Access, Watcher
from pykittens.ir.nodes import Call, Kernel, Node, calls, moved, waits_for_flags, written
from pykittens.ir.op import Engine, Space
from pykittens.ir.stages import Acquire
from pykittens.ir.values import Value
from pykittens.types.tiles import RT, RV, Spread

FRAGMENT_COLS = 16  # the lanes that move a tile repeat after this many columns, at most


class Races(Watcher):
    """Finds unordered accesses and misused barriers in one run of a kernel."""

    reports_unfinished = True

    def __init__(
        self,
        kernel: Kernel,
        tensors: Mapping[str, Array],
        undefined: Sequence[str] = (),
        kept: Sequence[str] = (),
        moments: Moments | None = None,
    ) -> None:
        self.kernel, self.moments, self.found = kernel, moments, dict[object, Finding]()
        self.waits_for_flags = waits_for_flags(kernel)
        self.sends = any(c.op.effects.engine is Engine.SEND for c in calls(kernel.body))
        self.names = _one_name_each(tensors)
        # A tensor that the kernel does not write may be read in any order.
        self.tensors = {self.names[name]: TensorShadow() for name in written(kernel)}
        self.initialized = Initialized(kernel, tensors, self.names, undefined, kept, self.report)
        self.running: tuple[Group, Call] | None = None
        self.begin(0)

    def begin(self, size: int) -> None:
        """Forget the accesses of ended blocks to shared memory; those to tensors are kept."""
        self.size, self.epoch = size, object()
        self.groups: dict[Group, GroupClock] = {}
        self.barriers: dict[Barrier, BarrierClock] = {}
        self.others: dict[object, FlagClock] = {}
        self.copies: dict[Copy, tuple[int, Clock]] = {}
        self.shared, self.multicasts = SharedShadow(), Multicasts(self.report)

    def report(self, *findings: Finding) -> None:
        """Keep findings, one for each pair of lines."""
        for finding in findings:
            self.found.setdefault(finding.key, finding)

    # -- the blocks that run at once -----------------------------------------------------------

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        barriers = [b for block in blocks for b in block.barriers]
        first = OF_A_GROUP * len(groups)
        end = first + len(barriers)
        last, order = end + len(groups), slice(None)
        self.begin(last + len(barriers) if self.sends else end)
        if self.sends:
            self.landed, self.seen, order = slice(first, end), slice(last, None), slice(first, last)
        self.groups = {
            g: GroupClock(OF_A_GROUP * i, self.size, end + i if self.sends else None)
            for i, g in enumerate(groups)
        }
        self.barriers = {
            b: BarrierClock(first + i, new_clock(self.size), order) for i, b in enumerate(barriers)
        }
        self.initialized.forget_shared()

    def ended(self, group: Group) -> None:
        self.report(*protocol.unfinished(group))

    def over(self, blocks: Sequence[BlockRun]) -> None:
        for block in blocks:
            groups = [g for g in self.groups if g.block is block]
            self.report(*protocol.uneven_sides(groups, self.kernel.pipelines))
            self.report(*protocol.unlanded(block))
        for barrier, clock in self.barriers.items():
            self.report(*protocol.unfinished_phase(barrier, clock))

    def finish(self) -> None:
        """The launch is over."""
        self.initialized.finish()

    def report_deadlock(self) -> None:
        """The groups wait for ever: report barriers whose byte counts explain it."""
        for barrier, clock in self.barriers.items():
            self.report(*protocol.wrong_bytes(barrier, clock))

    # -- accesses ------------------------------------------------------------------------------

    def runs(self, group: Group, call: Call) -> None:
        self.running = (group, call) if group in self.groups else None

    def ran(self, group: Group, call: Call) -> None:
        self.running = None
        if group in self.groups:
            for name in call.op.effects.acquires:
                self.exchanges(group, call, group.value(call.args[name]))

    def touches(
        self,
        where: GlobalTile | SharedRegion,
        box: Box | Area,
        access: Access,
        elements: Elements | None = None,
    ) -> None:
        if self.running is None or (isinstance(where, SharedRegion) and where.memory is None):
            return
        group, call = self.running
        region = box.inside if isinstance(box, Box) else box
        fence = FENCE_SHARED if isinstance(where, SharedRegion) else FENCE_TENSORS
        if elements is not None:
            lanes = self.lanes_of_elements(call, elements, where)
        elif isinstance(box, Box):
            assert isinstance(where, GlobalTile)
            lanes = self.lanes(group, call, box.row - (where.moved or 0), box.col, where.plane)
        else:
            lanes = self.lanes(group, call, region.top, region.left)
        record = self.of_lanes(group, call, access, region, lanes, fence)
        if elements is not None:
            record.elements = elements.cols
        if elements is not None and elements.clashes:
            self.report(*several_values(_name(where), record))
        if isinstance(where, SharedRegion):
            assert where.memory is not None
            self.shares(record, where.memory)
            return
        assert isinstance(box, Box)
        record.by_row = where.moved is not None
        self.moves(record, where, box, self.groups[group].known)

    @staticmethod
    def lanes_of_elements(
        call: Call, elements: Elements, where: GlobalTile | SharedRegion
    ) -> LaneMapping | None:
        """Which lane accesses which element: the same ones if two operations name the same elements, each once."""
        if not elements.are_distinct:
            return None
        type_ = call.args[call.op.effects.index or ""].type
        # One lane stores what several hold.
        is_copied = isinstance(type_, RV) and type_.spread.repeats
        by_one = is_copied and bool(call.op.effects.writes)
        held = (type_.shape, getattr(type_, "spread", None), by_one)
        axis = where.plane[-1:] if isinstance(where, GlobalTile) else ()
        return LaneMapping((*held, elements.index.tobytes(), axis))

    def of_lanes(
        self,
        group: Group,
        call: Call,
        access: Access,
        region: Area,
        lanes: LaneMapping | None,
        fence: int,
    ) -> AccessRecord:
        """An access of the lanes of a group, over when the group signals."""
        clock = self.groups[group]
        end = (clock.first + TIME, clock.now, clock.first + fence)
        is_tagged = call.op.effects.tagged
        return AccessRecord(
            group, call, access, None, region, self.epoch, *end, lanes, of_a_flag=is_tagged
        )

    def lanes(
        self, group: Group, call: Call, row: int, col: int, plane: tuple[int, ...] = ()
    ) -> LaneMapping:
        """Which lane moves which element of a tile or vector whose first element is at this row and column.

        plane: the axes of a tensor along which rows and columns run.
        """
        type_, warps = getattr(moved(call), "type", None), group.role.warps
        # One warp stores what every warp holds.
        warp = warps > 1 and bool(call.op.effects.writes)
        match type_:
            case RT(rows=rows) if call.args.get("transposed"):
                return LaneMapping(("columns", rows, plane), row % FRAGMENT_COLS, col)
            case RT(rows=rows):
                return LaneMapping(("rows", rows, plane), row, col % FRAGMENT_COLS)
            case RV(length=length, spread=spread):
                by_one = warp and spread is Spread.PER_COLUMN
                return LaneMapping((length, spread, by_one, plane[-1:]), col=col)
            case _:
                return LaneMapping(("scalar", warp))

    def shares(self, record: AccessRecord, memory: SharedMemory) -> None:
        """Shared memory is accessed."""
        meet = partial(self.meet, memory.name, False)
        self.shared.add(memory, record, self.groups[record.group].known, meet)
        self.initialized.shared(memory, record)

    def moves(self, record: AccessRecord, tile: GlobalTile, box: Box, known: Clock) -> None:
        """A tensor is accessed."""
        self.initialized.tensor(tile, box, record)
        if not box.inside.is_empty:
            self.meets_others(record, tile.name, box, known)

    def meets_others(self, record: AccessRecord, tensor: str, box: Box, known: Clock) -> None:
        """Compare an access to a tensor with earlier ones, if the kernel writes the tensor."""
        shadow = self.tensors.get(self.names[tensor])
        if shadow is not None:
            meet = partial(self.meet, f"`{tensor}`", True)
            for leading, part in in_matrices(box, record):
                shadow.add(leading, part, known, meet)

    def meet(
        self, memory: str, is_tensor: bool, old: AccessRecord, new: AccessRecord, ordered: bool
    ) -> None:
        """Two accesses conflict."""
        fenced = not is_tensor or new.group.block.launch.fetches_written
        found = conflict(memory, is_tensor, old, new, ordered, fenced)
        if found is None or found.key in self.found:
            return
        if self.moments is not None and not is_tensor:
            moments = self.moments.conflict(memory, (old.group, old.call), new.group)
            found = replace(found, moments=moments)
        self.report(found)

    # -- engines -------------------------------------------------------------------------------

    def starts_copy(self, group: Group, call: Call, copy: Copy) -> None:
        if group not in self.groups:
            return
        known, barrier = self.groups[group].known, self.barriers[copy.barrier]
        sends, clock, fence = isinstance(copy.src, Sent), known.copy(), -1
        if sends:
            # Who waits for the bytes sees the tile, and nothing else that the sender wrote.
            clock = self.groups[group].send(barrier.order)
            fence = self.seen.start + barrier.component - self.landed.start
            self.report(*protocol.early_bytes(group, call, copy.barrier, barrier, known))
        barrier.copies += 1
        barrier.under_way.add(barrier.copies)
        does = "sends a tile" if sends else "starts a copy"
        barrier.steps.setdefault((call, does), who(group, several=sends))
        self.copies[copy] = (barrier.copies, clock)
        end = (self.epoch, barrier.component, barrier.copies, fence, None, False, copy.barrier)
        engine = call.op.effects.engine
        record = AccessRecord(group, call, Access.WRITE, engine, copy.dst.region, *end)
        if copy.dst.memory is not None:
            self.shares(record, copy.dst.memory)
        if isinstance(copy.src, Sent):
            return
        box = copy.src.box(copy.rows, copy.dst.cols)
        if call.args.get("multicast"):
            self.multicasts.starts(group, call, copy, box, len(barrier.phases))
        if self.names[copy.src.name] in self.tensors:
            source = AccessRecord(group, call, Access.READ, Engine.COPY_IN, box.inside, *end)
            self.moves(source, copy.src, box, known)
        else:
            self.initialized.count(call, copy.src.name, box)

    def lands(self, copy: Copy) -> None:
        self.running = None
        if copy in self.copies:
            number, clock = self.copies.pop(copy)
            barrier = self.barriers[copy.barrier]
            barrier.under_way.discard(number)
            barrier.brought += copy.bytes
            barrier.join(clock)

    def starts_product(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        clock = self.groups[group]
        clock.products += 1
        for operand in args.values():
            if not isinstance(operand, SharedRegion) or operand.memory is None:
                continue
            if group.role.is_warpgroup:
                end = (PRODUCTS, clock.products)
                record = self.of_engine(group, call, Access.READ, operand.region, *end)
            else:
                record = self.of_lanes(group, call, Access.READ, operand.region, None, FENCE_SHARED)
            self.shares(record, operand.memory)

    def starts_store(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        clock = self.groups[group]
        clock.stores += 1
        src, dst = args["src"], args["dst"]
        if src.memory is not None:
            end = (STORES_READ, clock.stores)
            self.shares(self.of_engine(group, call, Access.READ, src.region, *end), src.memory)
        box = dst.box(src.rows, src.cols)
        access = Access.WRITE if args["op"] is None else Access.COMBINE
        end = (STORES_WRITTEN, clock.stores)
        self.moves(self.of_engine(group, call, access, box.inside, *end), dst, box, clock.known)

    def of_engine(
        self, group: Group, call: Call, access: Access, region: Area, component: int, value: int
    ) -> AccessRecord:
        """An access of an engine that a group started, over when the group has waited for the engine."""
        engine, first = call.op.effects.engine, self.groups[group].first
        return AccessRecord(
            group, call, access, engine, region, self.epoch, first + component, value
        )

    def finishes(self, group: Group, node: Node, engine: Engine, pending: int, read: bool) -> None:
        clock = self.groups[group]
        if engine is Engine.PRODUCT:
            clock.finish(PRODUCTS, clock.products - pending)
            return
        clock.finish(STORES_READ, clock.stores - pending)
        if not read:
            clock.finish(STORES_WRITTEN, clock.stores - pending)

    def unwaited(self, group: Group, node: Node, product: Call) -> None:
        self.report(protocol.unwaited(group, node, product))

    def overwrites(self, group: Group, node: Node, value: Value, product: Call) -> None:
        self.report(protocol.overwrites(group, node, value, product))

    # -- synchronisation -----------------------------------------------------------------------

    def meets(self, group: Group) -> None:
        if group in self.groups:
            self.groups[group].meet()

    def fences(self, group: Group, spaces: tuple[Space, ...]) -> None:
        if group in self.groups:
            components = {"shared": FENCE_SHARED, "tensors": FENCE_TENSORS}
            self.groups[group].fence(*(components[s] for s in spaces))
            # A program has the fence of a stage only if the role stores what an engine accesses.
            if self.sends and "shared" in spaces and isinstance(group.node, Call):
                self.groups[group].show(self.landed, self.seen)

    def takes(self, group: Group, node: Acquire, barrier: Barrier, phase: int) -> None:
        if phase >= 0:
            self.groups[group].learn(self.barriers[barrier].phases[phase])

    def passes(self, group: Group, call: Call, what: Signalled) -> None:
        clock = self.groups[group]
        if isinstance(what, Barrier):
            barrier = self.barriers[what]
            self.report(*protocol.ambiguous_wait(group, call, what, barrier, clock))
            if barrier.phases:
                clock.learn(barrier.phases[-1])
            barrier.passed[group] = (len(barrier.phases) - 1, clock.now, call)
            return
        least = call_value(group, call) if isinstance(what, GlobalTile) else 0
        signalled = self.other(what).seen(least)
        if signalled is not None:
            clock.learn(signalled)
        if isinstance(what, GlobalTile):
            self.flag(group, call, what, Access.READ, clock.now)

    def arrives(self, group: Group, node: Node, what: Signalled) -> None:
        if group not in self.groups:
            return
        if isinstance(node, Call) and node.op.effects.acquires:
            assert not isinstance(what, Barrier)
            self.other(what)  # with the value before the operation
            return
        clock = self.groups[group].signal()
        if isinstance(what, Barrier):
            barrier = self.barriers[what]
            self.report(*protocol.early_arrival(group, node, what, barrier, clock))
            barrier.last = group, node
            if isinstance(node, Call) and "bytes" in node.args:
                barrier.steps.setdefault((node, "expects bytes"), who(group))
            barrier.join(clock)
            return
        other = self.other(what)
        if isinstance(what, Turn):
            other.values = [(0, clock)]
            return
        assert isinstance(what, GlobalTile)
        assert isinstance(node, Call)
        self.initialized.flag(what)
        # A group that finds the stored value knows that the signal is over.
        self.flag(group, node, what, Access.COMBINE, self.groups[group].now - 1)
        adds, value = node.args["op"] == "add", call_value(group, node)
        other.signal(int(what.element()) + value if adds else value, clock, adds)

    def exchanges(self, group: Group, call: Call, tile: GlobalTile | SharedRegion) -> None:
        """A group has read a flag, and perhaps changed it, in one step."""
        clock, flag = self.groups[group], self.other(tile)
        if flag.values:
            clock.learn(flag.values[-1][1])
        if not call.op.effects.signals:
            self.flag(group, call, tile, Access.READ, clock.now)
            return
        known = clock.signal()
        self.flag(group, call, tile, Access.COMBINE, clock.now - 1)
        value = int(tile.element())
        # Nobody can know of an operation that left the flag as it was; one that failed has signalled nothing.
        if value != flag.value:
            flag.signal(value, known, adds=True)
            if not self.waits_for_flags:
                del flag.values[:-1]

    def flag(
        self,
        group: Group,
        call: Call,
        tile: GlobalTile | SharedRegion,
        access: Access,
        time: int,
    ) -> None:
        """A flag is signalled, waited for or read, which does not order ordinary accesses to the flag."""
        clock = self.groups[group]
        end = (self.epoch, clock.first + TIME, time)
        if isinstance(tile, SharedRegion):
            assert tile.memory is not None
            region = tile.region
            record = AccessRecord(group, call, access, None, region, *end, of_a_flag=True)
            self.shares(record, tile.memory)
            return
        box = tile.box(1, 1)
        record = AccessRecord(group, call, access, None, box.inside, *end, of_a_flag=True)
        if call.op.effects.acquires:
            self.initialized.tensor(tile, box, record)
        self.meets_others(record, tile.name, box, clock.known)

    def completes(self, barrier: Barrier) -> None:
        if barrier in self.barriers:
            clock = self.barriers[barrier]
            completion = clock.complete()
            self.report(*protocol.missed_phase(barrier, clock, completion, self.groups))

    def empties(self, regions: Sequence[SharedRegion]) -> None:
        self.initialized.empties(regions)

    def other(self, what: Turn | GlobalTile | SharedRegion) -> FlagClock:
        """The clock of a turn or of a flag."""
        if isinstance(what, Turn):
            return self.others.setdefault(what, FlagClock())
        key: tuple[object, ...] = (
            (what.memory, what.region) if isinstance(what, SharedRegion) else ()
        )
        if isinstance(what, GlobalTile):
            box = what.box(1, 1)
            key = (self.names[what.name], box.ranges)
        if key not in self.others:
            self.others[key] = FlagClock(int(what.element()))
        return self.others[key]


def _name(where: GlobalTile | SharedRegion) -> str:
    """The name of memory in a finding."""
    if isinstance(where, GlobalTile):
        return f"`{where.name}`"
    assert where.memory is not None
    return where.memory.name


def call_value(group: Group, call: Call) -> int:
    """The value that a call signals or waits for."""
    return int(group.value(call.args["value"]))


def _one_name_each(tensors: Mapping[str, Array]) -> dict[str, str]:
    """For each tensor, the name of the first tensor that is the same memory."""
    first: dict[object, str] = {}
    return {
        name: first.setdefault((a.ctypes.data, a.shape, a.strides), name) if a.size else name
        for name, a in tensors.items()
    }
