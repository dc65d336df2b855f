"""Tasks that blocks take when they get to them: the warps that go through them, and their loops.

The first warp that does draws the tasks (`Tickets` in signals.cuh). Which block has which task is not part of a
kernel's meaning, so debug programs, whose waits are all watched, and blocks of a single warp take theirs in turn.
"""

from __future__ import annotations

from pykittens.ir.nodes import ForTasks, Kernel, walk
from pykittens.targets.cuda.warp_assignment import Team, teams
from pykittens.targets.target import Target

# Two barriers of a slot, full and empty, the slot, and the parity that the leader awaits.
BYTES = 24


def looping(kernel: Kernel, target: Target) -> list[Team]:
    """The teams that go through the tasks; the first warp of the first leads."""
    return [
        team
        for team in teams(kernel, target)
        if any(isinstance(node, ForTasks) for node in walk(team.role.body))
    ]


def readers(kernel: Kernel, target: Target) -> int:
    """The warps that read what the first draws; 0 if tasks are not taken by tickets."""
    if kernel.tickets is None:
        return 0
    return max(sum(team.warps for team in looping(kernel, target)) - 1, 0)


def next_task(team: Team, leads: bool, at: str, counter: str, count: str) -> str:
    """The next task of a team's threads. at: the address of the slot. leads: whether its first warp leads the block."""
    read = f"tickets.read_alone({at})" if team.lanes == 1 else f"tickets.read_together({at}, lane)"
    if not leads:
        return read
    draw = f"tickets.draw({at}, {counter}, {count})"
    if team.lanes == 1:
        return draw
    draw = f"__shfl_sync(~0u, lane == 0 ? {draw} : 0, 0)"
    return draw if team.warps == 1 else f"(warp_of_block == {team.first_warp} ? {draw} : {read})"
