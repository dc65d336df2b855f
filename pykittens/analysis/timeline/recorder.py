"""Records the timeline of an emulated run: the run gives the dependencies, the rates give the times.

Each block has its own multiprocessor. The lanes of its groups do not slow one another down, scalars cost nothing, and
blocks of a launch that do not wait for one another all start at 0.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pykittens.analysis.timeline.rates import HOPPER, Rates
from pykittens.analysis.timeline.spans import Activity, Args, Timeline, Track, TrackKind
from pykittens.analysis.timeline.timekeeper import Event, StageUse, Timekeeper
from pykittens.emulate.barriers import Barrier, Copy
from pykittens.emulate.block import BlockRun
from pykittens.emulate.elements import Elements
from pykittens.emulate.group import Group
from pykittens.emulate.memory import Area, Box, GlobalTile
from pykittens.emulate.regions import SharedRegion
from pykittens.emulate.shared import Signalled, Turn
from pykittens.emulate.watch import Access, Watcher
from pykittens.ir.nodes import Call, Kernel, Node, calls, operands
from pykittens.ir.op import Engine
from pykittens.ir.stages import Acquire, Pipeline, Side
from pykittens.types.tiles import RT, RV

CLUSTERS = 4  # recorded by default

ENGINES = {
    Engine.COPY_IN: "copies in",
    Engine.COPY_OUT: "copies out",
    Engine.PRODUCT: "tensor cores",
    Engine.SEND: "tiles of the cluster",
}
_ISSUE = 1  # cycles in which a group issues work to an engine


@dataclass
class _Stage:
    """The stage of a ring that a barrier guards."""

    pipeline: Pipeline
    index: int
    side: Side  # the side that waits for the barrier
    track: Track


@dataclass
class _Unfinished:
    """The work that a group has issued to engines and not waited for, oldest first."""

    products: deque[Event] = field(default_factory=deque)
    reading: deque[Event] = field(default_factory=deque)
    writing: deque[Event] = field(default_factory=deque)


class Recorder(Watcher):
    """A watcher that records the blocks of the first `clusters` clusters."""

    def __init__(self, title: str, clusters: int = CLUSTERS, rates: Rates = HOPPER) -> None:
        self.time, self.clusters, self.rates = Timekeeper(title), clusters, rates
        self.groups: dict[Group, Track] = {}
        self.engines: dict[tuple[int, Engine], Track] = {}
        self.stages: dict[Barrier, _Stage] = {}
        self.uses: dict[tuple[Track, int], StageUse] = {}
        self.unfinished: dict[Group, _Unfinished] = defaultdict(_Unfinished)
        self.copies: dict[Copy, Event] = {}
        # The arrivals at a barrier since its last phase was complete, and those that completed each phase.
        self.arrived: dict[Barrier, list[Event]] = defaultdict(list)
        self.completed: dict[tuple[Barrier, int], list[Event]] = {}
        # The signals so far, by turn or by the name of a flag.
        self.signals: dict[object, list[Event]] = defaultdict(list)
        self.running: Group | None = None
        self.moved = 0  # cycles of the accesses of the running operation

    def timeline(self) -> Timeline:
        """The timeline recorded so far."""
        return self.time.timeline()

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        recorded = [b for b in blocks if b.index < self.clusters]
        for group in groups:
            if group.block in recorded:
                self.groups[group] = self.time.track(group.block.name, group.name, TrackKind.GROUP)
        for block in recorded:
            self._add_stages(block)
            for engine in _engines_of(block.launch.kernel):
                self.engines[block.number, engine] = self.time.track(
                    block.name, ENGINES[engine], TrackKind.ENGINE
                )

    def _add_stages(self, block: BlockRun) -> None:
        for pipeline, ring in block.rings.items():
            for index in range(pipeline.stages):
                name = f"{pipeline.name}[{index}]" if pipeline.stages > 1 else pipeline.name
                track = self.time.track(block.name, name, TrackKind.STAGE)
                self.stages[ring.empty[index]] = _Stage(pipeline, index, "fill", track)
                self.stages[ring.full[index]] = _Stage(pipeline, index, "drain", track)

    # -- the lanes of a group ------------------------------------------------------------------

    def runs(self, group: Group, call: Call) -> None:
        self.running, self.moved = group if group in self.groups else None, 0

    def touches(
        self,
        where: GlobalTile | SharedRegion,
        box: Box | Area,
        access: Access,
        elements: Elements | None = None,
    ) -> None:
        if self.running is None:
            return
        region = box.inside if isinstance(box, Box) else box
        count = (region.bottom - region.top) * (region.right - region.left)
        if elements is not None:
            count = len(elements.at)
        rate = self.rates.shared if isinstance(where, SharedRegion) else self.rates.copy
        self.moved += rate(count * where.array.itemsize)

    def ran(self, group: Group, call: Call) -> None:
        if self.running is None:
            return
        self.running = None
        elements = _elements(call)
        cycles = self.rates.elements(elements, group.role.warps) if elements else 0
        cycles = self.moved or cycles
        if cycles:
            self.time.work(self.groups[group], call.op.shown, cycles, call.loc, _types(call))

    # -- engines -------------------------------------------------------------------------------

    def starts_copy(self, group: Group, call: Call, copy: Copy) -> None:
        if group not in self.groups or copy.dst.memory is None:
            return
        args: dict[str, str | int] = {"from": str(copy.src), "to": copy.dst.memory.name}
        args["bytes"] = copy.bytes
        # The rate is that of the multiprocessor that receives the bytes.
        cycles, block = self.rates.copy(copy.bytes), copy.dst.memory.block
        self.copies[copy] = self._issue(group, call, cycles, args, block)

    def lands(self, copy: Copy) -> None:
        if (event := self.copies.pop(copy, None)) is not None:
            self.arrived[copy.barrier].append(event)

    def starts_product(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        if group not in self.groups:
            return
        a, (result,) = call.args["a"].type, call.results
        rows, cols = result.type.shape  # type: ignore[union-attr]
        depth = a.rows * a.cols // rows  # for either orientation of `a`
        cycles = self.rates.product(rows, cols, depth, a.dtype)
        product = f"{rows} x {cols} x {depth}, {a.dtype}"
        event = self._issue(group, call, cycles, {"by": group.name, "product": product})
        self.unfinished[group].products.append(event)

    def starts_store(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        if group not in self.groups:
            return
        bytes = args["src"].array.nbytes
        shown = {"to": str(args["dst"]), "bytes": bytes}
        event = self._issue(group, call, self.rates.copy(bytes), shown)
        self.unfinished[group].reading.append(event)
        self.unfinished[group].writing.append(event)

    def _issue(
        self, group: Group, call: Call, cycles: int, args: Args, block: int | None = None
    ) -> Event:
        """A group issues work to the engine of a block, its own by default, and continues."""
        engine = call.op.effects.engine
        assert engine is not None
        track = self.engines[group.block.number if block is None else block, engine]
        activity = Activity.PRODUCT if engine is Engine.PRODUCT else Activity.COPY
        issued = self.time.work(self.groups[group], f"starts {call.op.shown}", _ISSUE, call.loc)
        return self.time.start(track, call.op.shown, cycles, [issued], activity, call.loc, args)

    def finishes(self, group: Group, node: Node, engine: Engine, left: int, read: bool) -> None:
        if group not in self.groups:
            return
        unfinished = self.unfinished[group]
        if engine is Engine.PRODUCT:
            queue, what = unfinished.products, "until its products are done"
        else:
            queue = unfinished.reading if read else unfinished.writing
            what = f"until its stores have {'read' if read else 'written'}"
        until = [queue.popleft() for _ in range(len(queue) - left)]
        if not read and engine is Engine.COPY_OUT:
            unfinished.reading = deque(e for e in unfinished.reading if e not in until)
        self._wait(group, until, what, node)

    def _wait(self, group: Group, until: Sequence[Event], what: str, node: Node) -> Event:
        return self.time.wait(self.groups[group], until, what, node.loc)

    # -- synchronisation -----------------------------------------------------------------------

    def takes(self, group: Group, node: Acquire, barrier: Barrier, phase: int) -> None:
        if group not in self.groups:
            return
        stage = self.stages[barrier]
        what = f"until {stage.track.name} is {'free' if stage.side == 'fill' else 'full'}"
        event = self._wait(group, self.completed.get((barrier, phase), []), what, node)
        use = self._use(stage, phase + (stage.side == "fill"))
        (use.taken if stage.side == "fill" else use.drained).append(event)

    def passes(self, group: Group, call: Call, what: Signalled) -> None:
        if group not in self.groups:
            return
        if isinstance(what, Barrier):
            until = self.completed.get((what, what.phases - 1), [])
            reason = f"until a phase of {what.name} is complete"
        else:
            until = self.signals[_key(what)]
            reason = "until it is its turn" if isinstance(what, Turn) else f"until {what} is set"
        self._wait(group, until, reason, call)

    def arrives(self, group: Group, node: Node, what: Signalled) -> None:
        if group not in self.groups:
            return
        now = self.time.now(self.groups[group])
        if isinstance(what, Barrier):
            self.arrived[what].append(now)
        else:
            self.signals[_key(what)].append(now)

    def completes(self, barrier: Barrier) -> None:
        arrived = self.arrived.pop(barrier, [])
        if not arrived:
            return
        phase = barrier.phases - 1
        self.completed[barrier, phase] = arrived
        if (stage := self.stages.get(barrier)) is not None:
            use = self._use(stage, phase)
            (use.returned if stage.side == "fill" else use.landed).extend(arrived)

    def _use(self, stage: _Stage, phase: int) -> StageUse:
        if (stage.track, phase) not in self.uses:
            number = phase * stage.pipeline.stages + stage.index
            self.uses[stage.track, phase] = self.time.use(stage.track, f"turn {number}")
        return self.uses[stage.track, phase]


def _engines_of(kernel: Kernel) -> list[Engine]:
    """The engines that a kernel uses, in the order of their definition."""
    used = {call.op.effects.engine for call in calls(kernel.body)}
    return [e for e in Engine if e in used]


def _key(what: Turn | GlobalTile | SharedRegion) -> object:
    return what if isinstance(what, Turn) else str(what)


def _elements(call: Call) -> int:
    """The elements of the largest tile or vector in registers that a call reads or computes; 0 if there is none."""
    types = [v.type for v in (*operands(call.args), *call.results)]
    return max((prod(t.shape) for t in types if isinstance(t, RT | RV)), default=0)


def _types(call: Call) -> dict[str, str | int]:
    """The details of a call that its span shows."""
    return {"makes": ", ".join(str(r.type) for r in call.results)} if call.results else {}
