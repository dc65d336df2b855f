"""Everything known about a call without running it: proofs, refusals, and the resources of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.checker.faults import caught_in, first_of_each
from pykittens.checker.proofs.balance import prove
from pykittens.checker.proofs.launches import prove_launch, try_emit
from pykittens.checker.proofs.named_barriers import unjudged_barriers
from pykittens.checker.proofs.occupancy import Load, occupancy
from pykittens.checker.proofs.resources import resource_tables
from pykittens.checker.report.report import Table
from pykittens.emulate.finding import Finding
from pykittens.errors import Loc
from pykittens.ir.nodes import Kernel
from pykittens.runtime.arguments import Arguments, known_values
from pykittens.runtime.compiled import Compiled
from pykittens.types.devices import Device


@dataclass(frozen=True)
class StaticResult:
    """Findings, sentences that hold for all arguments, and tables of resources.

    blocks_per_sm: blocks that a multiprocessor holds at once. launches: whether the device can run the launch.
    """

    findings: tuple[Finding, ...]
    proved: tuple[str, ...]
    tables: tuple[Table, ...]
    blocks_per_sm: int = 1
    launches: bool = True


def examine_statically(
    kernel: Kernel,
    arguments: Arguments,
    device: Device,
    compiled: Compiled | None = None,
    caller: Loc | None = None,
) -> StaticResult:
    """The results for a recorded kernel on a device; registers are known if the kernel is compiled."""
    proofs = prove(kernel)
    source, found = try_emit(kernel, device.arch)
    found = [*proofs.findings, *found, *unjudged_barriers(kernel)]
    tables: tuple[Table, ...] = ()
    with caught_in([]):  # try_emit has reported the reason
        tables = resource_tables(kernel, device.arch, device, source, compiled)
    if source is None:
        return StaticResult(tuple(first_of_each(found)), proofs.proved, tables)
    registers = compiled.resources.registers if compiled is not None else None
    held = occupancy(Load(source.threads, source.shared_bytes, registers), device)
    refused: list[Finding] = []
    with caught_in(refused, caller):
        refused += prove_launch(kernel, known_values(kernel, arguments), held)
    findings = tuple(first_of_each([*found, *refused]))
    return StaticResult(findings, proofs.proved, tables, max(held.blocks, 1), not refused)
