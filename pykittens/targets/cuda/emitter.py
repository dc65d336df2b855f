"""The emitter with what Hopper adds: tensor maps, rings of barriers, and which threads run a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pykittens.ir.nodes import Acquire, Call, GiveBack, Kernel, Pipeline, walk
from pykittens.ir.op import Engine
from pykittens.ir.values import Global
from pykittens.targets.cuda.sm_90 import Team, is_bulk, stage_copies
from pykittens.targets.emitter import Emitter
from pykittens.targets.source import MapSlot
from pykittens.targets.target import Target

# A ring's name, and what goes by it: its barriers and the places of a role in it.
RING_SUFFIXES = ("", "_full", "_empty", "_fill", "_drain", "_back", "_held")


class HopperEmitter(Emitter):
    """Knows the team whose role is being written."""

    def __init__(self, kernel: Kernel, target: Target, header: str) -> None:
        super().__init__(kernel, target, header)
        self.rings: dict[Pipeline, str] = {}
        for pipeline in kernel.pipelines:
            self.rings[pipeline] = self.unique_with(pipeline.name, RING_SUFFIXES)
        self.full: dict[Acquire, str] = {}
        self.team: Team
        self.team_lanes = 32

    def begin_team(self, team: Team) -> None:
        """Start to write the role of a team."""
        self.begin_role(team.role)
        self.team, self.team_lanes = team, team.lanes
        self.line_now = 0

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """What one thread of the group does for all of it."""
        if self.team_lanes == 1:
            yield
            return
        with self.braces("if (lane == 0) {" if self.role.warps == 1 else "if (thread == 0) {"):
            yield

    def ring_name(self, pipeline: Pipeline) -> str:
        """The name under which a pipeline's stages, barriers and turns go."""
        return self.rings[pipeline]

    def stage_name(self, acquire: Acquire) -> str:
        """The name of a stage that has been taken: that of its first tile."""
        return self.names(next(iter(acquire.tiles.values())))

    def full_barrier(self, acquire: Acquire) -> str:
        """The variable with the address of the barrier of a stage that is being filled."""
        if acquire not in self.full:
            self.full[acquire] = self.unique(f"{self.stage_name(acquire)}_full")
        return self.full[acquire]

    def arms_each_copy(self, acquire: Acquire) -> bool:
        """Whether the bytes of a stage cannot be counted beforehand, so each copy expects its own."""
        return self.team_lanes != 1 or not stage_copies(self.kernel, acquire)[1]

    def counts_held(self, pipeline: Pipeline) -> bool:
        """Whether the role must count the stages it holds, as it gives back a number that varies."""
        return any(
            isinstance(n, GiveBack) and n.pipeline is pipeline and not n.exact
            for n in walk(self.role.body)
        )

    def stores_out(self, bulk: bool) -> bool:
        """Whether the role stores stages to tensors, by the copy engine (bulk) or by its lanes."""
        return any(
            isinstance(n, Call) and n.op.effects.engine is Engine.COPY_OUT and is_bulk(n) is bulk
            for n in walk(self.role.body)
        )

    def tensor_map(self, slot: MapSlot, tensor: Global) -> str:
        """The parameter that holds the map of a tensor's boxes."""
        if slot not in self.maps:
            self.maps[slot] = self.unique(f"{tensor.name}_map")
        return self.maps[slot]
