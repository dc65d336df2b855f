"""Kernels and launches that exceed a GPU's limits, and arguments that share memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from pykittens import settings
from pykittens.checker.faults import caught_in
from pykittens.checker.proofs.compilation import name_line
from pykittens.checker.proofs.occupancy import Occupancy
from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import Loc
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Call, Grid, Kernel, Tasks, tensors, waits_for_flags, walk, written
from pykittens.ir.orders import task_extents
from pykittens.ir.values import Value
from pykittens.runtime.arguments import INT32, Arguments, check_aliasing, span
from pykittens.runtime.arrays import Array
from pykittens.targets.architectures import target_for
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

MOST_ELEMENTS = 2**22  # of a tensor whose addresses are compared one by one


def try_emit(kernel: Kernel, arch: str) -> tuple[Source | None, list[Finding]]:
    """The program of a kernel for an architecture; or None, and the reasons."""
    found: list[Finding] = []
    source = None
    with caught_in(found, scope=Scope.ALWAYS):
        target = target_for(arch, settings.target())
        too_wide = kernel.cluster > target.max_cluster
        with caught_in(found, kind=Kind.RESOURCES if too_wide else None, scope=Scope.ALWAYS):
            source = emit(kernel, arch)
    return source, [_at_name(f, kernel) for f in found]


def _at_name(finding: Finding, kernel: Kernel) -> Finding:
    """A finding about the whole kernel, at the line of its name rather than of its first decorator."""
    if kernel.loc is None or all(step.loc != kernel.loc for step in finding.steps):
        return finding
    at = FindingStep(kernel.name, "is compiled", name_line(kernel))
    return replace(finding, steps=tuple(at if s.loc == kernel.loc else s for s in finding.steps))


# -- the launch ------------------------------------------------------------------------------------


def prove_launch(kernel: Kernel, known: Mapping[Value, Any], held: Occupancy) -> list[Finding]:
    """The limits of a device that a launch exceeds, for the extents and numbers that are known on the host."""
    blocks = block_count(kernel, known)
    return [
        *_too_large_a_block(kernel, held),
        *_too_many_blocks(kernel, blocks),
        *_not_at_once(kernel, blocks, held),
    ]


def block_count(kernel: Kernel, known: Mapping[Value, Any]) -> int:
    """The blocks of a grid, or the tasks of persistent blocks, those of a cluster as one; 0 if there is no work."""
    assert kernel.launch is not None
    dims = [int(host_value(d, known)) for d in kernel.launch.dims]
    if any(d <= 0 for d in dims):
        return 0
    if isinstance(kernel.launch, Tasks):
        return prod(task_extents(kernel.launch, dims, kernel.cluster))
    return prod(dims)


def _refused(
    kernel: Kernel, message: str, what: str, *steps: FindingStep, missing: str, help: str
) -> Finding:
    loc = kernel.launch.loc if kernel.launch is not None else kernel.loc
    return Finding(
        Kind.RESOURCES,
        f"{kernel.name}: {message}",
        steps=(FindingStep("the launch", what, loc or kernel.loc), *steps),
        missing=missing,
        help=help,
        scope=Scope.EVERY_SCHEDULE,
    )


def _too_large_a_block(kernel: Kernel, held: Occupancy) -> Iterator[Finding]:
    """A block, or a cluster of blocks, that the device cannot hold."""
    load, device = held.load, held.device
    if held.blocks == 0:
        registers = "" if load.registers is None else f", {load.registers} registers per thread"
        yield _refused(
            kernel,
            f"no multiprocessor of {device} holds a block of {load.threads} threads, {load.shared_bytes} bytes of "
            f"shared memory{registers}",
            "needs one block on a multiprocessor",
            missing=" and ".join(held.limiting),
            help="use fewer stages, smaller tiles or fewer groups",
        )
    elif kernel.cluster > held.blocks * device.sms:
        yield _refused(
            kernel,
            f"a cluster of {kernel.cluster} blocks runs at once, and {device} holds {held.blocks * device.sms}",
            "needs a cluster at once",
            missing="multiprocessors",
            help="use smaller clusters",
        )


def _too_many_blocks(kernel: Kernel, blocks: int) -> Iterator[Finding]:
    if blocks not in INT32:
        yield _refused(
            kernel,
            f"{blocks} blocks or tasks exceed the {INT32.stop - 1} that a launch can count",
            f"counts {blocks}",
            missing="a smaller grid",
            help="use larger tiles, or several tiles per block",
        )


def _not_at_once(kernel: Kernel, blocks: int, held: Occupancy) -> Iterator[Finding]:
    """Blocks that wait for each other, and more of them than run at once."""
    at_once = held.blocks * held.device.sms
    if isinstance(kernel.launch, Grid) and blocks > at_once and waits_for_flags(kernel):
        waits = next(
            n
            for n in walk(kernel.body)
            if isinstance(n, Call) and any(tensors(n, n.op.effects.waits))
        )
        yield _refused(
            kernel,
            f"its blocks wait for each other, so all {blocks} must run at once, and {held.device} runs {at_once}",
            f"starts {blocks} blocks",
            FindingStep("a block", "waits for another", waits.loc),
            missing=f"room for {blocks - at_once} more blocks",
            help="pk.persistent(...) starts no more blocks than run at once, and they share the tasks",
        )


# -- memory that arguments share -------------------------------------------------------------------


def prove_aliasing(
    kernel: Kernel, arguments: Arguments, caller: Loc | None = None
) -> list[Finding]:
    """Every output that shares memory with another argument or with itself, unless the kernel allows it."""
    found: list[Finding] = []
    seen: set[frozenset[str]] = set()
    for out in written(kernel):
        array = arguments.tensors[out]
        if laps_itself(array):
            found.append(
                Finding(
                    Kind.ALIASING,
                    f"{kernel.name}: elements of the output `{out}` share memory with one another",
                    steps=_touching(kernel, (out,)),
                    missing="one address per element",
                    help=f"pass a contiguous array: {prod(array.shape)} elements share {span(array)} bytes",
                    scope=Scope.EVERY_SCHEDULE,
                    operands={out: array},
                )
            )
        for other, theirs in arguments.tensors.items():
            pair = frozenset((out, other))
            if other != out and pair not in seen:
                seen.add(pair)
                both = {out: array, other: theirs}
                faults: list[Finding] = []
                with caught_in(faults, caller, kind=Kind.ALIASING):
                    check_aliasing(kernel.name, [out], both, kernel.inplace)
                steps = _touching(kernel, (out, other))
                found += [replace(f, steps=steps) for f in faults]
    return found


def _touching(kernel: Kernel, names: tuple[str, ...]) -> tuple[FindingStep, ...]:
    """The first write of each tensor, or the first read of one that is not written."""
    steps: dict[str, FindingStep] = {}
    for what, operands in (("is written", "writes"), ("is read", "reads")):
        for node in walk(kernel.body):
            if not isinstance(node, Call):
                continue
            for name in tensors(node, getattr(node.op.effects, operands)):
                steps.setdefault(name, FindingStep(f"`{name}`", what, node.loc))
    return tuple(steps[n] for n in names if n in steps)


def laps_itself(array: Array) -> bool:
    """Whether two elements of an array have the same address; False for large arrays, which are not searched."""
    axes = sorted((s, n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    reach = 0
    for stride, extent in axes:
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    if 0 in array.shape or prod(array.shape) > MOST_ELEMENTS:
        return False
    offsets = np.zeros(1, np.int64)
    for stride, extent in axes:
        offsets = (offsets[:, None] + stride * np.arange(extent)).ravel()
    return bool(len(np.unique(offsets)) < len(offsets))
