"""Assigns the warps and registers of a block to the roles of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.errors import ResourceError
from pykittens.ir.nodes import Kernel, Role, group_name
from pykittens.targets.cuda.engines import by_lanes, calls, can_share, lanes
from pykittens.targets.source import GroupWarps
from pykittens.targets.target import Target

WARPGROUP = 128  # threads
SERVICE_WARPS = 4  # of the warpgroup that producers and storers share unless they ask for more
LAST_NAMED_BARRIER = 15  # PTX ISA, "bar, barrier": a block has 16; __syncthreads uses the first
MIN_REGISTERS = 24
MAX_REGISTERS = 240  # per thread, with setmaxnreg


@dataclass(frozen=True)
class Team:
    """A role and the threads that run it: its first warp in the block, and its register budget if it has one.

    lanes: lanes of a warp that run the body: one if the body only starts the copies of an engine. number: the number of
    the first group, without the groups of producers and storers. sharers: warps that run the body of a producer or
    storer, each for a share of its copies.
    """

    role: Role
    first_warp: int
    budget: int | None
    lanes: int
    number: int = 0
    sharers: int = 1

    @property
    def warps(self) -> int:
        return self.role.groups * self.role.warps * self.sharers

    @property
    def copy_threads(self) -> int:
        """Threads of a group that share its copies by lanes."""
        return 32 * self.role.warps * self.sharers


def teams(kernel: Kernel, target: Target) -> list[Team]:
    """The team of each role: first producers and storers, then warpgroups, then roles of other sizes."""
    service = [r for r in kernel.roles if r.is_service]
    working = sorted((r for r in kernel.roles if not r.is_service), key=lambda r: r.warps % 4 != 0)
    budgets = register_budgets(kernel, target, service, working)
    if target.warpgroups and len(service) > SERVICE_WARPS:
        raise ResourceError(
            f"{kernel.name}: {len(service)} producers and storers share one warpgroup of 4 warps"
        )
    assigned, warp, number = [], 0, 0
    for role, sharers in copy_warps(kernel, target).items():
        budget = budgets.get(role)
        assigned.append(Team(role, warp, budget, lanes(role, target), sharers=sharers))
        warp += sharers
    warp = service_warps(kernel, target)
    for role in working:
        assigned.append(Team(role, warp, budgets.get(role), lanes(role, target), number))
        warp += role.groups * role.warps
        number += role.groups
    return assigned


def groups_of_block(kernel: Kernel, target: Target) -> list[GroupWarps]:
    """The groups of a block and their warps, those of a team one after another."""
    return [
        GroupWarps(
            group_name(kernel, t.role, i), t.first_warp + i * t.role.warps, t.warps // t.role.groups
        )
        for t in teams(kernel, target)
        for i in range(t.role.groups)
    ]


def first_group(team: Team, kernel: Kernel, target: Target) -> int:
    """The number of the first group of a team among the groups of the block."""
    return [g.first_warp for g in groups_of_block(kernel, target)].index(team.first_warp)


def copy_warps(kernel: Kernel, target: Target) -> dict[Role, int]:
    """The warps that run each producer and storer: a role that can share has those that it asks for.

    If it asks for none, it gets twice as many as long as some of the warpgroups are left: powers of two divide the
    pieces of tiles evenly.
    """
    service = [r for r in kernel.roles if r.is_service]
    able = [r for r in service if can_share(kernel, r, target)] if target.warpgroups else []
    warps = {r: (r in able and r.copy_warps) or 1 for r in service}
    room = _in_warpgroups(sum(warps.values()))
    for role in [r for r in able if r.copy_warps is None] * 2:
        if sum(warps.values()) + warps[role] <= room:
            warps[role] *= 2
    return warps


def service_warps(kernel: Kernel, target: Target) -> int:
    """Warps of producers and storers: whole warpgroups if the groups after them must start at a warpgroup."""
    warps = sum(copy_warps(kernel, target).values())
    return _in_warpgroups(warps) if target.warpgroups else warps


def _in_warpgroups(warps: int) -> int:
    return -(-warps // SERVICE_WARPS) * SERVICE_WARPS


def thread_count(kernel: Kernel, target: Target) -> int:
    """Threads of a block."""
    working = sum(r.groups * r.warps for r in kernel.roles if not r.is_service)
    threads = 32 * (working + service_warps(kernel, target))
    if threads > 1024:
        raise ResourceError(
            f"{kernel.name}: its roles need {threads} threads, a block has at most 1024",
            loc=kernel.loc,
        )
    return threads


def entry_registers(threads: int, target: Target, resident: int = 1) -> int:
    """Registers that a thread starts with if `resident` blocks share a multiprocessor."""
    return min(255, target.registers // (threads * resident) // 8 * 8)


def lanes_copy(role: Role, target: Target) -> bool:
    """Whether lanes do copies of a role."""
    return any(by_lanes(role, c, target) for c in calls(role) if c.op.effects.engine is not None)


def pieces_in_flight(team: Team, kernel: Kernel, target: Target) -> int:
    """Pieces of 16 bytes that a lane of a team copies at a time, by its registers: NVRTC spills with fewer.

    Eight are for roles that ask for registers: others may hold more than pieces.
    """
    registers = team.budget or entry_registers(
        thread_count(kernel, target), target, kernel.resident
    )
    if (team.role.registers or 0) >= 160:
        return 8
    return 4 if registers >= 96 else 2 if registers >= 56 else 1


def pieces_together(role: Role) -> int:
    """Pieces of several tiles that a lane of a role has in flight: those of a producer that asks for registers."""
    return 12 if role.is_service and (role.registers or 0) >= 160 else 0


def register_budgets(
    kernel: Kernel, target: Target, service: list[Role], working: list[Role]
) -> dict[Role, int]:
    """Registers per thread of each role if warpgroups trade them: roles without a request share the rest evenly.

    setmaxnreg hangs if the sum over warpgroups exceeds the registers of the block at its start, so such budgets raise.
    If warpgroups trade no registers, requests have no effect.
    """
    threads = thread_count(kernel, target)
    if not target.warpgroups:
        return {}
    asked = {r: r.registers for r in kernel.roles if r.registers is not None}
    groups = {r: r.groups * r.warps // 4 for r in working if r.groups * r.warps % 4 == 0}
    all_by_four = all(r.warps == 4 for r in working)
    resident = kernel.resident
    if not asked and (not service or not all_by_four or threads * resident <= 256):
        return {}
    if len(groups) < len(working):
        raise ResourceError(
            f"{kernel.name}: register budgets are for roles of whole warpgroups",
            loc=next(iter(asked)).loc,
        )
    total = entry_registers(threads, target, resident) * threads
    # 40 are enough for a producer with several pipelines; three computing warpgroups need the rest of 32. Lanes that
    # copy hold granules in flight (`pieces_in_flight`).
    serving = service_warps(kernel, target) // SERVICE_WARPS  # warpgroups
    few = sum(groups.values()) + serving <= 3
    usual = 40 if few else 32
    if any(lanes_copy(r, target) for r in service):
        usual += 64 if few else 24
    own = max((asked.get(r, usual) for r in service), default=0)
    given = own * serving + sum(asked[r] * groups[r] for r in asked if r in groups)
    rest = total - WARPGROUP * given
    free = sum(n for r, n in groups.items() if r not in asked)
    share = min(MAX_REGISTERS, rest // (WARPGROUP * free) // 8 * 8) if free else 0
    budgets = {r: asked.get(r, own if r in service else share) for r in kernel.roles}
    if rest < 0 or (free and share < MIN_REGISTERS):
        raise ResourceError(
            f"{kernel.name}: the register budgets cannot be met: {threads} threads start with "
            f"{entry_registers(threads, target, resident)} registers each, {total} in all",
            operands={
                f"{r.shown} x {r.groups}": f"{budgets[r]} registers a thread" for r in kernel.roles
            },
            loc=next(iter(asked), kernel.roles[0]).loc,
            help="ask for fewer, or omit `registers`: roles without it share the rest evenly",
        )
    return {r: (own if r in service else b) for r, b in budgets.items()}
