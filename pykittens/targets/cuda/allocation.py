"""Shared memory of a block: the offsets of stages, barriers, and the tiles and semaphores outside pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykittens.errors import ResourceError
from pykittens.ir.nodes import Kernel, Shared, is_used
from pykittens.ir.stages import Pipeline
from pykittens.ir.values import SharedTile, Value
from pykittens.targets.cuda import tickets
from pykittens.targets.target import Target
from pykittens.types.devices import shared_room
from pykittens.types.tiles import SEMAPHORE, ST, TURNS

BARRIER_BYTES = 8
SEMAPHORE_BYTES = 16  # an mbarrier, and the state that barriers of older GPUs lack
STANDING_BYTES = 32  # the state of a group in a debug program: `Standing` in debug.cuh
TILE_ALIGNMENT = 1024  # required by the 128-byte swizzle


def element_bytes(value: Value) -> int:
    """Bytes from one of several shared tiles or semaphores to the next."""
    match value.type:
        case SEMAPHORE():
            return SEMAPHORE_BYTES
        case TURNS(groups=groups):
            return groups * BARRIER_BYTES
        case ST():
            return -(-value.type.bytes // TILE_ALIGNMENT) * TILE_ALIGNMENT
        case other:
            raise AssertionError(f"{other} lies in no shared memory")


def shared_bytes(shared: Shared) -> int:
    """Bytes of an allocation."""
    return element_bytes(shared.value) * (shared.count or 1)


@dataclass
class Allocation:
    """Offsets in shared memory, in bytes.

    tickets: of the slots of the tasks to come. standing: of the states of the groups in a debug program.
    """

    stages: dict[Pipeline, int] = field(default_factory=dict)
    full: dict[Pipeline, int] = field(default_factory=dict)
    empty: dict[Pipeline, int] = field(default_factory=dict)
    shared: dict[Value, int] = field(default_factory=dict)
    tickets: int | None = None
    standing: int = 0
    end: int = 0

    def append(self, size: int, alignment: int = BARRIER_BYTES) -> int:
        """Allocate bytes at the end; returns their offset."""
        start = -(-self.end // alignment) * alignment
        self.end = start + size
        return start


def layout_shared(kernel: Kernel, target: Target, debug: bool = False) -> Allocation:
    """Allocate stages and tiles, and barriers after them; a ResourceError if a block has too little.

    What needs the largest alignment comes first, so that nothing is left between. A pipeline that no role uses gets no
    barriers, and stages only if another pipeline takes over its memory.
    """
    at = Allocation()
    used = [p for p in kernel.pipelines if is_used(kernel, p)]
    owners = {p.reuse for p in kernel.pipelines}

    def alignment_of(p: Pipeline | Shared) -> int:
        """Of its tiles and of those that take over its memory."""
        if isinstance(p, Shared):
            return TILE_ALIGNMENT if isinstance(p.value, SharedTile) else BARRIER_BYTES
        taking = [alignment_of(q) for q in kernel.pipelines if q.reuse is p]
        return max([t.alignment for t in p.tiles.values()] + taking)

    needed: list[Pipeline | Shared] = [p for p in kernel.pipelines if p in used or p in owners]
    for some in sorted([*needed, *kernel.shared], key=alignment_of, reverse=True):
        if isinstance(some, Shared):
            at.shared[some.value] = at.append(shared_bytes(some), alignment_of(some))
            continue
        size = some.stages * some.stage_bytes
        if some.reuse is None:
            at.stages[some] = at.append(size, alignment_of(some))
        else:
            at.stages[some] = at.stages[some.reuse]
            at.end = max(at.end, at.stages[some] + size)
    for p in used:
        at.full[p] = at.append(BARRIER_BYTES * p.stages)
        at.empty[p] = at.append(BARRIER_BYTES * p.stages)
    if not debug and tickets.readers(kernel, target):
        at.tickets = at.append(tickets.BYTES)
    if debug:
        at.standing = at.append(STANDING_BYTES * sum(r.groups for r in kernel.roles))
    check_shared(kernel, target, at.end)
    return at


def check_shared(kernel: Kernel, target: Target, total: int) -> None:
    """Raise a ResourceError if a block cannot have `total` bytes of shared memory."""
    over = total - shared_room(target.shared_bytes, kernel.resident)
    if over <= 0:
        return
    stages: dict[str, object] = {
        p.name: f"{p.stages} x {p.stage_bytes} bytes"
        + (f", in place of {p.reuse.name}" if p.reuse else "")
        for p in kernel.pipelines
    }
    shared = {s.value.name or "shared": f"{s.count or 1} x {s.value.type}" for s in kernel.shared}
    largest = max(kernel.pipelines, key=lambda p: p.stages * p.stage_bytes, default=None)
    raise ResourceError(
        f"{kernel.name}: {total} bytes of shared memory, {over} more than a block of {target.name} has"
        + (f" if {kernel.resident} share a multiprocessor" if kernel.resident > 1 else ""),
        operands=stages | shared,
        loc=largest.loc if largest is not None else kernel.loc,
        help="take fewer stages or smaller tiles",
    )
