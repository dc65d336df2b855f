"""An emulated launch and one of its blocks: tasks, rings of shared memory, copies in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from pykittens.emulate.barriers import Barrier, Copy, StageRing, shared_memory
from pykittens.emulate.memory import Array
from pykittens.emulate.regions import SharedMemory
from pykittens.emulate.schedule import SeededSchedule
from pykittens.emulate.shared import items_of, shared_values
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.ir.nodes import Grid, Kernel, Order, walk
from pykittens.ir.orders import ROW_MAJOR, decode, positions
from pykittens.ir.peers import Peers, groups_of_peers, writers
from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.structure import fetches_written


@dataclass
class LaunchRun:
    """The state that the blocks of a launch share.

    extents, order: those of the tasks, or of the blocks of a grid. clusters: the number that share the tasks.
    """

    kernel: Kernel
    tensors: Mapping[str, Array]
    extents: tuple[int, ...] = ()
    order: Order = ROW_MAJOR
    clusters: int = 0
    schedule: SeededSchedule = field(default_factory=SeededSchedule)
    watch: Watcher = NOBODY

    @cached_property
    def takers(self) -> dict[tuple[Pipeline, str], int]:
        """The number of groups that take stages of each pipeline on each side."""
        found = {(p, side): 0 for p in self.kernel.pipelines for side in ("fill", "drain")}
        for role in self.kernel.roles:
            acquires = (n for n in walk(role.body) if isinstance(n, Acquire))
            for taken in {(n.pipeline, n.side) for n in acquires}:
                found[taken] += role.groups
        return found

    def positions_of(self, block: int) -> Iterable[int]:
        """The positions in the order of the tasks that a block, or a cluster, takes, ascending."""
        if self._tickets is None:
            return positions(self.order, block, self.clusters, prod(self.extents))
        return self._tickets[block]

    @cached_property
    def _tickets(self) -> list[list[int]] | None:
        """What each block takes if they take tasks as they get free, which may be any of them."""
        if self.kernel.tickets is None:
            return None
        taken: list[list[int]] = [[] for _ in range(self.clusters)]
        for number in range(prod(self.extents)):
            self.schedule.pick(taken).append(number)
        return taken

    @cached_property
    def fetches_written(self) -> bool:
        """Whether fences cover tensors."""
        return fetches_written(self.kernel)

    @cached_property
    def peers(self) -> dict[Pipeline, list[Peers]]:
        """The groups of blocks of a cluster that share copies to the stages of each pipeline."""
        return {p: groups_of_peers(self.kernel, p) for p in self.kernel.pipelines}


class BlockRun:
    """The `rank`-th block of the `index`-th cluster of a launch; `cluster` has all blocks of the cluster."""

    def __init__(self, launch: LaunchRun, index: int, rank: int) -> None:
        kernel = launch.kernel
        self.launch, self.index, self.rank = launch, index, rank
        self.number = index * kernel.cluster + rank
        self.cluster: list[BlockRun] = [self]
        self.copies: list[Copy] = []
        self.shared = shared_values(kernel.shared, self.number, launch.watch)
        takers = launch.takers
        memory = shared_memory(kernel.pipelines)
        self.rings = {}
        for p, groups in launch.peers.items():
            counts, at = (takers[p, "fill"], takers[p, "drain"]), (memory[p], self.number)
            self.rings[p] = StageRing(p, *counts, *at, launch.watch, writers(groups, rank))
        if any(p.reuse for p in kernel.pipelines):
            stages = (stage for ring in self.rings.values() for stage in ring.stages)
            tiles = (tile.memory for stage in stages for tile in stage.values())
            _find_overlaps([memory for memory in tiles if memory is not None])

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The coordinates of the block in its grid; the blocks of a cluster are neighbouring points."""
        assert isinstance(self.launch.kernel.launch, Grid), "a kernel with tasks has no grid"
        return decode(self.launch.order, self.launch.extents, self.number)

    @property
    def share(self) -> tuple[int, int]:
        """The number of the block, and of the blocks that share the tasks."""
        return self.number, self.launch.clusters * self.launch.kernel.cluster

    @property
    def name(self) -> str:
        """What errors call the block: its coordinates in a grid of several axes, otherwise its number."""
        grid = self.launch.kernel.launch
        if isinstance(grid, Grid) and len(grid.dims) > 1:
            return f"block ({', '.join(map(str, self.coordinates))})"
        return f"block {self.number}"

    @property
    def barriers(self) -> list[Barrier]:
        """The barriers of its stages, and its semaphores."""
        found = [b for ring in self.rings.values() for b in (*ring.full, *ring.empty)]
        shared = (x for value in self.shared.values() for x in items_of(value))
        return found + [x for x in shared if isinstance(x, Barrier)]

    def end(self) -> None:
        """Free the memory of the block, which watchers that keep the block would hold."""
        self.rings.clear()
        self.shared.clear()
        self.copies.clear()


def _find_overlaps(tiles: Sequence[SharedMemory]) -> None:
    """Set for each tile the others that have bytes in common with it."""
    for a in tiles:
        a.overlapping = [
            b
            for b in tiles
            if b is not a
            and a.arena == b.arena
            and a.start < b.start + b.type.bytes
            and b.start < a.start + a.type.bytes
        ]
