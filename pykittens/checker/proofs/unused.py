"""Arguments, pipelines and shared memory that a kernel has and does not use: a note for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykittens.checker.proofs.compilation import name_line
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.errors import Loc
from pykittens.ir.nodes import Kernel, walk
from pykittens.ir.stages import Acquire
from pykittens.ir.structure import sources, uses
from pykittens.ir.values import Global, SharedTile, Value


def unused(kernel: Kernel) -> list[Finding]:
    """What neither an operation nor the launch uses, not even for an extent."""
    used = _used(kernel)
    return [
        *_arguments(kernel, used),
        *_pipelines(kernel, used),
        *_shared(kernel, used),
    ]


def _used(kernel: Kernel) -> set[Value]:
    """The values that nodes, the launch and compile-time extents depend on; for a part of a tensor, the tensor."""
    work: list[Any] = [v for v, _ in kernel.statics]
    work += kernel.launch.dims if kernel.launch is not None else ()
    work.append(kernel.tickets)
    for node in walk(kernel.body):
        work += uses(node)
    found: set[Value] = set()
    while work:
        value = work.pop()
        if isinstance(value, Global):
            value = value.owner
        if isinstance(value, Value) and value not in found:
            found.add(value)
            work += sources(value)
    return found


def _arguments(kernel: Kernel, used: set[Value]) -> Iterator[Finding]:
    for p in kernel.params:
        extents = p.extents if isinstance(p, Global) else ()
        if p not in used and used.isdisjoint(e for e in extents if isinstance(e, Value)):
            yield _note(
                f"`{p.name}` is an argument, and the kernel does not use it",
                FindingStep(kernel.name, f"takes `{p.name}`", name_line(kernel)),
            )


def _pipelines(kernel: Kernel, used: set[Value]) -> Iterator[Finding]:
    for p in kernel.pipelines:
        taken = [n for n in walk(kernel.body) if isinstance(n, Acquire) and n.pipeline is p]
        if not taken:
            size = p.stages * p.stage_bytes
            yield _note(
                f"no role fills or drains the pipeline `{p.name}`, which takes {size} bytes of shared memory",
                _made(p.name, p.loc),
            )
            continue
        for key in p.tiles:
            name = key.partition("@")[0]
            if name and used.isdisjoint(n.tiles[key] for n in taken if key in n.tiles):
                size = p.stages * p.tiles[key].bytes
                yield _note(
                    f"no operation uses the tile `{name}` of the pipeline `{p.name}`, which takes {size} bytes of "
                    "shared memory",
                    _made(p.name, p.loc),
                )


def _shared(kernel: Kernel, used: set[Value]) -> Iterator[Finding]:
    for s in kernel.shared:
        if s.value not in used:
            what = "shared memory" if isinstance(s.value, SharedTile) else "semaphore"
            yield _note(
                f"no operation uses the {what} `{s.value.name}`", _made(s.value.name, s.loc)
            )


def _made(name: str, loc: Loc | None) -> FindingStep:
    return FindingStep(f"`{name}`", "is made", loc)


def _note(message: str, step: FindingStep) -> Finding:
    return Finding(Kind.UNUSED, message, (step,), level=Level.NOTE, scope=Scope.ALWAYS)
