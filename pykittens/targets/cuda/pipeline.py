"""Stages of pipelines: acquired, left and given back through mbarriers."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.peers import Peers, groups_of_peers
from pykittens.ir.stages import Acquire, GiveBack, Leave
from pykittens.ir.values import Scalar, SharedTile
from pykittens.targets.clock_reads import seen
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import by_lanes, calls, is_fenced
from pykittens.targets.cuda.stages import fences_copies, fillings, stage_copies
from pykittens.targets.debug_sites import literal, wait_arguments
from pykittens.targets.index import Index
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.exchange import sync
from pykittens.targets.target import Lowerings

PIPELINE = Lowerings()

RANK = Index("rank")  # the number of a block in its cluster


@PIPELINE.lower(Acquire)
def acquire(e: CudaEmitter, node: Acquire) -> None:
    ring, side = e.rings[node.pipeline], node.side
    position = e.turns[node.pipeline, side]
    if side == "fill" and node.pipeline.reuse is not None and e.role.warps > 1:
        # Other warps of the group may still read stages of the pipeline whose memory this one reuses.
        e.line(sync(e))
    barrier, state, phase = "full", "full", f"{position}.phase"
    if side == "fill":
        barrier, state, phase = "empty", "free", f"{phase} ^ 1"
    if node.flight is not None:
        _wait_for_flight(e, node, position)
    awaited = (
        f"{literal(node.pipeline.name)}.{side}() at {{loc}}: stage {{0}} to be {state}, phase {{1}}"
    )
    debug = wait_arguments(e, awaited, f"{position}.stage", phase)
    e.line(f"barrier_wait({ring}_{barrier} + 8 * {position}.stage, {phase}{debug});")
    if side == "drain" and fences_copies(e.kernel, e.role, node.pipeline, e.target):
        e.line("fence_async();")
    tiles = [
        f"{e.names(tile)} = {ring} + {node.pipeline.stage_bytes} * {position}.stage"
        + (f" + {offset}" if (offset := node.pipeline.tile_offset(field)) else "")
        for field, tile in node.tiles.items()
    ]
    e.line(f"const u32 {', '.join(tiles)};")
    if side == "fill":
        full = e.full_barrier(node)
        e.line(f"const u32 {full} = {ring}_full + 8 * {position}.stage;")
        if not e.arms_each_copy(node):
            copies, _ = stage_copies(e.kernel, node, e.target)
            total = sum(c.args["dst"].type.bytes for c in copies)
            e.line(f"barrier_arrive_expect({full}, {total});")
    elif e.counts_held(node.pipeline):
        e.line(f"++{ring}_held;")
    e.step(node)


def _wait_for_flight(e: CudaEmitter, node: Acquire, position: str) -> None:
    """Wait until the copies have landed of the fill that is as many before this one as may be on their way."""
    ring, before = e.rings[node.pipeline], f"{position}.before<{node.flight}>()"
    awaited = f"{literal(node.pipeline.name)}.fill() at {{loc}}: copies to stage {{0}} to land, phase {{1}}"
    debug = wait_arguments(e, awaited, f"{before}.stage", f"{before}.phase")
    # The phase before the first one counts as complete.
    e.line(f"barrier_wait({ring}_full + 8 * {before}.stage, {before}.phase{debug});")


def wait_for_returns(e: CudaEmitter) -> None:
    """Wait at the end of a role until all blocks that share copies have given back the stages that it has filled.

    A block must not end while others may signal its barriers.
    """
    for (pipeline, side), position in e.turns.items():
        if side != "fill" or not groups_of_peers(e.kernel, pipeline):
            continue
        e.at(pipeline.loc)
        awaited = (
            f"the end of `{literal(pipeline.name)}` at {{loc}}: stage {{0}} to be free, phase {{1}}"
        )
        debug = wait_arguments(e, awaited, f"{position}.stage", f"{position}.phase ^ 1")
        with e.braces(f"for (int i = 0; i < {pipeline.stages}; ++i, {position}.next()) {{"):
            empty = f"{e.rings[pipeline]}_empty + 8 * {position}.stage"
            e.line(f"barrier_wait({empty}, {position}.phase ^ 1{debug});")


def mask_of(peers: Peers, cluster: int) -> str:
    """The blocks that share a copy with this one, as bits."""
    first = RANK - peers.number(RANK) * peers.step
    bits = sum(1 << rank for rank in peers.ranks(0))
    return str(bits) if peers.count == cluster else f"{bits} << ({first})"


@PIPELINE.lower("is_full")
def is_full(e: CudaEmitter, call: Call) -> None:
    """One lane asks, so that all have the same answer."""
    ring = call.args["ring"]
    position = e.turns[ring, "fill"]
    bar = f"{e.rings[ring]}_empty + 8 * {position}.stage"
    answer = f"barrier_goes_on({bar}, {position}.phase ^ 1, {call.args['after']})"
    if e.team_lanes > 1:
        answer = f"__shfl_sync(~0u, lane == 0 && {answer}, 0)"
    (result,) = call.results
    assert isinstance(result, Scalar)
    e.assign(result, answer)


@PIPELINE.lower(Leave)
def leave(e: CudaEmitter, node: Leave) -> None:
    """Signal a full stage. Those who read it fence the copies of lanes, which may still be on their way."""
    full, ring = e.full_barrier(node.acquire), node.acquire.pipeline
    each_lane, each_warp = fillings(e.role, ring, e.target)
    if e.target.engines and is_fenced(ring, e.fenced, by_reader=each_lane):
        e.line("fence_async();")
    if each_lane:
        e.line(f"barrier_arrive_copied({full});")
    if each_warp:
        e.line("__syncwarp();")
        e.line(f"if (lane == 0) barrier_arrive({full});")


@PIPELINE.lower(GiveBack)
def give_back(e: CudaEmitter, node: GiveBack) -> None:
    ring = e.rings[node.pipeline]
    position = e.turns[node.pipeline, "back"]
    empty = f"{ring}_empty + 8 * {position}.stage"
    cluster, groups = e.kernel.cluster, groups_of_peers(e.kernel, node.pipeline)
    peer = "lane" if e.team_lanes == 32 else "peer"
    test, arrive = "lane == 0", f"barrier_arrive({empty});"
    if groups:
        masks = " | ".join(mask_of(g, cluster) for g in groups)
        test = f"{Index(masks).operand} >> {peer} & 1"
        arrive = f"barrier_arrive_at({empty}, {peer});"
    if e.team_lanes == 32:
        is_for_stores = node.fences and e.target.engines and is_fenced(node.pipeline, e.fenced)
        if is_for_stores and node not in e.ends_of_loads:
            e.line("fence_async();")
        # All lanes must have read or written the stage before the first one gives it back.
        if node.fences or _lanes_read(e):
            e.line("__syncwarp();")
        arrive = f"if ({test}) {arrive}"
    elif groups:
        arrive = f"{unrolled(cluster, peer)} if ({test}) {arrive}"
    held = f" --{ring}_held;" if e.counts_held(node.pipeline) else ""
    arrive = seen(e, "returned", node.pipeline) + arrive
    for _ in range(node.count):
        if node.exact:
            e.line(f"{arrive}{held}  // {ring}: give the stage back")
            e.step(node)
        else:
            e.line(
                f"if ({ring}_held > {node.keep}) {{ {arrive}{held} {position}.next(); }}  // {ring}: give a stage back"
            )


def _lanes_read(e: CudaEmitter) -> bool:
    """Whether lanes read shared memory with ordinary instructions: copies out, loads, products of single warps."""
    return any(
        by_lanes(e.role, c, e.target)
        and any(isinstance(c.args[name], SharedTile) for name in c.op.effects.reads)
        for c in calls(e.role)
    )
