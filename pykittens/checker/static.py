"""Everything known about a call without running it: proofs, refusals, and the resources of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.checker.faults import caught_in, merged
from pykittens.checker.proofs.balance import prove
from pykittens.checker.proofs.compilation import Compilation, try_compile
from pykittens.checker.proofs.launches import prove_launch, try_emit
from pykittens.checker.proofs.named_barriers import unjudged_barriers
from pykittens.checker.proofs.occupancy import Load, Occupancy, occupancy
from pykittens.checker.proofs.resources import resource_tables
from pykittens.checker.proofs.speed import remarks, slow_products
from pykittens.checker.proofs.unused import unused
from pykittens.checker.report.report import Table
from pykittens.emulate.finding import Finding
from pykittens.errors import Loc
from pykittens.ir.nodes import Kernel
from pykittens.runtime.arguments import Arguments, known_values
from pykittens.types.devices import DeviceSpec


@dataclass(frozen=True)
class StaticResult:
    """Findings, sentences that hold for all arguments, and tables of resources of a call that is not refused.

    blocks_per_sm: blocks that a multiprocessor holds at once. launches: whether the device can run the launch.
    missing: what a compilation lacks; empty if it lacks nothing.
    """

    findings: list[Finding]
    proved: tuple[str, ...]
    tables: tuple[Table, ...]
    blocks_per_sm: int
    launches: bool
    missing: str


def examine_statically(
    kernel: Kernel,
    arguments: Arguments,
    device: DeviceSpec,
    caller: Loc | None = None,
    *,
    compiles: bool = True,
) -> StaticResult:
    """The results without a run of a kernel on a device; registers are known only if it is compiled."""
    proofs = prove(kernel)
    source, found = try_emit(kernel, device.arch)
    built = Compilation()
    if source is not None and compiles:
        built = try_compile(kernel, device.arch)
    compiled = built.compiled
    found = [*proofs.findings, *found, *built.findings, *unjudged_barriers(kernel), *unused(kernel)]
    if source is not None:
        found += slow_products(kernel, device.arch)
    if compiled is not None:
        found += remarks(kernel, compiled)
    held: Occupancy | None = None
    refused: list[Finding] = []
    if source is not None:
        registers = compiled.resources.registers if compiled is not None else None
        held = occupancy(Load(source.threads, source.shared_bytes, registers), device)
        with caught_in(refused, caller):
            refused += prove_launch(kernel, known_values(kernel, arguments), held)
    tables: tuple[Table, ...] = ()
    with caught_in([]):  # try_emit has reported the reason
        tables = resource_tables(kernel, device.arch, source, held, compiled)
    blocks_per_sm = max(held.blocks, 1) if held is not None else 1
    findings = merged([*found, *refused])
    return StaticResult(findings, proofs.proved, tables, blocks_per_sm, not refused, built.missing)
