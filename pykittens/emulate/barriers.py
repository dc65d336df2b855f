"""Barriers: those of a pipeline's stages and those made by hand, and the copies that complete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.emulate.memory import Array, SharedRegion, poison
from pykittens.errors import LanguageError
from pykittens.ir.nodes import Pipeline
from pykittens.types.tiles import ST


@dataclass
class Barrier:
    """Counts arrivals; a phase is complete when all have arrived and every byte it expects has landed.

    `bytes` may be negative for a while: another block's share can land before this block asks for it.
    """

    expected: int
    name: str = ""
    arrived: int = 0
    bytes: int = 0
    phases: int = 0

    def arrive(self) -> None:
        if self.arrived == self.expected:
            raise LanguageError(
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

    def missing(self, side: str, turn: int) -> str:
        """What the `turn`-th fill or drain waits for."""
        stage = turn % self.pipeline.stages
        barrier, what = (self.empty, "free") if side == "fill" else (self.full, "full")
        counts = barrier[stage]
        return f"stage {stage} to be {what}, {counts.arrived} of {counts.expected} arrived"

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
    bytes: int

    def finish(self) -> None:
        self.land()
        self.barrier.land(self.bytes)
