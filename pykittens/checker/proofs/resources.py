"""Resources of a kernel: shared memory, registers by role, blocks at once; and what the compiler inserted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykittens import settings
from pykittens.checker.proofs.occupancy import Load, Occupancy, occupancy
from pykittens.checker.report.report import Row, Table
from pykittens.emulate.inserted import inserted
from pykittens.errors import Loc
from pykittens.ir.nodes import Kernel, Pipeline, Shared
from pykittens.runtime.compiled import Compiled, Resources
from pykittens.targets.architectures import target_for
from pykittens.targets.cuda.allocation import layout_shared, shared_bytes
from pykittens.targets.source import Source
from pykittens.targets.target import Target
from pykittens.types.devices import DeviceSpec

_ANY_SIZE = 2**31  # bytes: more than any kernel asks for


@dataclass(frozen=True)
class MemoryUse:
    """A part of a block's shared memory: what is there, where it starts, and its bytes."""

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
    device: DeviceSpec,
    source: Source | None = None,
    compiled: Compiled | None = None,
) -> tuple[Table, ...]:
    """All that is known of what a kernel takes; the more, the further it came: recorded, emitted, compiled."""
    target = target_for(arch, settings.target())
    tables = [memory_table(shared_parts(kernel, target, source), target)]
    if source is not None:
        registers = compiled.resources.registers if compiled is not None else None
        held = occupancy(Load(source.threads, source.shared_bytes, registers), device)
        tables.append(occupancy_table(held))
    if compiled is not None:
        tables.append(register_table(compiled.resources))
    if (by_compiler := inserted_table(kernel)).rows:
        tables.append(by_compiler)
    return tuple(tables)


# -- shared memory ---------------------------------------------------------------------------------


def shared_parts(kernel: Kernel, target: Target, source: Source | None = None) -> list[MemoryUse]:
    """The parts of shared memory in order of their places, more of them than a block can have, too.

    Where the warps of a group meet is known of an emitted program only.
    """
    at = layout_shared(kernel, replace(target, shared_bytes=_ANY_SIZE))
    parts = [_stages(p, at.stages[p]) for p in kernel.pipelines]
    parts += [_outside(s, at.shared[s.value]) for s in kernel.shared]
    parts += [
        MemoryUse(
            p.name,
            f"full and empty barriers of {p.stages} stages",
            at.full[p],
            16 * p.stages,
            p.loc,
        )
        for p in kernel.pipelines
    ]
    if source is not None and source.shared_bytes > at.end:
        groups = sum(r.groups for r in kernel.roles)
        what = f"where the warps of {groups} group{'s' * (groups > 1)} meet"
        parts.append(MemoryUse("", what, at.end, source.shared_bytes - at.end))
    return sorted(parts, key=lambda p: p.offset)


def _stages(pipeline: Pipeline, offset: int) -> MemoryUse:
    tiles = ", ".join(f"{n}: {t}" if n else str(t) for n, t in pipeline.tiles.items())
    what = f"{pipeline.stages} x ({tiles})"
    if pipeline.reuse is not None:
        what += f", in place of `{pipeline.reuse.name}`"
    size = pipeline.stages * pipeline.stage_bytes
    return MemoryUse(pipeline.name, what, offset, size, pipeline.loc)


def _outside(shared: Shared, offset: int) -> MemoryUse:
    times = f"{shared.count} x " if shared.count else ""
    what = f"{times}{shared.value.type}"
    return MemoryUse(shared.value.name, what, offset, shared_bytes(shared), shared.loc)


def memory_table(parts: Sequence[MemoryUse], target: Target) -> Table:
    """Shared memory, part by part, and the total beside what a block can have."""
    total = max((p.end for p in parts), default=0)
    rows = [Row((p.name, p.what, str(p.offset), str(p.bytes)), p.loc) for p in parts]
    share = f"{total} of {target.shared_bytes} bytes, {100 * total / target.shared_bytes:.0f}%"
    return Table(
        "Shared memory",
        ("name", "what", "offset", "bytes"),
        (*rows, Row(("", "in all", "", str(total)))),
        note=f"{share} of what a block of {target.name} can have",
    )


# -- registers and blocks --------------------------------------------------------------------------


def register_table(resources: Resources) -> Table:
    """Registers a thread of each role, and the compiler's remarks."""
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
    """How many blocks each resource of a multiprocessor allows."""
    rows = [
        Row((name, most_of(held, name), str(blocks), "limits" if name in held.limiting else ""))
        for name, blocks in held.limits.items()
    ]
    blocks = f"{held.blocks} block{'s' * (held.blocks != 1)}"
    note = (
        f"a multiprocessor of {held.device} holds {blocks} at once, {held.warps} warps; "
        f"its {held.device.sms} hold {held.blocks * held.device.sms}"
    )
    if held.load.registers is None:
        note += "; registers are known of a compiled kernel only"
    columns = ("resource", "a block takes", "blocks", "")
    return Table("Blocks at once", columns, tuple(rows), note=note)


def most_of(held: Occupancy, name: str) -> str:
    """What a block takes of a resource, beside what a multiprocessor has."""
    load, device = held.load, held.device
    match name:
        case "shared memory":
            return f"{load.shared_bytes} + {device.reserved_shared_bytes} of {device.shared_bytes_per_sm} bytes"
        case "threads":
            return f"{load.threads} of {device.threads_per_sm}"
        case "registers":
            return f"{load.registers} x {load.threads} of {device.registers_per_sm}"
        case _:
            return f"1 of {device.max_blocks_per_sm}"


# -- what the compiler inserted --------------------------------------------------------------------


def inserted_table(kernel: Kernel) -> Table:
    """The waits, arrivals, fences and releases that the compiler inserted."""
    return Table(
        "Inserted by the compiler",
        ("role", "what", "description"),
        tuple(Row((i.role.kind, i.what, i.description), i.loc) for i in inserted(kernel)),
        note="the program has these, and the kernel's text does not",
    )
