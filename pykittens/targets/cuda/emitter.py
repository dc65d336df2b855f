"""The emitter for CUDA: tensor maps, rings of barriers, and the threads that run a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from pykittens.ir.evaluate import definition
from pykittens.ir.nodes import Block, Call, For, ForTasks, If, Kernel, Loop, Node, all_blocks, walk
from pykittens.ir.op import Engine
from pykittens.ir.passes.together import runs
from pykittens.ir.stages import Acquire, GiveBack, Pipeline
from pykittens.ir.values import Global, Value
from pykittens.targets.clock_reads import instruction, timed
from pykittens.targets.cuda.engines import LOADED, calls, ends_of_loads, shared_with_engines
from pykittens.targets.cuda.stages import loads_together, stage_copies
from pykittens.targets.cuda.tickets import looping, next_task
from pykittens.targets.cuda.turns import Position, Use, position_of
from pykittens.targets.cuda.warp_assignment import Team
from pykittens.targets.emitter import Emitter
from pykittens.targets.source import ClockRead, MapSlot
from pykittens.targets.target import Target

TICKETS = ("tickets", "Tickets")  # of programs whose blocks take tasks by tickets
# Suffixes of a ring's name: its barriers, and the positions and counter of a role in it.
RING_SUFFIXES = ("", "_full", "_empty", "_fill", "_drain", "_back", "_held")
# Variables of the lowering of products by single warps.
PARTS = ("a_part", "a_row", "a_turn", "b_part", "b_row", "b_turn", "k_step", "m_step", "n_step")

# Functions of atomics, which are written to the programs that call them.
IN_SHARED = "_shared"  # the end of their names for shared memory
ATOMICS = tuple(f"atomic_{n}" for n in "load add max min and or xor exchange cas".split())
# The function of prefetches, which is written to the programs that call it.
PREFETCH = "prefetch_tile"

# Names of debug.cuh and of debug programs.
DEBUG = ("debug", "Debug", "report", "Report", "patience", "Standing", "stopped")
# Names of clock.cuh and of programs with clock reads.
CLOCKS = ("clocks", "Clocks", "clock_records", "most_records", "most_blocks")


class CudaEmitter(Emitter):
    """Writes the role of one team at a time."""

    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        functions: str,
        debug: bool = False,
        clocks: bool = False,
    ) -> None:
        super().__init__(kernel, target, functions, debug)
        self.names.taken.update(
            PARTS, ATOMICS, (n + IN_SHARED for n in ATOMICS), [PREFETCH], DEBUG if debug else ()
        )
        self.names.taken.update(() if kernel.tickets is None else TICKETS)
        self.clocks = clocks  # whether the roles read the clock
        self.reads: list[ClockRead] = []  # the places where they do
        self.names.taken.update(CLOCKS if clocks else ())
        self.rings = {p: self.names.unique(p.name, RING_SUFFIXES) for p in kernel.pipelines}
        self.full: dict[Acquire, str] = {}
        # The variable with each position of the role in a ring, and the nodes after which these variables step.
        self.turns: dict[Position, str] = {}
        self.ends: set[Node] = set()
        self.tickets: int | None = None  # the offset in shared memory of the tasks to come
        self.phases: dict[Value, str] = {}  # the variable with the next phase of the role's turns
        self.of_warp: dict[Value, str] = {}  # the numbers of kinds, as one lane of a warp has them
        self.place = ""  # the variable with the place in the queue of the instruction to come
        # Shared memory that lanes of the role write and engines access.
        self.fenced: set[object] = set()
        # The nodes of the role before which what its lanes load from shared memory must have come.
        self.ends_of_loads: set[Node] = set()
        # Loads that are written together, by the first of them.
        self.together: dict[Call, list[Call]] = {}
        # Copies by lanes whose loads are in flight together, with the last of them; the variables with their pieces.
        self.in_flight: dict[Call, Call] = {}
        self.pieces: list[str] = []
        # The nodes of the role before which it waits until earlier launches have ended.
        self.waits_before: set[Node] = set()
        self.team: Team
        self.team_lanes = 32

    def begin_team(self, team: Team) -> None:
        """Start to write the role of a team."""
        self.begin_role(team.role)
        self.team, self.team_lanes = team, team.lanes
        # The checks of a debug program take registers, too.
        blocks = [] if self.debug else all_blocks(team.role.body)
        found = (run for block in blocks for run in loads_together(team, block, self.target))
        self.in_flight = {call: run[-1] for run in found for call in run}
        shared = shared_with_engines(self.kernel, team.role, self.target)
        self.fenced = shared.stored
        self.ends_of_loads = ends_of_loads(team.role, shared.loaded, self.target)
        self.line_now = 0

    def node(self, node: Node) -> None:
        if node in self.waits_before:
            self.line("earlier_launches_wait();")
        if node in self.ends_of_loads:
            self.at(node.loc)
            self.line(f"fence_async();  // {LOADED}")
        if not self.clocks:
            super().node(node)
            return
        with timed(self, node):
            super().node(node)

    def block(self, block: Block) -> None:
        self.together |= {run[0]: run for run in runs(block, self.registers)}
        if not block.kind:
            super().block(block)
            return
        self.instruction = block.kind, self.place
        with instruction(self, block.kind) if self.clocks else nullcontext():
            super().block(block)
        self.instruction = None

    def condition(self, node: If) -> str:
        """The lanes of a warp take the branch of an instruction together: the compiler then knows it, too.

        Otherwise it may make products of warpgroups wait for one another. The number of the kind is taken from one lane
        before the first branch.
        """
        found, test = super().condition(node), definition(node.condition)
        if not node.then.kind or not self.role.is_warpgroup or test is None:
            return found
        word, number = test.args.values()
        if word not in self.of_warp:
            name = self.of_warp[word] = self.names.unique(f"{self.scalar(word)}_of_warp")
            self.line(f"const int {name} = __shfl_sync(~0u, {self.scalar(word)}, 0);")
        return f"{self.of_warp[word]} == {number}"

    def loop(self, node: Loop) -> None:
        if self.instruction is None:
            match node:
                case For() if self.debug:
                    self.place = self.names(node.index)
                case ForTasks() if self.debug or self.clocks:
                    self.place = self.names(node.index[0])
        super().loop(node)

    def loop_head(self, node: Loop) -> str:
        counter = self.kernel.tickets
        if not isinstance(node, ForTasks) or counter is None or self.tickets is None:
            return super().loop_head(node)
        leads = self.team.first_warp == looping(self.kernel, self.target)[0].first_warp
        count = " * ".join(self.task_extents(node.tasks))
        following = next_task(
            self.team, leads, f"smem + {self.tickets}", self.pointer(counter), count
        )
        self.line("Tickets tickets;")
        return f"NO_UNROLL for (int task; (task = {following}) < {count};)"

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """A block that one thread of the group runs."""
        if self.team_lanes == 1:
            yield
            return
        with self.braces(f"if ({self.first_thread}) {{"):
            yield

    @property
    def first_thread(self) -> str:
        """The condition for the first thread of a group."""
        return "lane == 0" if self.team.copy_threads == 32 else "thread == 0"

    def stage_name(self, acquire: Acquire) -> str:
        """The name of an acquired stage: the name of its first tile."""
        return self.names(next(iter(acquire.tiles.values())))

    def step(self, use: Use) -> None:
        """Go on to the next stage, if no other position in a ring has the same variable and is used after this."""
        if use in self.ends:
            self.line(f"{self.turns[position_of(use)]}.next();")

    def full_barrier(self, acquire: Acquire) -> str:
        """The variable with the address of the full barrier of a stage."""
        if acquire not in self.full:
            self.full[acquire] = self.names.unique(f"{self.stage_name(acquire)}_full")
        return self.full[acquire]

    def arms_each_copy(self, acquire: Acquire) -> bool:
        """Whether each copy adds its bytes to the barrier of a stage, because they cannot be counted in advance."""
        return self.team_lanes != 1 or not stage_copies(self.kernel, acquire, self.target)[1]

    def counts_held(self, pipeline: Pipeline) -> bool:
        """Whether the role counts the stages it holds, because the number that it gives back varies."""
        return any(
            isinstance(n, GiveBack) and n.pipeline is pipeline and not n.exact
            for n in walk(self.role.body)
        )

    def started(self, engine: Engine) -> bool:
        """Whether an engine does work of the role."""
        return any(self.target.carries(self.role, c) for c in calls(self.role, engine))

    def tensor_map(self, slot: MapSlot, tensor: Global) -> str:
        """The parameter that holds the map of a tensor's boxes."""
        if slot not in self.maps:
            self.maps[slot] = self.names.unique(f"{tensor.name}_map")
        return self.maps[slot]
