"""Stages of pipelines on Hopper: taken, left and given back through mbarriers; and the waits for products."""

from __future__ import annotations

from pykittens.ir.nodes import (
    Acquire,
    GiveBack,
    Leave,
    Node,
    WaitProducts,
    WaitStores,
    is_multicast,
)
from pykittens.targets.cuda.emitter import HopperEmitter
from pykittens.targets.cuda.sm_90 import SM_90, stage_copies
from pykittens.targets.emitter import Emitter


def write_node(e: Emitter, node: Node) -> None:
    """Stages taken and given back, and waits."""
    assert isinstance(e, HopperEmitter)
    match node:
        case Acquire():
            _acquire(e, node)
        case Leave():
            _leave(e, node)
        case GiveBack():
            _give_back(e, node)
        case WaitProducts():
            _wait_products(e, node)
        case WaitStores():
            if e.stores_out(bulk=True):
                e.line("stores_wait_read();" if node.read else "stores_wait();")
        case _:
            raise AssertionError(f"sm_90 has no code for {type(node).__name__}")


SM_90.nodes = write_node


def _acquire(e: HopperEmitter, node: Acquire) -> None:
    ring, side = e.ring_name(node.pipeline), node.side
    turn = f"{ring}_{side}"
    barrier = "empty" if side == "fill" else "full"
    phase = f"{turn}.phase ^ 1" if side == "fill" else f"{turn}.phase"
    e.line(f"barrier_wait({ring}_{barrier} + 8 * {turn}.stage, {phase});")
    tiles = [
        f"{e.names(tile)} = {ring} + {node.pipeline.stage_bytes} * {turn}.stage"
        + (f" + {offset}" if (offset := node.pipeline.tile_offset(field)) else "")
        for field, tile in node.tiles.items()
    ]
    e.line(f"const u32 {', '.join(tiles)};")
    if side == "fill":
        full = e.full_barrier(node)
        e.line(f"const u32 {full} = {ring}_full + 8 * {turn}.stage;")
        if not e.arms_each_copy(node):
            copies, _ = stage_copies(e.kernel, node)
            total = sum(c.args["dst"].type.bytes for c in copies)
            e.line(f"barrier_arrive_expect({full}, {total});")
    elif e.counts_held(node.pipeline):
        e.line(f"++{ring}_held;")
    e.line(f"{turn}.next();")


def _leave(e: HopperEmitter, node: Leave) -> None:
    full = e.full_barrier(node.acquire)
    if e.team_lanes == 1:
        if e.arms_each_copy(node.acquire):
            e.line(f"barrier_arrive({full});")
        return
    e.line("fence_async();")
    e.line("__syncwarp();")
    e.line(f"if (lane == 0) barrier_arrive({full});")


def _give_back(e: HopperEmitter, node: GiveBack) -> None:
    ring = e.ring_name(node.pipeline)
    empty = f"{ring}_empty + 8 * {ring}_back.stage"
    if is_multicast(e.kernel, node.pipeline):
        peers = f"for (int peer = 0; peer < {e.kernel.cluster}; ++peer) barrier_arrive_at({empty}, peer);"
        arrive = f"UNROLL {peers}"
    else:
        arrive = f"barrier_arrive({empty});"
    if e.team_lanes == 32:
        # Lanes that read the stage with ordinary loads must agree before it goes back.
        if e.stores_out(bulk=False):
            e.line("__syncwarp();")
        arrive = (
            f"if (lane == 0) {arrive}"
            if "UNROLL" not in arrive
            else f"if (lane == 0) {{ {arrive} }}"
        )
    held = f" --{ring}_held;" if e.counts_held(node.pipeline) else ""
    for _ in range(node.count):
        if node.exact:
            e.line(f"{arrive}{held}  // {ring}: give the stage back")
            e.line(f"{ring}_back.next();")
        else:
            e.line(
                f"if ({ring}_held > {node.keep}) {{ {arrive}{held} {ring}_back.next(); }}  // {ring}: give a stage back"
            )


def _wait_products(e: HopperEmitter, node: WaitProducts) -> None:
    e.line(f"products_wait<{node.pending}>();")
    leaves = {e.storage.find(v) for v in node.leaves if v in e.storage.made}
    done: set[object] = set()
    for value in (*node.completes, *node.frees):
        if value not in e.storage.made:
            continue
        leader = e.storage.find(value)
        if leader not in leaves and leader not in done:
            done.add(leader)
            e.line(f"pin({e.array(value)});")
