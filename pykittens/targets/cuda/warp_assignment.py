"""The threads and registers of a block, shared among the roles of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.errors import ResourceError
from pykittens.ir.nodes import Kernel, Role
from pykittens.targets.cuda.engines import lanes
from pykittens.targets.target import Target

WARPGROUP = 128  # threads
MIN_REGISTERS = 24
MAX_REGISTERS = 240  # what setmaxnreg is given at most


@dataclass(frozen=True)
class Team:
    """A role and the threads that run it: its first warp in the block, its register budget if it has one.

    lanes: lanes of a warp that run the body: one where all it does is to start copies that an engine carries on.
    number: that of its first group among the groups that work, producers and storers not counted.
    """

    role: Role
    first_warp: int
    budget: int | None
    lanes: int
    number: int = 0

    @property
    def warps(self) -> int:
        return self.role.groups * self.role.warps


def teams(kernel: Kernel, target: Target) -> list[Team]:
    """The threads of each role: producers and storers, then warpgroups, then single warps."""
    service = [r for r in kernel.roles if r.is_service]
    working = sorted((r for r in kernel.roles if not r.is_service), key=lambda r: r.warps % 4 != 0)
    budgets = register_budgets(kernel, target, service, working)
    if target.warpgroups and len(service) > 4:
        raise ResourceError(
            f"{kernel.name}: {len(service)} producers and storers share one warpgroup of 4 warps"
        )
    placed = [
        Team(role, i, budgets.get(role), lanes(role, target)) for i, role in enumerate(service)
    ]
    warp, number = service_warps(service, target), 0
    for role in working:
        placed.append(Team(role, warp, budgets.get(role), lanes(role, target), number))
        warp += role.groups * role.warps
        number += role.groups
    return placed


def service_warps(service: list[Role], target: Target) -> int:
    """Warps that producers and storers take: a whole warpgroup where those behind them must start at one."""
    return 4 if service and target.warpgroups else len(service)


def thread_count(kernel: Kernel, target: Target) -> int:
    """Threads of a block."""
    working = sum(r.groups * r.warps for r in kernel.roles if not r.is_service)
    service = [r for r in kernel.roles if r.is_service]
    threads = 32 * (working + service_warps(service, target))
    if threads > 1024:
        raise ResourceError(
            f"{kernel.name}: its roles need {threads} threads, a block has at most 1024",
            loc=kernel.loc,
        )
    return threads


def entry_registers(threads: int, target: Target, resident: int = 1) -> int:
    """Registers a thread starts with when so many blocks share the multiprocessor."""
    return min(255, target.registers // (threads * resident) // 8 * 8)


def register_budgets(
    kernel: Kernel, target: Target, service: list[Role], working: list[Role]
) -> dict[Role, int]:
    """Registers a thread of each role, where warpgroups trade them: what the service roles leave, shared evenly.

    setmaxnreg hangs when the sum over warpgroups exceeds what the block started with, so that is refused. Where
    warpgroups trade none, what is asked for is a hint that nothing comes of.
    """
    threads = thread_count(kernel, target)
    if not target.warpgroups:
        return {}
    asked = {r: r.registers for r in kernel.roles if r.registers is not None}
    groups = {r: r.groups for r in working if r.warps == 4}
    resident = kernel.resident
    if not asked and (not service or len(groups) < len(working) or threads * resident <= 256):
        return {}
    if len(groups) < len(working):
        raise ResourceError(
            f"{kernel.name}: register budgets are for roles of whole warpgroups",
            loc=next(iter(asked)).loc,
        )
    total = entry_registers(threads, target, resident) * threads
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
            f"{entry_registers(threads, target, resident)} registers each, {total} in all",
            operands={
                f"{r.kind} x {r.groups}": f"{budgets[r]} registers a thread" for r in kernel.roles
            },
            loc=next(iter(asked), kernel.roles[0]).loc,
            help="ask for fewer, or leave `registers` out: what is left is shared evenly",
        )
    return {r: (own if r in service else b) for r, b in budgets.items()}
