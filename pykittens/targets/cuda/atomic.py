"""Atomics with a result: one thread accesses the element, and the other threads of the group get what it found.

Source: PTX ISA, "atom" and "Memory Consistency Model": the barrier before the access orders the writes of the group
before it, and the barrier after it orders the access before the reads of the group.
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import SharedVector
from pykittens.targets.cuda.emitter import ATOMICS, IN_SHARED, CudaEmitter
from pykittens.targets.cuda.flags import address_of_flag
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.cuda.sync import meet
from pykittens.targets.simt.scratch import SCRATCH
from pykittens.targets.target import Lowerings

ATOMIC = Lowerings()
LOAD, *CHANGING = ATOMICS
TYPES = ("add.s32", "max.s32", "min.s32", "and.b32", "or.b32", "xor.b32", "exch.b32", "cas.b32")
CHANGES = dict(zip(CHANGING, TYPES, strict=True))

for _name in ATOMICS:
    SCRATCH[_name] = "one element: no two lanes meet in a bank"


@ATOMIC.lower(*CHANGES)
def lower_change(e: CudaEmitter, call: Call) -> None:
    """One access that releases what the group wrote and acquires what others wrote."""
    e.line("fence_engines();")
    meet(e)
    _lower(e, call, "atom.acq_rel", CHANGES[call.op.name])


@ATOMIC.lower(LOAD)
def lower_load(e: CudaEmitter, call: Call) -> None:
    """One access that acquires what others wrote."""
    _lower(e, call, "ld.acquire", "s32")


def _lower(e: CudaEmitter, call: Call, instruction: str, type_: str) -> None:
    """Access the element and pass the result to the whole group."""
    (result,), (element, *operands) = call.results, call.args.values()
    if isinstance(element, SharedVector):
        function, where = f"{call.op.name}{IN_SHARED}", "cta.shared"
        address = str(shared_location(e, element).address)
    else:
        function, where = call.op.name, "gpu.global"
        address = address_of_flag(e, element)
    text = _function(function, f"{instruction}.{where}.{type_}", len(operands))
    e.instructions.setdefault(function, text)
    name, several = e.array(result), e.role.warps > 1
    held = f"*(int*)(shared + {e.scratch(4, call)})" if several else name
    e.declare(result)
    with e.one_thread():
        e.line(f"{held} = {function}({', '.join([address, *map(e.scalar, operands)])});")
    if several:
        meet(e)
        e.line(f"{name} = {held};")
        meet(e)
    elif e.team_lanes > 1:
        e.line(f"{name} = __shfl_sync(~0u, {name}, 0);")
    e.line("fence_engines();")


def _function(name: str, instruction: str, operands: int) -> str:
    """A device function that accesses an element by an instruction with some operands."""
    numbers, is_shared = range(operands), name.endswith(IN_SHARED)
    at = "u32 at" if is_shared else "const int* at"
    parameters = ", ".join([at, *(f"int x{i}" for i in numbers)])
    text = ", ".join(["%0", "[%1]", *(f"%{i + 2}" for i in numbers)])
    address = '"r"(at)' if is_shared else '"l"(__cvta_generic_to_global(at))'
    given = ", ".join([address, *(f'"r"(x{i})' for i in numbers)])
    return (
        f"DEVICE int {name}({parameters}) {{\n    int found;\n"
        f'    asm volatile("{instruction} {text};" : "=r"(found) : {given} : "memory");\n'
        "    return found;\n}\n"
    )
