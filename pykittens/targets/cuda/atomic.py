"""Atomics with a result: one thread accesses the element, and the other threads of the group get what it found.

Source: PTX ISA, "atom" and "Memory Consistency Model": the barrier before the access orders the writes of the group
before it, and the barrier after it orders the access before the reads of the group.
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.flags import address_of_flag
from pykittens.targets.cuda.sync import meet
from pykittens.targets.simt.scratch import SCRATCH
from pykittens.targets.target import Lowerings

ATOMIC = Lowerings()
CHANGING = ("add", "max", "min", "and", "or", "xor", "exchange", "cas")

for _name in (*CHANGING, "load"):
    SCRATCH[f"atomic_{_name}"] = "one element: no two lanes meet in a bank"


@ATOMIC.lower(*(f"atomic_{name}" for name in CHANGING))
def lower_change(e: CudaEmitter, call: Call) -> None:
    e.line("fence_engines();")
    meet(e)
    _lower(e, call)


@ATOMIC.lower("atomic_load")
def lower_load(e: CudaEmitter, call: Call) -> None:
    _lower(e, call)


def _lower(e: CudaEmitter, call: Call) -> None:
    """Access the element and pass the result to the whole group."""
    (result,), (element, *operands) = call.results, call.args.values()
    name, several = e.array(result), e.role.warps > 1
    held = f"*(int*)(shared + {e.scratch(4, call)})" if several else name
    e.declare(result)
    with e.one_thread():
        given = [address_of_flag(e, element), *map(e.scalar, operands)]
        e.line(f"{held} = {call.op.name}({', '.join(given)});")
    if several:
        meet(e)
        e.line(f"{name} = {held};")
        meet(e)
    elif e.team_lanes > 1:
        e.line(f"{name} = __shfl_sync(~0u, {name}, 0);")
    e.line("fence_engines();")
