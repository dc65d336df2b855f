"""Tables of a kernel's resources: shared memory, registers by role, blocks at once, and what the compiler placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykittens import settings
from pykittens.checker.proofs.occupancy import Occupancy
from pykittens.checker.report.report import Row, Table
from pykittens.emulate.inserted import Inserted, inserted
from pykittens.errors import Loc
from pykittens.ir.nodes import Kernel, walk
from pykittens.ir.stages import GiveBack, Leave
from pykittens.runtime.compiled import Compiled, Resources
from pykittens.targets.architectures import target_for
from pykittens.targets.cuda import tickets
from pykittens.targets.cuda.allocation import layout_shared, shared_bytes
from pykittens.targets.cuda.engines import LOADED, ends_of_loads, is_fenced, shared_with_engines
from pykittens.targets.source import Source
from pykittens.targets.target import Target

_ANY_SIZE = 2**31  # bytes: more than any kernel asks for


@dataclass(frozen=True)
class MemoryUse:
    """A range of a block's shared memory: its use, its offset and its bytes."""

    name: str
    what: str
    offset: int
    bytes: int
    loc: Loc | None = None

    @property
    def end(self) -> int:
        return self.offset + self.bytes


def resource_tables(
    kernel: Kernel,
    arch: str,
    source: Source | None = None,
    held: Occupancy | None = None,
    compiled: Compiled | None = None,
) -> tuple[Table, ...]:
    """The resources of a kernel; those of an emitted or a compiled kernel are omitted without one."""
    target = target_for(arch, settings.target())
    tables = [memory_table(shared_memory(kernel, target, source), target)]
    if held is not None:
        tables.append(occupancy_table(held))
    if compiled is not None:
        tables.append(register_table(compiled.resources))
    if (by_compiler := inserted_table(kernel, target)).rows:
        tables.append(by_compiler)
    return tuple(tables)


# -- shared memory ---------------------------------------------------------------------------------


def shared_memory(kernel: Kernel, target: Target, source: Source | None = None) -> list[MemoryUse]:
    """The ranges of shared memory in order of their offsets, even if a block cannot have as much.

    Memory where the warps of a group exchange data is known only for an emitted program.
    """
    at = layout_shared(kernel, replace(target, shared_bytes=_ANY_SIZE))
    uses = []
    for p in at.full:
        reused = f", in place of `{p.reuse.name}`" if p.reuse is not None else ""
        what, barriers = (
            f"{p.stages} x ({p.contents}){reused}",
            f"full and empty barriers of {p.stages} stages",
        )
        uses.append(MemoryUse(p.name, what, at.stages[p], p.stages * p.stage_bytes, p.loc))
        uses.append(MemoryUse(p.name, barriers, at.full[p], 16 * p.stages, p.loc))
    for s in kernel.shared:
        what = (f"{s.count} x " if s.count else "") + str(s.value.type)
        uses.append(MemoryUse(s.value.name, what, at.shared[s.value], shared_bytes(s), s.loc))
    if at.tickets is not None and kernel.launch is not None:
        uses.append(MemoryUse("", "the task to come", at.tickets, tickets.BYTES, kernel.launch.loc))
    if source is not None and source.shared_bytes > at.end:
        groups = sum(r.groups for r in kernel.roles)
        what = f"exchange between the warps of {groups} group{'s' * (groups > 1)}"
        uses.append(MemoryUse("", what, at.end, source.shared_bytes - at.end))
    return sorted(uses, key=lambda use: use.offset)


def memory_table(uses: Sequence[MemoryUse], target: Target) -> Table:
    """Shared memory by use, and the total as a share of the most that a block can have."""
    total = max((u.end for u in uses), default=0)
    rows = [Row((u.name, u.what, str(u.offset), str(u.bytes)), u.loc) for u in uses]
    share = f"{total} of {target.shared_bytes} bytes, {100 * total / target.shared_bytes:.0f}%"
    return Table(
        "Shared memory",
        ("name", "what", "offset", "bytes"),
        (*rows, Row(("", "total", "", str(total)))),
        note=f"{share} of the most for a block of {target.name}",
    )


# -- registers and blocks --------------------------------------------------------------------------


def register_table(resources: Resources) -> Table:
    """Registers per thread of each role, and the compiler's remarks."""
    rows = [
        Row((r.role, str(r.used), "" if r.budget is None else str(r.budget)))
        for r in resources.roles
    ]
    notes = [
        f"{resources.threads} threads start with {resources.registers} registers each",
        f"{resources.frame} bytes of local memory per thread",
        *(resources.spills or ("no spills",)),
    ]
    return Table("Registers", ("role", "used", "budget"), tuple(rows), note="; ".join(notes))


def occupancy_table(held: Occupancy) -> Table:
    """The number of blocks that each resource of a multiprocessor allows."""
    load, device = held.load, held.device
    shared = f"{load.shared_bytes} + {device.reserved_shared_bytes}"
    needs = {
        "shared memory": f"{shared} of {device.shared_bytes_per_sm} bytes",
        "threads": f"{load.threads} of {device.threads_per_sm}",
        "blocks": f"1 of {device.max_blocks_per_sm}",
        "registers": f"{load.registers} x {load.threads} of {device.registers_per_sm}",
    }
    rows = [
        Row((name, needs[name], str(blocks), "limits" if name in held.limiting else ""))
        for name, blocks in held.limits.items()
    ]
    blocks = f"{held.blocks} block{'s' * (held.blocks != 1)}"
    note = (
        f"a multiprocessor of {device} holds {blocks} at once, {held.warps} warps; "
        f"its {device.sms} hold {held.blocks * device.sms}"
    )
    if load.registers is None:
        note += "; registers are known only for a compiled kernel"
    columns = ("resource", "a block needs", "blocks", "")
    return Table("Blocks at once", columns, tuple(rows), note=note)


# -- instructions placed by the compiler -----------------------------------------------------------


def inserted_table(kernel: Kernel, target: Target) -> Table:
    """The waits, arrivals, fences and releases that the compiler adds to the user's code."""
    shared = {role.body: shared_with_engines(kernel, role, target) for role in kernel.roles}

    def is_written(item: Inserted) -> bool:
        """Whether the program of the target has it: a fence is for memory that an engine accesses."""
        if item.what != "fence":
            return True
        assert isinstance(item.node, Leave | GiveBack), "other nodes have no fences"
        ring = item.node.acquire.pipeline if isinstance(item.node, Leave) else item.node.pipeline
        return bool(target.engines) and is_fenced(ring, shared[item.role.body].stored)

    found = [p for p in inserted(kernel) if is_written(p)]
    fences = {p.node for p in found if p.what == "fence"}
    placed = [(p.role, p.what, p.description, p.loc) for p in found]
    for role in kernel.roles:
        ends = ends_of_loads(role, shared[role.body].loaded, target) - fences
        placed += [(role, "fence", LOADED, n.loc) for n in walk(role.body) if n in ends]
    return Table(
        "Inserted by the compiler",
        ("role", "what", "description"),
        tuple(Row((role.shown, what, text), loc) for role, what, text, loc in placed),
        note="the program has these in addition to the kernel's text",
    )
