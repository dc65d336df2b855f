"""A launch and one of its blocks: its tasks, its rings of shared memory and its copies in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pykittens.emulate.barriers import Copy, Ring, shared_memory
from pykittens.emulate.memory import Array
from pykittens.emulate.regions import SharedMemory
from pykittens.emulate.schedule import Schedule
from pykittens.emulate.shared import shared_values
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.ir.nodes import Kernel, Node, Pipeline, is_multicast, takes


@dataclass
class Launch:
    """What the blocks of a launch have in common. `clusters` of them share the tasks.

    without: a wait, arrival, release or fence that the compiler placed and that is left out here, as a node and
    which of its parts; what then goes wrong shows what it is for.
    """

    kernel: Kernel
    tensors: Mapping[str, Array]
    extents: tuple[int, ...] = ()
    clusters: int = 0
    schedule: Schedule = field(default_factory=Schedule)
    watch: Watcher = NOBODY
    without: tuple[Node, str] | None = None

    def does(self, node: Node, part: str) -> bool:
        """Whether a part of a node is not left out."""
        return self.without is None or self.without[0] is not node or self.without[1] != part

    @cached_property
    def takers(self) -> dict[tuple[Pipeline, str], int]:
        """How many groups take stages of each pipeline on each side."""
        roles = self.kernel.roles
        return {
            (p, side): sum(r.groups for r in roles if takes(r.body, p, side))
            for p in self.kernel.pipelines
            for side in ("fill", "drain")
        }

    @cached_property
    def shared_rings(self) -> set[Pipeline]:
        """The pipelines whose stages the other blocks of a cluster write to."""
        return {p for p in self.kernel.pipelines if is_multicast(self.kernel, p)}


class BlockRun:
    """The `rank`-th block of the `index`-th cluster of a launch; `cluster` are the blocks of its own."""

    def __init__(self, launch: Launch, index: int, rank: int) -> None:
        kernel = launch.kernel
        self.launch, self.index, self.rank = launch, index, rank
        self.number = index * kernel.cluster + rank
        self.cluster: list[BlockRun] = [self]
        self.copies: list[Copy] = []
        self.shared = shared_values(kernel.shared, self.number, launch.watch)
        takers = launch.takers
        # A stage that the other blocks of a cluster write to is free when their consumers are done, too.
        self.shared_rings = launch.shared_rings
        memory = shared_memory(kernel.pipelines)
        self.rings = {
            p: Ring(
                p,
                takers[p, "fill"],
                takers[p, "drain"] * (kernel.cluster if p in self.shared_rings else 1),
                memory[p],
                self.number,
                launch.watch,
            )
            for p in kernel.pipelines
        }
        if any(p.reuse for p in kernel.pipelines):
            _find_overlaps(
                tile.memory
                for ring in self.rings.values()
                for stage in ring.stages
                for tile in stage.values()
                if tile.memory is not None
            )

    def end(self) -> None:
        """Give its memory back, which whoever remembers what the block did would keep."""
        self.rings.clear()
        self.shared.clear()
        self.copies.clear()


def _find_overlaps(tiles: Iterable[SharedMemory]) -> None:
    """Tell tiles which others have bytes of theirs."""
    known = list(tiles)
    for a in known:
        a.overlapping = [
            b
            for b in known
            if b is not a
            and a.arena == b.arena
            and a.start < b.start + b.type.bytes
            and b.start < a.start + a.type.bytes
        ]
