"""Barriers of pipeline stages and of semaphores, and the copies that complete them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pykittens.emulate.memory import Array, GlobalTile, poison
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.waiting import faults_at
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import BarrierError, Loc
from pykittens.ir.nodes import Call, Pipeline, Side


@dataclass(eq=False)
class Barrier:
    """Counts arrivals; a phase is complete when all have arrived and every byte it expects has landed.

    `bytes` may be negative for a while: another block's share can land before this block asks for it.
    """

    expected: int
    name: str = ""
    watch: Watcher = NOBODY
    loc: Loc | None = None
    arrived: int = 0
    bytes: int = 0
    phases: int = 0

    def arrive(self) -> None:
        if self.arrived == self.expected:
            raise BarrierError(
                f"{self.name}: an arrival more than the {self.expected} that complete a phase",
                help="the phase waits for bytes that have not come; wait for it before the next arrival",
            )
        self.arrived += 1
        self.settle()

    def expect(self, bytes: int) -> None:
        """Arrive, and ask for bytes."""
        self.bytes += bytes
        self.arrive()

    def land(self, bytes: int) -> None:
        self.bytes -= bytes
        self.settle()

    def settle(self) -> None:
        if self.arrived == self.expected and self.bytes == 0:
            self.arrived = 0
            self.phases += 1
            self.watch.completes(self)

    def missing(self, parity: int) -> str | None:
        """What is still missing of the phase of a parity; None if that is the one before, which is complete."""
        if self.phases % 2 != parity:
            return None
        bytes = f", {self.bytes} bytes to come" if self.bytes else ""
        return f"phase {parity} of {self.name}, {self.arrived} of {self.expected} arrived{bytes}"


def shared_memory(pipelines: Sequence[Pipeline]) -> dict[Pipeline, Array]:
    """The bytes of each pipeline; those that take over another's memory have the same."""
    owners: dict[Pipeline, Pipeline] = {}
    sizes: dict[Pipeline, int] = {}
    for p in pipelines:
        owner = owners[p] = owners[p.reuse] if p.reuse is not None else p
        sizes[owner] = max(sizes.get(owner, 0), p.stages * p.stage_bytes)
    memory = {owner: np.zeros(size, np.uint8) for owner, size in sizes.items()}
    return {p: memory[owner] for p, owner in owners.items()}


class Ring:
    """A pipeline in one block: its stages and their barriers. `memory` is that of another where it takes it over."""

    def __init__(
        self,
        pipeline: Pipeline,
        fillers: int,
        drainers: int,
        memory: Array,
        block: int = 0,
        watch: Watcher = NOBODY,
    ) -> None:
        self.pipeline, self.memory, self.watch, self.block = pipeline, memory, watch, block
        self.taken_over = False
        stages, name = range(pipeline.stages), pipeline.name
        self.stages = [self._tiles(stage) for stage in stages]
        self.full = [
            Barrier(fillers, f"stage {i} of `{name}` to be full", watch, pipeline.loc)
            for i in stages
        ]
        self.empty = [
            Barrier(drainers, f"stage {i} of `{name}` to be free", watch, pipeline.loc)
            for i in stages
        ]

    def _tiles(self, stage: int) -> dict[str, SharedRegion]:
        made = {}
        for field, type_ in self.pipeline.tiles.items():
            start = stage * self.pipeline.stage_bytes + self.pipeline.tile_offset(field)
            array = self.memory[start : start + type_.bytes].view(type_.dtype.numpy)
            array.fill(poison(type_.dtype))
            name = f"{field} of " if field else ""
            memory = SharedMemory(
                f"{name}stage {stage} of `{self.pipeline.name}`",
                type_,
                self.block,
                self.memory.ctypes.data,
                start,
            )
            shaped = array.reshape(type_.rows, type_.cols)
            made[field] = SharedRegion(shaped, memory, watch=self.watch)
        return made

    def barrier(self, side: Side, turn: int) -> Barrier:
        """What the `turn`-th fill or drain waits for."""
        return (self.empty if side == "fill" else self.full)[turn % self.pipeline.stages]

    def phase(self, side: Side, turn: int) -> int:
        """The phase of it that must be complete, -1 for none."""
        return turn // self.pipeline.stages - (side == "fill")

    def ready(self, side: Side, turn: int) -> bool:
        """Whether the `turn`-th fill or drain may start."""
        return self.barrier(side, turn).phases > self.phase(side, turn)

    def missing(self, side: Side, turn: int) -> str:
        """What the `turn`-th fill or drain waits for."""
        stage, what = turn % self.pipeline.stages, "free" if side == "fill" else "full"
        counts = self.barrier(side, turn)
        return f"stage {stage} to be {what}, {counts.arrived} of {counts.expected} arrived"

    def tiles(self, turn: int) -> dict[str, SharedRegion]:
        """The tiles of the stage of the `turn`-th fill or drain."""
        return self.stages[turn % self.pipeline.stages]

    def take_over(self, rings: Iterable[Ring]) -> None:
        """It is filled: what it holds is its own, and no longer that of those whose memory it has, too."""
        for ring in rings:
            if ring.memory is self.memory:
                ring.taken_over = ring is not self

    def release(self, turn: int) -> None:
        """One drainer gives the stage of the `turn`-th drain back; after the last it holds poison."""
        index = turn % self.pipeline.stages
        laps = self.empty[index].phases
        self.empty[index].arrive()
        if self.empty[index].phases > laps:
            tiles = list(self.stages[index].values())
            self.watch.empties(tiles)
            if self.taken_over:
                return
            for tile, type_ in zip(tiles, self.pipeline.tiles.values(), strict=True):
                tile.array.fill(poison(type_.dtype))


@dataclass(eq=False)
class Copy:
    """A copy under way: of a tile of `rows` rows, those from `first` on that `dst` has; the barrier it completes."""

    call: Call
    dst: SharedRegion
    src: GlobalTile
    barrier: Barrier
    rows: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        self.rows = self.rows or self.dst.rows

    @property
    def bytes(self) -> int:
        return int(self.dst.array.nbytes)

    def finish(self) -> None:
        """Land: the bytes come, and the barrier counts them."""
        self.dst.watch.lands(self)
        with faults_at(self.call):
            tile = self.src.read(self.rows, self.dst.cols, 0)
        self.dst.write(tile[self.first : self.first + self.dst.rows])
        self.barrier.land(self.bytes)
