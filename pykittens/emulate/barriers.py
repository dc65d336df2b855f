"""The barriers of a pipeline's stages, and the copies that complete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.emulate.memory import Array, SharedRegion, poison
from pykittens.ir.nodes import Pipeline
from pykittens.types.tiles import ST


@dataclass
class Barrier:
    """Counts arrivals; a phase is complete when all have arrived and every copy it expects has landed.

    `copies` may be negative for a while: another block's share can land before this block asks for it.
    """

    expected: int
    arrived: int = 0
    copies: int = 0
    phases: int = 0

    def arrive(self) -> None:
        self.arrived += 1
        self.settle()

    def land(self) -> None:
        self.copies -= 1
        self.settle()

    def settle(self) -> None:
        if self.arrived == self.expected and self.copies == 0:
            self.arrived = 0
            self.phases += 1


def shared_memory(pipelines: Sequence[Pipeline]) -> dict[Pipeline, Array]:
    """The bytes of each pipeline; those that take over another's memory have the same."""
    owners: dict[Pipeline, Pipeline] = {}
    sizes: dict[Pipeline, int] = {}
    for p in pipelines:
        owner = owners[p] = owners[p.reuse] if p.reuse is not None else p
        sizes[owner] = max(sizes.get(owner, 0), p.stages * p.stage_bytes)
    memory = {owner: np.zeros(size, np.uint8) for owner, size in sizes.items()}
    return {p: memory[owner] for p, owner in owners.items()}


@dataclass
class Ring:
    """A pipeline in one block: its stages and their barriers."""

    pipeline: Pipeline
    fillers: int
    drainers: int
    memory: Array  # bytes, those of another ring where this one takes over its memory
    stages: list[dict[str, Array]] = field(init=False)
    full: list[Barrier] = field(init=False)
    empty: list[Barrier] = field(init=False)

    def __post_init__(self) -> None:
        n = self.pipeline.stages
        self.stages = [
            {name: self._array(stage, name, type_) for name, type_ in self.pipeline.tiles.items()}
            for stage in range(n)
        ]
        self.full = [Barrier(self.fillers) for _ in range(n)]
        self.empty = [Barrier(self.drainers) for _ in range(n)]

    def _array(self, stage: int, name: str, type_: ST) -> Array:
        start = stage * self.pipeline.stage_bytes + self.pipeline.tile_offset(name)
        array = self.memory[start : start + type_.bytes].view(type_.dtype.numpy)
        array.fill(poison(type_.dtype))
        return array.reshape(type_.rows, type_.cols)

    def ready(self, side: str, turn: int) -> bool:
        """Whether the `turn`-th fill or drain may start."""
        stage, lap = turn % self.pipeline.stages, turn // self.pipeline.stages
        if side == "fill":
            return self.empty[stage].phases >= lap
        return self.full[stage].phases > lap

    def tiles(self, turn: int) -> dict[str, SharedRegion]:
        """The tiles of the stage of the `turn`-th fill or drain."""
        return {
            name: SharedRegion(array)
            for name, array in self.stages[turn % self.pipeline.stages].items()
        }

    def release(self, turn: int) -> None:
        """One drainer gives the stage of the `turn`-th drain back; after the last it holds poison."""
        index = turn % self.pipeline.stages
        laps = self.empty[index].phases
        self.empty[index].arrive()
        if self.empty[index].phases > laps:
            for name, type_ in self.pipeline.tiles.items():
                self.stages[index][name].fill(poison(type_.dtype))


@dataclass
class Copy:
    """A copy under way: what to do when it lands, and the barrier it completes."""

    land: Callable[[], Any]
    barrier: Barrier

    def finish(self) -> None:
        self.land()
        self.barrier.land()
