"""Kernels and launches that exceed a GPU's limits, and arguments that share memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from pykittens import settings
from pykittens.checker.faults import caught_in
from pykittens.checker.proofs.occupancy import Occupancy
from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import Loc
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Call, Grid, Kernel, Tasks, tensors, waits_for_flags, walk, written
from pykittens.ir.orders import task_extents
from pykittens.ir.values import Global, TileRef, Value
from pykittens.runtime.arguments import INT32, Arguments, check_aliasing, span
from pykittens.runtime.arrays import Array
from pykittens.targets.architectures import target_for
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

MOST_ELEMENTS = 2**22  # of a tensor whose places are counted one by one


def try_emit(kernel: Kernel, arch: str) -> tuple[Source | None, list[Finding]]:
    """The program of a kernel for an architecture; or none, and why there is none."""
    found: list[Finding] = []
    source = None
    with caught_in(found, scope=Scope.ALWAYS):
        target = target_for(arch, settings.target())
        too_wide = kernel.cluster > target.max_cluster
        with caught_in(found, kind=Kind.RESOURCES if too_wide else None, scope=Scope.ALWAYS):
            source = emit(kernel, arch)
    return source, [_told_at_name(f, kernel) for f in found]


def _told_at_name(finding: Finding, kernel: Kernel) -> Finding:
    """What is told of the kernel as a whole, at the line of its name and not at its first decorator's."""
    loc = kernel.loc
    if loc is None or all(step.loc != loc for step in finding.steps):
        return finding
    while loc.text and not loc.text.lstrip().startswith(("def ", "async def ")):
        loc = Loc(loc.file, loc.line + 1, loc.function)
    steps = (
        replace(s, loc=loc, what="is compiled", who=kernel.name) if s.loc == kernel.loc else s
        for s in finding.steps
    )
    return replace(finding, steps=tuple(steps)) if loc.text else finding


# -- the launch ------------------------------------------------------------------------------------


def prove_launch(kernel: Kernel, known: Mapping[Value, Any], held: Occupancy) -> list[Finding]:
    """What of a launch does not fit a device, for the extents and numbers that are known on the host."""
    blocks = block_count(kernel, known)
    return [
        *_too_large_a_block(kernel, held),
        *_too_many_blocks(kernel, blocks),
        *_not_at_once(kernel, blocks, held),
    ]


def block_count(kernel: Kernel, known: Mapping[Value, Any]) -> int:
    """Blocks of a grid; or tasks that persistent blocks share, those of a cluster as one. 0 where there is no work."""
    assert kernel.launch is not None
    dims = [int(host_value(d, known)) for d in kernel.launch.dims]
    if any(d <= 0 for d in dims):
        return 0
    if isinstance(kernel.launch, Tasks):
        return prod(task_extents(kernel.launch, dims, kernel.cluster))
    return prod(dims)


def _refused(kernel: Kernel, message: str, what: str, missing: str, help: str) -> Finding:
    loc = kernel.launch.loc if kernel.launch is not None else kernel.loc
    return Finding(
        Kind.RESOURCES,
        f"{kernel.name}: {message}",
        steps=(FindingStep("the launch", what, loc or kernel.loc),),
        missing=missing,
        help=help,
        scope=Scope.EVERY_SCHEDULE,
    )


def _too_large_a_block(kernel: Kernel, held: Occupancy) -> Iterator[Finding]:
    """A block, or a cluster of them, that the device cannot hold."""
    load, device = held.load, held.device
    if held.blocks == 0:
        registers = "" if load.registers is None else f", {load.registers} registers a thread"
        yield _refused(
            kernel,
            f"no multiprocessor of {device} holds a block of {load.threads} threads, {load.shared_bytes} bytes of "
            f"shared memory{registers}",
            "needs one block on a multiprocessor",
            " and ".join(held.limiting),
            "take fewer stages, smaller tiles or fewer groups",
        )
    elif kernel.cluster > held.blocks * device.sms:
        yield _refused(
            kernel,
            f"a cluster of {kernel.cluster} blocks runs at once, and {device} holds {held.blocks * device.sms}",
            "needs a cluster at once",
            "multiprocessors",
            "take smaller clusters",
        )


def _too_many_blocks(kernel: Kernel, blocks: int) -> Iterator[Finding]:
    if blocks in INT32:
        return
    yield _refused(
        kernel,
        f"{blocks} blocks or tasks are more than the {INT32.stop - 1} that a launch counts",
        f"counts {blocks}",
        "a smaller grid",
        "take larger tiles, or several of them a block",
    )


def _not_at_once(kernel: Kernel, blocks: int, held: Occupancy) -> Iterator[Finding]:
    """Blocks that wait for one another, and more of them than run at once."""
    at_once = held.blocks * held.device.sms
    if not isinstance(kernel.launch, Grid) or blocks <= at_once or not waits_for_flags(kernel):
        return
    waits = next(n for n in walk(kernel.body) if isinstance(n, Call) and _awaits_flag(n))
    finding = _refused(
        kernel,
        f"its blocks wait for one another, so all {blocks} must run at once, and {held.device} runs {at_once}",
        f"starts {blocks} blocks",
        f"room for {blocks - at_once} blocks beside those that wait",
        "pk.persistent(...) starts no more blocks than run at once and shares the tasks among them",
    )
    yield replace(
        finding, steps=(*finding.steps, FindingStep("a block", "waits for another", waits.loc))
    )


def _awaits_flag(call: Call) -> bool:
    return any(isinstance(call.args[name], TileRef | Global) for name in call.op.effects.waits)


# -- memory that arguments share -------------------------------------------------------------------


def prove_aliasing(
    kernel: Kernel, arguments: Arguments, caller: Loc | None = None
) -> list[Finding]:
    """Every output that shares memory with another argument, or with itself, where the kernel does not allow it."""
    found: list[Finding] = []
    seen: set[frozenset[str]] = set()
    for out in written(kernel):
        array = arguments.tensors[out]
        if laps_itself(array):
            found.append(_lapping(kernel, out, array))
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
    """Where tensors are written first, or read where they are not."""
    steps: dict[str, FindingStep] = {}
    for what, operands in (("is written", "writes"), ("is read", "reads")):
        for node in walk(kernel.body):
            if not isinstance(node, Call):
                continue
            for name in tensors(node, getattr(node.op.effects, operands)):
                steps.setdefault(name, FindingStep(f"`{name}`", what, node.loc))
    return tuple(steps[n] for n in names if n in steps)


def laps_itself(array: Array) -> bool:
    """Whether two elements of an array lie at one address, as far as that is counted."""
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
    places = np.zeros(1, np.int64)
    for stride, extent in axes:
        places = (places[:, None] + stride * np.arange(extent)).ravel()
    return bool(len(np.unique(places)) < len(places))


def _lapping(kernel: Kernel, out: str, array: Array) -> Finding:
    return Finding(
        Kind.ALIASING,
        f"{kernel.name}: elements of the output `{out}` share memory with one another",
        steps=_touching(kernel, (out,)),
        missing="an address of its own for each element",
        help=f"pass a plain array: {prod(array.shape)} elements lie in {span(array)} bytes",
        scope=Scope.EVERY_SCHEDULE,
        operands={out: array},
    )
