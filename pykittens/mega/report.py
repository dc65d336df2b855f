"""What a program is made of: its kinds with their registers, its rings, and its schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykittens.analysis.timeline.profile import Table, aligned
from pykittens.display import Shown
from pykittens.ir.nodes import is_used, takes
from pykittens.mega.flows import accessed, of_kind
from pykittens.mega.schedule import Schedule, blank, recorded
from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import Resources

if TYPE_CHECKING:
    from pykittens.mega.interpreter import Interpreter
    from pykittens.mega.program import Program

ALL = "all kinds"


@dataclass(frozen=True, repr=False)
class ProgramReport(Shown):
    """A program for tensors of some shapes: tables as column names and rows, and a sentence on the schedule."""

    tables: tuple[Table, ...]
    schedule: str

    def __str__(self) -> str:
        return "\n\n".join([*(aligned(*table) for table in self.tables), self.schedule])

    def __repr__(self) -> str:
        return f"<{self.schedule} print(report) shows the whole report>"


def report(program: Program, schedule: Schedule, given: Mapping[str, Any]) -> ProgramReport:
    """The report of a program. Registers are those of sm_90a; without a compiler there are none."""
    made, _ = recorded(program, blank(program, given))
    tables = _kinds(program, made, schedule, given), _rings(program, made)
    return ProgramReport(tables, _sentence(schedule))


def _kinds(
    program: Program, made: Interpreter, schedule: Schedule, given: Mapping[str, Any]
) -> Table:
    """A row for each kind, and one for the kernel of all.

    The registers and spills of a kind are those of a kernel without the other kinds. It reads ahead of all waits the
    tensors that no instruction writes.
    """
    count = Counter(step.kind for step in program.instructions)
    waits = Counter(
        program.instructions[n].kind for (n, _), some in schedule.waits.items() for _ in some
    )
    rows = list[tuple[str, ...]]()
    for kind in program.kinds:
        bodies = of_kind(kind.name, made.merging.bodies).values()
        read = dict.fromkeys(t for body in bodies for t in accessed(body.nodes, reads=True))
        ahead = [t.partition(".")[2] for t in read if t not in made.written | made.tagged]
        alone = type(program)(program.blocks, [kind], dynamic=program.dynamic)
        own = {name: given[name] for name in kind.operands}
        registers = _registers(alone, own, schedule.rewrites)
        mean = f"{waits[kind] / max(count[kind], 1):.2g}"
        rows.append((kind.name, f"{count[kind]:,}", *registers, mean, ", ".join(ahead)))
    registers = _registers(program, given, schedule.rewrites)
    rows.append((ALL, f"{count.total():,}", *registers, "", ""))
    return ("instruction", "number", "registers", "spilled", "waits of one", "reads ahead"), rows


def _registers(program: Program, given: Mapping[str, Any], rewrites: bool) -> tuple[str, str]:
    """The most registers of a thread, and bytes that are spilled."""
    if nvrtc.available() is not None:
        return "", ""
    arguments = blank(program, given, rewrites)
    found: Resources = program.kernel().compile(*arguments, arch="sm_90a").resources
    used = max((role.used for role in found.roles), default=found.registers)
    return f"{used}", f"{found.frame}"


def _rings(program: Program, made: Interpreter) -> Table:
    """A row for each ring: its stages, and the kinds that use it."""
    rows = list[tuple[str, ...]]()
    for ring in (p for p in made.kernel.pipelines if is_used(made.kernel, p)):
        users = {of for (of, _), body in made.merging.bodies.items() if takes(body, ring, "fill")}
        kinds = ", ".join(kind.name for kind in program.kinds if kind.name in users)
        flight = "" if ring.flight is None else f"{ring.flight}"
        rows.append((ring.name, f"{ring.stages}", f"{ring.stage_bytes:,}", flight, kinds))
    return ("ring", "stages", "bytes of one", "on their way", "instructions"), rows


def _sentence(schedule: Schedule) -> str:
    """The counts of a schedule."""
    blocks, longest = schedule.program.blocks, max(map(len, schedule.queues))
    most = "taken by tickets" if schedule.program.dynamic else f"at most {longest:,} on one"
    waits = sum(map(len, schedule.waits.values()))
    tagged = ", ".join(sorted(name.partition(".")[2] for name in schedule.tagged))
    return (
        f"{len(schedule.program.instructions):,} instructions on {blocks} blocks, {most}; "
        f"{schedule.counters:,} counters and {waits:,} waits for them"
        + (f"; the elements of {tagged} have tags." if tagged else ".")
    )
