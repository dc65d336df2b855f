"""The emitter with what CUDA adds: tensor maps, rings of barriers, and which threads run a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pykittens.ir.nodes import Acquire, Call, GiveBack, Kernel, Pipeline, walk
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, Value
from pykittens.targets.cuda.stages import stage_copies
from pykittens.targets.cuda.warp_assignment import Team
from pykittens.targets.emitter import Emitter
from pykittens.targets.source import MapSlot
from pykittens.targets.target import Target

# A ring's name, and what goes by it: its barriers and the places of a role in it.
RING_SUFFIXES = ("", "_full", "_empty", "_fill", "_drain", "_back", "_held")
# Variables that the lowerings of products by single warps declare.
PARTS = ("a_part", "a_row", "a_turn", "b_part", "b_row", "b_turn", "k_step", "m_step", "n_step")


# What programs for debugging declare.
DEBUG = ("debug", "Debug", "report", "Report", "patience", "Standing", "stopped")


class CudaEmitter(Emitter):
    """Knows the team whose role is being written."""

    def __init__(self, kernel: Kernel, target: Target, functions: str, debug: bool = False) -> None:
        super().__init__(kernel, target, functions, debug)
        self.names.taken.update(PARTS, DEBUG if debug else ())
        # The names under which the stages, barriers and turns of pipelines go.
        self.rings = {p: self.names.unique(p.name, RING_SUFFIXES) for p in kernel.pipelines}
        self.full: dict[Acquire, str] = {}
        self.phases: dict[Value, str] = {}  # of the turns of the role: which phase comes next
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

    def stage_name(self, acquire: Acquire) -> str:
        """The name of a stage that has been taken: that of its first tile."""
        return self.names(next(iter(acquire.tiles.values())))

    def full_barrier(self, acquire: Acquire) -> str:
        """The variable with the address of the barrier of a stage that is being filled."""
        if acquire not in self.full:
            self.full[acquire] = self.names.unique(f"{self.stage_name(acquire)}_full")
        return self.full[acquire]

    def arms_each_copy(self, acquire: Acquire) -> bool:
        """Whether the bytes of a stage cannot be counted beforehand, so each copy expects its own."""
        return self.team_lanes != 1 or not stage_copies(self.kernel, acquire, self.target)[1]

    def counts_held(self, pipeline: Pipeline) -> bool:
        """Whether the role must count the stages it holds, as it gives back a number that varies."""
        return any(
            isinstance(n, GiveBack) and n.pipeline is pipeline and not n.exact
            for n in walk(self.role.body)
        )

    def started(self, engine: Engine) -> bool:
        """Whether an engine carries on work of the role."""
        return any(
            isinstance(n, Call)
            and n.op.effects.engine is engine
            and self.target.carries(self.role, n)
            for n in walk(self.role.body)
        )

    def tensor_map(self, slot: MapSlot, tensor: Global) -> str:
        """The parameter that holds the map of a tensor's boxes."""
        if slot not in self.maps:
            self.maps[slot] = self.names.unique(f"{tensor.name}_map")
        return self.maps[slot]
