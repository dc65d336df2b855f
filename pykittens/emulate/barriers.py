"""Barriers of pipeline stages and of semaphores, and the copies that complete them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pykittens.emulate.memory import Array, GlobalTile, poison
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.waiting import faults_at
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import AccessError, BarrierError, Loc
from pykittens.ir.nodes import Call
from pykittens.ir.stages import Pipeline, Side


@dataclass(eq=False)
class Barrier:
    """Counts arrivals; a phase is complete after all arrivals, when every expected byte has landed.

    `bytes` may be negative for a while: another block's share can land before this block expects it.
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
                f"{self.name}: one arrival more than the {self.expected} that complete a phase",
                help="the phase waits for bytes that have not landed; wait for the phase before the next arrival",
            )
        self.arrived += 1
        self.settle()

    def expect(self, bytes: int) -> None:
        """Arrive, and expect bytes."""
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
        """What the phase of a parity still lacks; None if this parity is that of the last complete phase."""
        if self.phases % 2 != parity:
            return None
        return f"phase {parity} of {self.name}, {self.progress}"

    @property
    def progress(self) -> str:
        """The arrivals and bytes of the open phase."""
        beyond = f", {-self.bytes} bytes more than expected" if self.bytes else ""
        bytes = f", {self.bytes} bytes to come" if self.bytes > 0 else beyond
        return f"{self.arrived} of {self.expected} arrived{bytes}"


def shared_memory(pipelines: Sequence[Pipeline]) -> dict[Pipeline, Array]:
    """The bytes of each pipeline; a pipeline that reuses another's memory has the same array."""
    owners: dict[Pipeline, Pipeline] = {}
    sizes: dict[Pipeline, int] = {}
    for p in pipelines:
        owner = owners[p] = owners[p.reuse] if p.reuse is not None else p
        sizes[owner] = max(sizes.get(owner, 0), p.stages * p.stage_bytes)
    memory = {owner: np.zeros(size, np.uint8) for owner, size in sizes.items()}
    return {p: memory[owner] for p, owner in owners.items()}


class StageRing:
    """A pipeline in one block: its stages and their barriers. Pipelines that share memory have one `memory`.

    writers: the numbers in the cluster of the blocks that write to its stages.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        fillers: int,
        drainers: int,
        memory: Array,
        block: int = 0,
        watch: Watcher = NOBODY,
        writers: Sequence[int] = (0,),
    ) -> None:
        self.pipeline, self.memory, self.watch, self.block = pipeline, memory, watch, block
        self.drainers, self.writers, self.released = drainers, writers, [0] * pipeline.stages
        self.taken_over = False
        # The names of the tiles that each stage was filled as.
        self.views: dict[int, tuple[str, ...]] = {}
        stages, name = range(pipeline.stages), pipeline.name
        self.stages = [self._tiles(stage) for stage in stages]
        self.full, self.empty = (
            [
                Barrier(n, f"stage {i} of `{name}` to be {state}", watch, pipeline.loc)
                for i in stages
            ]
            for n, state in ((fillers, "full"), (drainers * len(writers), "free"))
        )

    def _tiles(self, stage: int) -> dict[str, SharedRegion]:
        regions = {}
        for field, type_ in self.pipeline.tiles.items():
            start = stage * self.pipeline.stage_bytes + self.pipeline.tile_offset(field)
            array = self.memory[start : start + type_.bytes].view(type_.dtype.numpy)
            array.fill(poison(type_.dtype))
            of = field.partition("@")[0]
            name = f"{f'{of} of ' if of else ''}stage {stage} of `{self.pipeline.name}`"
            memory = SharedMemory(name, type_, self.block, self.memory.ctypes.data, start)
            shaped = array.reshape(type_.rows, type_.cols)
            regions[field] = SharedRegion(shaped, memory, watch=self.watch)
        return regions

    def barrier(self, side: Side, number: int) -> Barrier:
        """The barrier that the `number`-th fill or drain waits on."""
        return (self.empty if side == "fill" else self.full)[number % self.pipeline.stages]

    def phase(self, side: Side, number: int) -> int:
        """The phase of this barrier that must be complete before the `number`-th fill or drain, -1 for none."""
        return number // self.pipeline.stages - (side == "fill")

    def missing(self, side: Side, number: int) -> str:
        """What the `number`-th fill or drain waits for."""
        stage, state = number % self.pipeline.stages, "free" if side == "fill" else "full"
        return f"stage {stage} to be {state}, {self.barrier(side, number).progress}"

    def tiles(self, number: int) -> dict[str, SharedRegion]:
        """The tiles of the stage of the `number`-th fill or drain."""
        return self.stages[number % self.pipeline.stages]

    def fill_as(self, number: int, names: tuple[str, ...]) -> None:
        """The `number`-th fill is one of these tiles."""
        self.views[number % self.pipeline.stages] = names

    def check_view(self, number: int, names: tuple[str, ...]) -> None:
        """Raise if the `number`-th drain is of other tiles than the stage was filled as, if it was."""
        stage = number % self.pipeline.stages
        if (filled := self.views.get(stage, names)) != names:
            types = (
                ", ".join(str(self.pipeline.tiles[n]) for n in some) for some in (filled, names)
            )
            raise AccessError(
                "stage {} of `{}` was filled as {} and is drained as {}".format(
                    stage, self.pipeline.name, *types
                ),
                help="the views of a ring share its memory, in which their tiles are laid out differently",
            )

    def take_over(self, rings: Iterable[StageRing]) -> None:
        """This ring is filled: the shared memory holds its data, not those of other rings."""
        for ring in rings:
            if ring.memory is self.memory:
                ring.taken_over = ring is not self

    def release(self, number: int) -> None:
        """A drainer of this block is done with the `number`-th drain; after the last one the stage holds poison."""
        index = number % self.pipeline.stages
        self.released[index] += 1
        if self.released[index] % self.drainers == 0:
            tiles = list(self.stages[index].values())
            self.watch.empties(tiles)
            if self.taken_over:
                return
            for tile, type_ in zip(tiles, self.pipeline.tiles.values(), strict=True):
                tile.array.fill(poison(type_.dtype))


@dataclass(frozen=True, eq=False)
class Sent:
    """A register tile as it was when a block sent it."""

    value: Array
    sender: str

    def view(self, rows: int, cols: int, fill: float) -> Array:
        return self.value

    def __str__(self) -> str:
        return f"a tile of {self.sender}"


@dataclass(eq=False)
class Copy:
    """A copy in flight to `dst`: the rows from `first` on of a tile of `rows` rows; it completes `barrier`."""

    call: Call
    dst: SharedRegion
    src: GlobalTile | Sent
    barrier: Barrier
    rows: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        self.rows = self.rows or self.dst.rows

    @property
    def bytes(self) -> int:
        return int(self.dst.array.nbytes)

    def finish(self) -> None:
        """Land: write the bytes, and let the barrier count them."""
        self.dst.watch.lands(self)
        with faults_at(self.call):
            tile = self.src.view(self.rows, self.dst.cols, 0)
        self.dst.write(tile[self.first : self.first + self.dst.rows])
        self.barrier.land(self.bytes)
