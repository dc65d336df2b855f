"""Semaphores, the turns of groups, and the addresses of shared memory outside pipelines."""

from __future__ import annotations

from typing import Any

from pykittens.ir.nodes import Call, Role
from pykittens.ir.values import Value
from pykittens.targets.cuda.allocation import BARRIER_BYTES, SEMAPHORE_BYTES, element_bytes
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import calls
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_block, check_item, literal, wait_arguments
from pykittens.targets.index import Index
from pykittens.targets.target import Lowerings
from pykittens.types.tiles import SEMAPHORE, TURNS

SEMAPHORES = Lowerings()


def write_addresses(e: CudaEmitter, at: dict[Value, int]) -> None:
    """Define the address of each allocation."""
    for shared in e.kernel.shared:
        value = shared.value
        times = f"{shared.count} x " if shared.count else ""
        e.line(f"const u32 {e.names(value)} = {Index('smem') + at[value]};  // {times}{value.type}")


def write_initials(e: CudaEmitter) -> None:
    """Initialise the barriers, in one thread."""
    for shared in e.kernel.shared:
        name = e.names(shared.value)
        match shared.value.type:
            case SEMAPHORE(arrivals=arrivals):
                init = f"semaphore_init({name} + {SEMAPHORE_BYTES} * i, {arrivals});"
                e.line(f"for (int i = 0; i < {shared.count or 1}; ++i) {init}")
            case TURNS(groups=groups, warps=warps):
                init = f"barrier_init({name} + {BARRIER_BYTES} * i, {warps});"
                e.line(f"for (int i = 0; i < {groups}; ++i) {init}")


def write_phases(e: CudaEmitter, role: Role) -> None:
    """Define the parity that the group awaits at its next turn; the first turn of group 0 needs no arrival."""
    for call in calls(role):
        for turns in (call.args[name] for name in call.op.effects.waits):
            if isinstance(turns.type, TURNS) and turns.type.groups > 1:
                e.phases[turns] = e.names.unique(f"{e.names(turns)}_phase")
                e.line(f"u32 {e.phases[turns]} = {e.scalar(call.args['group'])} == 0;")


@SEMAPHORES.lower("item")
def lower_item(e: CudaEmitter, call: Call) -> None:
    memory, index = call.args["memory"], call.args["index"]
    (result,) = call.results
    at = Index(e.names(memory)) + Index(element_bytes(memory)) * e.index(index)
    check_item(e, memory.name or "semaphore", index, call.args["count"])
    e.line(f"const u32 {e.names(result)} = {at};")


@SEMAPHORES.lower("arrive")
def lower_arrive(e: CudaEmitter, call: Call) -> None:
    meet(e)
    semaphore, block = e.names(call.args["semaphore"]), call.args["block"]
    if block is not None:
        check_block(e, block)
    with e.one_thread():
        if block is None:
            e.line(f"barrier_arrive({semaphore});")
        else:
            e.line(f"semaphore_arrive_at({semaphore}, {e.scalar(block)});")


@SEMAPHORES.lower("expect")
def lower_expect(e: CudaEmitter, call: Call) -> None:
    meet(e)
    with e.one_thread():
        bytes_ = e.scalar(call.args["bytes"])
        e.line(f"semaphore_expect({e.names(call.args['semaphore'])}, {bytes_});")


@SEMAPHORES.lower("wait_phase")
def lower_wait_phase(e: CudaEmitter, call: Call) -> None:
    semaphore, parity = call.args["semaphore"], _parity(e, call.args["phase"])
    # The text has a hole {1} for the index of one of several semaphores.
    source, name, index = semaphore.source, literal(semaphore.name or "semaphore"), []
    if isinstance(source, Call):
        name = f"{literal(source.args['memory'].name or 'semaphore')}[{{1}}]"
        index = [source.args["index"]]
    debug = wait_arguments(e, f"at {{loc}} for phase {{0}} of {name}", parity, *index)
    of_cluster = "_of_cluster" if _of_cluster(e, semaphore) else ""
    e.line(f"barrier_wait{of_cluster}({e.names(semaphore)}, {parity}{debug});")


def _of_cluster(e: CudaEmitter, semaphore: Value) -> bool:
    """Whether blocks of the cluster signal a semaphore of other blocks, or others of its array."""
    if e.kernel.cluster == 1:
        return False
    signals = (c for r in e.kernel.roles for c in calls(r) if c.names_block)
    signalled = (c.args[name] for c in signals for name in c.op.effects.signals)
    return any(_declared(x) is _declared(semaphore) for x in signalled)


def _declared(semaphore: Value) -> Value:
    """The result of pk.semaphore of which a semaphore is one."""
    source = semaphore.source
    found: Value = source.args["memory"] if isinstance(source, Call) else semaphore
    return found


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
    """Each warp arrives, so the warps of the group need not synchronise."""
    turns: Value = call.args["turns"]
    if turns in e.phases:
        groups = turns.type.groups  # type: ignore[union-attr]
        next_group = Index(BARRIER_BYTES) * ((e.index(call.args["group"]) + 1) % groups)
        e.line("__syncwarp();")
        e.line(f"if (lane == 0) barrier_arrive({Index(e.names(turns)) + next_group});")
