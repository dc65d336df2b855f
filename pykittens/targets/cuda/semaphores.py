"""Shared memory outside pipelines: where it lies, its semaphores, and the turns of roles, by mbarriers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykittens.ir.nodes import Call, Kernel, Role, Shared, walk
from pykittens.ir.values import SharedTile, Value
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_item, literal, wait_arguments
from pykittens.targets.index import Index
from pykittens.targets.target import Lowerings
from pykittens.types.tiles import SEMAPHORE, ST, TURNS

SEMAPHORES = Lowerings()

SEMAPHORE_BYTES = 16  # an mbarrier, and what barriers of older GPUs do not count
BARRIER_BYTES = 8
ALIGNMENT = 1024  # of tiles, as the 128-byte swizzle asks


def element_bytes(value: Value) -> int:
    """Bytes from one of several shared tiles or semaphores to the next."""
    match value.type:
        case SEMAPHORE():
            return SEMAPHORE_BYTES
        case TURNS():
            return value.type.groups * BARRIER_BYTES
        case ST():
            return -(-value.type.bytes // ALIGNMENT) * ALIGNMENT
        case other:
            raise AssertionError(f"{other} lies in no shared memory")


def shared_bytes(shared: Shared) -> int:
    """Bytes of an allocation."""
    return element_bytes(shared.value) * (shared.count or 1)


def tiles_first(kernel: Kernel) -> Iterator[Shared]:
    """What lies outside pipelines, tiles before semaphores, so that they stay aligned."""
    yield from (s for s in kernel.shared if isinstance(s.value, SharedTile))
    yield from (s for s in kernel.shared if not isinstance(s.value, SharedTile))


def write_addresses(e: CudaEmitter, at: dict[Value, int]) -> None:
    """Name the address of each allocation."""
    for shared in e.kernel.shared:
        value = shared.value
        times = f"{shared.count} x " if shared.count else ""
        e.line(f"const u32 {e.names(value)} = {Index('smem') + at[value]};  // {times}{value.type}")


def write_initials(e: CudaEmitter) -> None:
    """Make the barriers, in one thread."""
    for shared in e.kernel.shared:
        name, value = e.names(shared.value), shared.value
        match value.type:
            case SEMAPHORE():
                one = f"semaphore_init({name} + {SEMAPHORE_BYTES} * i, {value.type.arrivals});"
                e.line(f"for (int i = 0; i < {shared.count or 1}; ++i) {one}")
            case TURNS():
                one = f"barrier_init({name} + {BARRIER_BYTES} * i, {value.type.warps});"
                e.line(f"for (int i = 0; i < {value.type.groups}; ++i) {one}")
            case _:
                pass


def write_phases(e: CudaEmitter, role: Role) -> None:
    """The parity for which the group waits at its next turn; the first of group 0 is there from the start."""
    for node in walk(role.body):
        if isinstance(node, Call):
            for name in node.op.effects.waits:
                turns = node.args[name]
                if isinstance(turns.type, TURNS) and turns.type.groups > 1:
                    e.phases[turns] = e.names.unique(f"{e.names(turns)}_phase")
                    e.line(f"u32 {e.phases[turns]} = {e.scalar(node.args['group'])} == 0;")


@SEMAPHORES.lower("item")
def lower_item(e: CudaEmitter, call: Call) -> None:
    memory, index = call.args["memory"], call.args["index"]
    (result,) = call.results
    unit = element_bytes(memory)
    at = Index(e.names(memory)) + Index(unit) * e.index(index)
    check_item(e, memory.name or "semaphore", index, call.args["count"])
    e.line(f"const u32 {e.names(result)} = {at};")


@SEMAPHORES.lower("arrive")
def lower_arrive(e: CudaEmitter, call: Call) -> None:
    meet(e)
    with e.one_thread():
        e.line(f"barrier_arrive({e.names(call.args['semaphore'])});")


@SEMAPHORES.lower("expect")
def lower_expect(e: CudaEmitter, call: Call) -> None:
    meet(e)
    with e.one_thread():
        bytes_ = e.scalar(call.args["bytes"])
        e.line(f"semaphore_expect({e.names(call.args['semaphore'])}, {bytes_});")


@SEMAPHORES.lower("wait_phase")
def lower_wait_phase(e: CudaEmitter, call: Call) -> None:
    semaphore, parity = call.args["semaphore"], _parity(e, call.args["phase"])
    name, index = _told(semaphore)
    debug = wait_arguments(e, f"at {{loc}} for phase {{0}} of {name}", parity, *index)
    e.line(f"barrier_wait({e.names(semaphore)}, {parity}{debug});")


def _told(semaphore: Value) -> tuple[str, list[Any]]:
    """What an error text calls a semaphore, with a hole {1} for an index, and that index."""
    made = semaphore.source
    if not isinstance(made, Call):
        return literal(semaphore.name or "semaphore"), []
    name = made.args["memory"].name or "semaphore"
    return f"{literal(name)}[{{1}}]", [made.args["index"]]


def _parity(e: CudaEmitter, phase: Any) -> str:
    return str(int(phase) & 1) if isinstance(phase, int) else f"{e.scalar(phase)} & 1"


@SEMAPHORES.lower("take_turn")
def lower_take_turn(e: CudaEmitter, call: Call) -> None:
    turns: Value = call.args["turns"]
    if turns in e.phases:
        phase = e.phases[turns]
        at = Index(e.names(turns)) + Index(BARRIER_BYTES) * e.index(call.args["group"])
        debug = wait_arguments(e, "at {loc} for the turn of group {0}", call.args["group"])
        e.line(f"barrier_wait({at}, {phase}{debug});")
        e.line(f"{phase} ^= 1;")


@SEMAPHORES.lower("pass_turn")
def lower_pass_turn(e: CudaEmitter, call: Call) -> None:
    """Each warp arrives for itself, so the group need not meet."""
    turns: Value = call.args["turns"]
    if turns in e.phases:
        groups = turns.type.groups  # type: ignore[union-attr]
        following = Index(BARRIER_BYTES) * ((e.index(call.args["group"]) + 1) % groups)
        e.line("__syncwarp();")
        e.line(f"if (lane == 0) barrier_arrive({Index(e.names(turns)) + following});")
