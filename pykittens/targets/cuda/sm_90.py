"""Hopper: the target, how roles share the threads and registers of a block, and stages of pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.errors import ResourceError
from pykittens.ir.nodes import (
    Acquire,
    Block,
    Call,
    For,
    ForTasks,
    If,
    Kernel,
    Pipeline,
    Role,
    Side,
    While,
    blocks,
    is_multicast,
    takes,
    walk,
)
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, SharedTile, TileRef
from pykittens.targets.simt.target import SIMT
from pykittens.targets.target import TARGETS, Target

SM_90 = TARGETS["sm_90a"] = Target(
    "sm_90a",
    arch="sm_90a",
    parent=SIMT,
    shared_bytes=227 * 1024,
    headers=("device.cuh", "sm_90.cuh"),
)

WARPGROUP = 128  # threads
MIN_REGISTERS = 24
MAX_REGISTERS = 240  # what setmaxnreg is given at most


def is_bulk(call: Call) -> bool:
    """Whether the copy engine can carry a copy out; else the lanes of the warp do. It moves whole panels."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = call.args["src" if stores else "dst"], call.args["dst" if stores else "src"]
    tensor = ref.tensor if isinstance(ref, TileRef) else ref
    assert isinstance(tensor, Global)
    whole = tile.cols % tile.type.layout.panel_cols == 0
    return whole and tensor.type.aligned and (tensor.type.whole_rows or not stores)


# -- threads and registers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """A role and the threads that run it: its first warp in the block, its register budget if it has one."""

    role: Role
    first_warp: int
    budget: int | None

    @property
    def warps(self) -> int:
        return self.role.groups * self.role.warps

    @property
    def lanes(self) -> int:
        """Lanes of a warp that run the body: one where all it does is to start bulk copies."""
        copies = [
            n
            for n in walk(self.role.body)
            if isinstance(n, Call) and n.op.effects.engine is not None
        ]
        return 1 if self.role.is_service and all(is_bulk(c) for c in copies) else 32


def teams(kernel: Kernel) -> list[Team]:
    """The threads of each role: one warpgroup for producers and storers, then warpgroups, then single warps."""
    service = [r for r in kernel.roles if r.is_service]
    working = sorted((r for r in kernel.roles if not r.is_service), key=lambda r: r.warps % 4 != 0)
    budgets = register_budgets(kernel, service, working)
    if len(service) > 4:
        raise ResourceError(
            f"{kernel.name}: {len(service)} producers and storers share one warpgroup of 4 warps"
        )
    placed = [Team(role, i, budgets.get(role)) for i, role in enumerate(service)]
    warp = 4 if service else 0
    for role in working:
        placed.append(Team(role, warp, budgets.get(role)))
        warp += role.groups * role.warps
    return placed


def thread_count(kernel: Kernel) -> int:
    """Threads of a block."""
    working = sum(r.groups * r.warps for r in kernel.roles if not r.is_service)
    service = 4 if any(r.is_service for r in kernel.roles) else 0
    threads = 32 * (working + service)
    if threads > 1024:
        raise ResourceError(
            f"{kernel.name}: its roles need {threads} threads, a block has at most 1024",
            loc=kernel.loc,
        )
    return threads


def entry_registers(threads: int) -> int:
    """Registers a thread starts with when one block has the multiprocessor."""
    return min(255, SM_90.registers // threads // 8 * 8)


def register_budgets(kernel: Kernel, service: list[Role], working: list[Role]) -> dict[Role, int]:
    """Registers a thread of each role, where warpgroups trade them: what the service roles leave, shared evenly.

    setmaxnreg hangs when the sum over warpgroups exceeds what the block started with, so that is refused.
    """
    threads = thread_count(kernel)
    asked = {r: r.registers for r in kernel.roles if r.registers is not None}
    groups = {r: r.groups for r in working if r.warps == 4}
    if not asked and (not service or len(groups) < len(working) or threads <= 256):
        return {}
    if len(groups) < len(working):
        raise ResourceError(
            f"{kernel.name}: register budgets are for roles of whole warpgroups",
            loc=next(iter(asked)).loc,
        )
    total = entry_registers(threads) * threads
    # 40 do for a producer with several pipelines; three warpgroups that compute need what 32 leave.
    usual = 40 if sum(groups.values()) < 3 else 32
    own = max((asked.get(r, usual) for r in service), default=0)
    left = (
        total
        - WARPGROUP * own
        - sum(WARPGROUP * asked[r] * groups[r] for r in asked if r in groups)
    )
    free = sum(n for r, n in groups.items() if r not in asked)
    share = min(MAX_REGISTERS, left // (WARPGROUP * free) // 8 * 8) if free else 0
    budgets = {r: asked.get(r, own if r in service else share) for r in kernel.roles}
    if left < 0 or (free and share < MIN_REGISTERS):
        raise ResourceError(
            f"{kernel.name}: the register budgets cannot be met: {threads} threads start with "
            f"{entry_registers(threads)} registers each, {total} in all",
            operands={
                f"{r.kind} x {r.groups}": f"{budgets[r]} registers a thread" for r in kernel.roles
            },
            loc=next(iter(asked), kernel.roles[0]).loc,
            help="ask for fewer, or leave `registers` out: what is left is shared evenly",
        )
    return {r: (own if r in service else b) for r, b in budgets.items()}


# -- pipelines -------------------------------------------------------------------------------------


def arrivals(kernel: Kernel, pipeline: Pipeline, side: Side) -> int:
    """Arrivals that complete a barrier of a stage: one a warp of each group that takes part."""
    blocks_ = kernel.cluster if side == "drain" and is_multicast(kernel, pipeline) else 1
    return blocks_ * sum(r.groups * r.warps for r in kernel.roles if takes(r.body, pipeline, side))


def stage_copies(kernel: Kernel, acquire: Acquire) -> tuple[list[Call], bool]:
    """The bulk copies into a stage, and whether each is run exactly once and nothing else writes it."""
    once: list[Call] = []
    certain = True

    def visit(block: Block, repeated: bool) -> None:
        nonlocal certain
        for node in block.nodes:
            if isinstance(node, Call) and node.op.effects.writes:
                target = node.args[node.op.effects.writes[0]]
                if isinstance(target, SharedTile) and target.stage.acquire is acquire:
                    bulk = node.op.effects.engine is Engine.COPY_IN and is_bulk(node)
                    certain = certain and bulk and not repeated
                    if bulk:
                        once.append(node)
            inside = repeated or isinstance(node, If | While | For | ForTasks)
            for inner in blocks(node):
                visit(inner, inside and not _holds(inner, acquire))

    for role in kernel.roles:
        visit(role.body, False)
    return once, certain


def _holds(block: Block, acquire: Acquire) -> bool:
    return any(n is acquire for n in walk(block))
