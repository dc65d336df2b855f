"""Synchronisation of the warps of a group, and of the engines that work for it."""

from __future__ import annotations

from pykittens.ir.nodes import Block, Call, blocks, walk
from pykittens.ir.op import Engine
from pykittens.ir.values import Value
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sm_80 import SM_80
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.targets.cuda.wgmma import all_wgmma
from pykittens.targets.simt.exchange import sync


def meet(e: CudaEmitter) -> None:
    """The lanes and warps of the group wait for one another."""
    if e.team_lanes > 1:
        e.line(sync(e))


@SM_80.lower("sync")
def lower_sync(e: CudaEmitter, call: Call) -> None:
    meet(e)


@SM_80.lower("fence_async")
def lower_no_fence(e: CudaEmitter, call: Call) -> None:
    """Nobody but the lanes reads shared memory."""


@SM_90.lower("fence_async")
def lower_fence_async(e: CudaEmitter, call: Call) -> None:
    e.line("fence_async();")


@SM_80.lower("mma_wait")
def lower_no_mma_wait(e: CudaEmitter, call: Call) -> None:
    """What lanes do is done when they go on."""


@SM_80.lower("store_wait")
def lower_store_wait_of_lanes(e: CudaEmitter, call: Call) -> None:
    """Some lanes of the group may still copy what others wait for."""
    meet(e)


@SM_90.lower("store_wait")
def lower_store_wait(e: CudaEmitter, call: Call) -> None:
    """One thread of the group has started the stores and waits for them; the others wait for it."""
    if e.started(Engine.COPY_OUT, by_lanes=False):
        word = "stores_wait_read" if call.args["read"] else "stores_wait"
        e.line(f"{word}<{call.args['pending']}>();")
    meet(e)


@SM_90.lower("mma_wait")
def lower_mma_wait(e: CudaEmitter, call: Call) -> None:
    if not e.started(Engine.PRODUCT, by_lanes=False):
        return
    # A product of single warps in between is none of those that the instruction counts.
    pending = call.args["pending"] if all_wgmma(e) else 0
    e.line(f"products_wait<{pending}>();")
    for value in _complete(e, call, pending):
        e.line(f"pin({e.array(value)});")


def _complete(e: CudaEmitter, call: Call, pending: int) -> list[Value]:
    """The results of the user's products that are complete now, as far as the order of the text tells."""
    products = [
        n
        for n in walk(e.role.body)
        if isinstance(n, Call) and n.op.effects.engine is Engine.PRODUCT and not n.managed
    ]
    order = {id(n): i for i, n in enumerate(walk(e.role.body))}
    before = [p for p in products if order[id(p)] < order[id(call)]]
    flying = {e.storage.find(p.results[0]) for p in before[len(before) - pending :]}
    here = _path(e.role.body, call)
    leaders = dict.fromkeys(e.storage.find(p.results[0]) for p in products)
    return [
        leader
        for leader in leaders
        if leader not in flying
        and e.is_declared(leader)
        and any(block is e.storage.declared_in[leader] for block in here)
    ]


def _path(block: Block, call: Call) -> list[Block]:
    """The blocks round a call, from the outermost; empty if it is not in the block."""
    for node in block.nodes:
        if node is call:
            return [block]
        for inner in blocks(node):
            if path := _path(inner, call):
                return [block, *path]
    return []
