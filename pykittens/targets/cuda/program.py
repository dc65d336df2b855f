"""The whole program of a kernel: parameters, barriers, and the branches of the roles."""

from __future__ import annotations

import re
from importlib.resources import files

from pykittens.errors import UnsupportedError
from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    If,
    Kernel,
    Node,
    Role,
    calls,
    tensors,
    walk,
    within,
    written,
)
from pykittens.ir.stages import Pipeline
from pykittens.ir.structure import uses
from pykittens.targets.clock_reads import begin_clocks, end_clocks
from pykittens.targets.cuda import semaphores
from pykittens.targets.cuda.allocation import Allocation, check_shared, layout_shared
from pykittens.targets.cuda.debug import begin_debug, enter_debug
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.pipeline import wait_for_returns
from pykittens.targets.cuda.stages import arrivals
from pykittens.targets.cuda.tickets import readers
from pykittens.targets.cuda.turns import shared_turns
from pykittens.targets.cuda.warp_assignment import (
    LAST_NAMED_BARRIER,
    SERVICE_WARPS,
    Team,
    entry_registers,
    first_group,
    groups_of_block,
    service_warps,
    teams,
    thread_count,
)
from pykittens.targets.index import Index
from pykittens.targets.lines import comment, written_out
from pykittens.targets.names import kernel_name
from pykittens.targets.source import Slot, Source, memory_type, scalar_type
from pykittens.targets.target import Target
from pykittens.types.devices import shared_room


def header(target: Target) -> str:
    """The device functions of a target, those of its ancestors first."""
    return "\n".join(map(text_of, target.headers))


def text_of(name: str) -> str:
    """The text of a file of device functions."""
    return files("pykittens.targets.cuda").joinpath(name).read_text()


def emit(kernel: Kernel, target: Target, debug: bool = False, clocks: bool = False) -> Source:
    """The CUDA C++ of a lowered kernel for a target.

    A debug program reports where and why it stops; one with clock reads records what its groups do, and when.
    """
    assert not (debug and clocks), "the checks of a debug program would be timed"
    _check_cluster(kernel, target)
    more = ["debug.cuh"] * debug + ["clock.cuh"] * clocks
    functions = "\n".join([header(target), *map(text_of, more)])
    e = CudaEmitter(kernel, target, functions, debug, clocks)
    name = e.names.unique(kernel_name(kernel.name))
    at = layout_shared(kernel, target, debug)
    groups = sum(r.groups for r in kernel.roles)
    room = shared_room(target.shared_bytes, kernel.resident) - at.end
    e.scratch_room = room // max(groups, 1) // 128 * 128
    e.tickets = at.tickets
    body = _body(e, at)
    shared_bytes = at.end + e.scratch_bytes * groups
    check_shared(kernel, target, shared_bytes)
    threads, overlaps = thread_count(kernel, target), starts_early(kernel, target)
    outputs = {p.name for p in kernel.params} if kernel.inplace else set(written(kernel))
    parameters = [f"const __grid_constant__ TensorMap {name}" for name in e.maps.values()]
    parameters += [
        _parameter(slot, name, outputs, overlaps, kernel.ready) for slot, name in e.slots.items()
    ]
    parameters += ["Report* report", "i64 patience"] if debug else []
    parameters += ["u64* clock_records", "int most_records", "int most_blocks"] if clocks else []
    bounded = kernel.has_roles or kernel.resident > 1
    bounds = f"{threads}, {kernel.resident}" if bounded else f"{threads}"
    cluster = f" __cluster_dims__({kernel.cluster})" if kernel.cluster > 1 else ""
    title = "\n".join(map(comment, [kernel.name, *kernel.doc.splitlines()]))
    program = [
        *e.instructions.values(),
        f'extern "C" __global__ void __launch_bounds__({bounds}){cluster}',
        f"{name}(" + ",\n    ".join(parameters) + ") {",
        *body,
        "}",
        "",
    ]
    return Source(
        name=name,
        title=f"{title}\n",
        functions=functions,
        program="\n".join(program),
        threads=threads,
        shared_bytes=shared_bytes,
        maps=list(e.maps),
        slots=list(e.slots),
        budgets=[(team.role.shown, team.budget) for team in teams(kernel, target)],
        sites=tuple(e.sites) if debug else None,
        reads=tuple(e.reads) if clocks else None,
        groups=tuple(groups_of_block(kernel, target)) if debug or clocks else (),
        overlaps=overlaps,
    )


def _parameter(
    slot: Slot, name: str, outputs: set[str], overlaps: bool, ready: frozenset[str]
) -> str:
    """The declaration of a parameter."""
    match slot.kind:
        case "pointer":
            assert slot.dtype is not None
            type_ = memory_type(slot.dtype)
            if slot.argument in outputs:
                return f"{type_}* {name}"
            # The compiler may read `const __restrict__` memory ahead of the wait for earlier launches.
            restrict = "" if overlaps and slot.argument not in ready else " __restrict__"
            return f"const {type_}*{restrict} {name}"
        case "stride":
            return f"i64 {name}"
        case "extent":
            return f"int {name}"
        case "scalar":
            assert slot.dtype is not None
            return f"{scalar_type(slot.dtype)} {name}"


def _check_cluster(kernel: Kernel, target: Target) -> None:
    if kernel.cluster > target.max_cluster:
        raise UnsupportedError(
            f"{kernel.name}: {target.name} has no clusters of {kernel.cluster} blocks",
            loc=kernel.loc,
            help="clusters and multicast copies need sm_90a; @pk.kernel(cluster=1) runs everywhere",
        )


# -- the block -------------------------------------------------------------------------------------


def _body(e: CudaEmitter, at: Allocation) -> list[str]:
    """The lines of the kernel: definitions that all threads need, scalars outside roles, and the roles."""
    kernel = e.kernel
    if kernel.has_roles:
        _outside_roles(e)
    outside, e.lines = e.lines, []
    _roles(e)
    roles, e.lines = e.lines, []
    e.line("extern __shared__ __align__(1024) unsigned char shared[];")
    e.line("const int lane = threadIdx.x % 32;")
    if e.debug:
        begin_debug(e, at.standing)
    if kernel.cluster > 1:
        e.line("const u32 rank = cluster_rank();")
    if e.scratch_bytes:
        e.line(f"constexpr int SCRATCH = {at.end}, SCRATCH_BYTES = {e.scratch_bytes};")
    has_shared = bool(at.full or kernel.shared or e.tickets is not None)
    if has_shared:
        e.line("const u32 smem = (u32)__cvta_generic_to_shared(shared);")
    for p in at.full:
        ring = e.rings[p]
        e.line(f"// pipeline {ring}: {p.stages} x ({p.contents})")
        e.line(
            f"const u32 {ring} = {Index('smem') + at.stages[p]}, {ring}_full = smem + {at.full[p]}, "
            f"{ring}_empty = smem + {at.empty[p]};"
        )
    semaphores.write_addresses(e, at.shared)
    if has_shared:
        _initialize(e, list(at.full))
    if starts_early(kernel, e.target):
        # Nothing above accesses global memory.
        if not _waits_in_roles(kernel):
            e.line("earlier_launches_wait();")
        if _last_producer(kernel) is None:
            e.line("next_launch_start();")
    return written_out(e.lines + outside + roles)


def starts_early(kernel: Kernel, target: Target) -> bool:
    """Whether a launch may start before the previous one has ended."""
    return kernel.overlaps and target.overlaps


def _waits_in_roles(kernel: Kernel) -> bool:
    """Whether each role waits for earlier launches by itself, because it may have work to do before they have ended.

    It reads tensors that are ready, or prefetches any.
    """
    outside = (n for n in kernel.outside.nodes if kernel.has_roles)
    early = bool(kernel.ready) or any(c.op.effects.prefetches for c in calls(kernel.body))
    return early and not any(_needs_earlier(n, kernel) for n in outside)


def _needs_earlier(node: Node, kernel: Kernel) -> bool:
    """Whether a node accesses a tensor that earlier launches may write, or takes tasks by tickets."""
    if any(isinstance(n, ForTasks) and n.tasks.tickets is not None for n in within(node)):
        return True
    for call in (n for n in within(node) if isinstance(n, Call)):
        effects = call.op.effects
        touched = {*tensors(call, effects.reads + effects.writes + effects.flags)}
        if not touched <= kernel.ready:
            return True
    return False


def _first_needs(block: Block, kernel: Kernel) -> list[Node]:
    """The nodes before which a block waits for earlier launches.

    A role that takes different instructions in turn waits in the branches of those that need it.
    """
    found = list[Node]()
    for node in block.nodes:
        inner = _branches_of_instructions(node, kernel)
        for branch in inner:
            found += _first_needs(branch, kernel)
        if not inner and _needs_earlier(node, kernel):
            return [*found, node]
    return found


def _branches_of_instructions(node: Node, kernel: Kernel) -> list[Block]:
    """Those of a node, or of a loop over nothing else that needs earlier launches."""
    if isinstance(node, If):
        return [node.then] if node.then.kind else []
    if not isinstance(node, For | ForTasks):
        return []
    needs = [n for n in node.body.nodes if _needs_earlier(n, kernel)]
    found = [_branches_of_instructions(n, kernel) for n in needs]
    return [branch for some in found for branch in some] if all(found) else []


def _last_producer(kernel: Kernel) -> Role | None:
    """The producer at whose end the next launch may start; without a producer it may start at once.

    Blocks of the next launch that start earlier do so one by one, as blocks of this launch end. Blocks that share
    operands then run far apart, with more L2 misses: a fifth of the time of products of 256 rows (docs/tuning/gemm.md).
    """
    return next((r for r in reversed(kernel.roles) if r.kind == "producer"), None)


def _outside_roles(e: CudaEmitter) -> None:
    """Write the scalars before the roles, which all threads compute."""
    outside = e.kernel.outside
    read = {v for role in e.kernel.roles for n in walk(role.body) for v in uses(n)}
    e.begin_role(Role("block", 1, 1, None, outside), outliving=read)
    e.block(outside)
    # The storage of a role does not know these variables.
    for value in read:
        if e.storage.changes(value):
            e.expressions[value] = e.array(value)


def _initialize(e: CudaEmitter, pipelines: list[Pipeline]) -> None:
    """Prefetch tensor maps and initialise barriers, those of the pipelines that a role uses."""
    with e.braces("if (threadIdx.x == 0) {"):
        for name in e.maps.values():
            e.line(f"prefetch({name});")
        for p in pipelines:
            ring = e.rings[p]
            full, empty = (arrivals(e.kernel, p, side, e.target) for side in ("fill", "drain"))
            init = f"barrier_init({ring}_full + 8 * i, {full}); barrier_init({ring}_empty + 8 * i, {empty});"
            e.line(f"for (int i = 0; i < {p.stages}; ++i) {{ {init} }}")
        semaphores.write_initials(e)
        if e.tickets is not None:
            e.line(f"tickets_init(smem + {e.tickets}, {readers(e.kernel, e.target)});")
        if e.target.engines:
            e.line("barrier_init_done();")
            e.line("fence_async();")
    e.line("__syncthreads();")
    if e.kernel.cluster > 1:
        e.line("cluster_start();")


# -- the roles -------------------------------------------------------------------------------------


def _roles(e: CudaEmitter) -> None:
    """Write a branch for each role."""
    assigned = teams(e.kernel, e.target)
    service = [t for t in assigned if t.role.is_service]
    working = [t for t in assigned if not t.role.is_service]
    e.line("const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);")
    by_warpgroup = len(assigned) > 1 and any(t.role.warps == 4 for t in working)
    if e.target.warpgroups and (service or by_warpgroup):
        e.line("const int warpgroup = warp_of_block / 4;")
    if len(assigned) == 1 and working:
        _role(e, working[0])
    elif service and e.target.warpgroups:
        _service_warpgroups(e, service, closed=not working)
        _branches(e, working, "} else ")
    else:
        _branches(e, assigned, "")
    if any(map(_arrives_elsewhere, calls(e.kernel.body))):
        # No block may end while another one may signal its semaphores.
        e.line("cluster_sync();")


def _arrives_elsewhere(call: Call) -> bool:
    """Whether a group arrives at a semaphore of another block; what a block is sent it waits for."""
    return call.op.effects.engine is None and call.names_block


def _service_warpgroups(e: CudaEmitter, service: list[Team], closed: bool) -> None:
    """The branch of the warpgroups that producers and storers share, mostly one."""
    count = service_warps(e.kernel, e.target) // SERVICE_WARPS
    test = "warpgroup == 0" if count == 1 else f"warpgroup < {count}"
    with e.braces(f"if ({test}) {{", "}" if closed else None):
        _set_registers(e, service[0])
        for team in service:
            test, note = f"warp_of_block == {team.first_warp}", ""
            if team.lanes == 1:
                test += " && lane == 0"
            if team.sharers > 1:
                end = team.first_warp + team.sharers
                test = f"warp_of_block >= {team.first_warp} && warp_of_block < {end}"
                note = f": its {team.sharers} warps share the copies"
            with e.braces(f"if ({test}) {{  // {team.role.shown}{note}"):
                _role(e, team)


def _branches(e: CudaEmitter, assigned: list[Team], word: str) -> None:
    """One branch per role; `word` precedes the first."""
    for team in assigned:
        last = team is assigned[-1]
        condition = f"if (warp_of_block < {team.first_warp + team.warps}) " if not last else ""
        with e.braces(f"{word}{condition}{{  // {team.role.shown}", "}" if last else None):
            _set_registers(e, team)
            _role(e, team)
        word = "} else "


def _set_registers(e: CudaEmitter, team: Team) -> None:
    """Take or give the registers that a team's warpgroups have a budget for."""
    if team.budget is not None:
        entry = entry_registers(thread_count(e.kernel, e.target), e.target, e.kernel.resident)
        e.line(f"registers_{'up' if team.budget >= entry else 'down'}<{team.budget}>();")


def _role(e: CudaEmitter, team: Team) -> None:
    """The body of a role, after definitions of its warp and thread in the group and of the group's index."""
    role, start, group = team.role, len(e.lines), Index(0)
    e.begin_team(team)
    if not role.is_service:
        warp = Index("warp_of_block") - team.first_warp
        if role.groups > 1 or role.warps == 1:
            warp, group = warp % role.warps, warp // role.warps
        e.line(f"const int warp = {warp};")
        e.line(f"const int thread = {'warp * 32 + ' if role.warps > 1 else ''}lane;")
        if role.index is not None and (role.groups > 1 or role.index.name):
            e.line(f"const int {e.names(role.index)} = {group};")
            group = Index(e.names(role.index))
        last = team.number + role.groups
        assert role.warps == 1 or last <= LAST_NAMED_BARRIER, f"a group has the barrier {last}"
        e.group_number = group + team.number
        e.group_barrier = str(e.group_number + 1)
    elif team.lanes > 1:
        e.line("const int warp = 0;")
        thread = "lane"
        if team.sharers > 1:
            thread = f"{(Index('warp_of_block') - team.first_warp) * 32 + 'lane'}"
        e.line(f"const int thread = {thread};")
    if e.debug:
        enter_debug(e, group)
    if e.clocks:
        begin_clocks(e, group + first_group(team, e.kernel, e.target))
    _ring_positions(e)
    semaphores.write_phases(e, role)
    waits = starts_early(e.kernel, e.target) and _waits_in_roles(e.kernel)
    if waits:
        e.waits_before = {*_first_needs(role.body, e.kernel)}
    e.block(role.body)
    wait_for_returns(e)
    if waits and not any(_needs_earlier(n, e.kernel) for r in e.kernel.roles for n in r.body.nodes):
        # The next launch waits for this one alone, which must not end before earlier ones.
        e.line("earlier_launches_wait();")
    if starts_early(e.kernel, e.target) and role is _last_producer(e.kernel):
        e.line("next_launch_start();")
    if e.debug:
        e.line("debug.end();")
    if e.clocks:
        end_clocks(e)
    _drop_unused(e, start)


def _ring_positions(e: CudaEmitter) -> None:
    """Define the positions of a role in the rings that it fills or drains."""
    e.turns, e.ends = {}, set()
    for turn in shared_turns(e.role.body):
        name, *others = (f"{e.rings[p]}_{kind}" for p, kind in turn.positions)
        e.turns |= dict.fromkeys(turn.positions, name)
        e.ends |= turn.ends
        equal = f"  // also {', '.join(others)}" if others else ""
        e.line(f"Turn<{turn.positions[0][0].stages}> {name};{equal}")
    for p in e.kernel.pipelines:
        if e.counts_held(p):
            e.line(f"int {e.rings[p]}_held = 0;")


def _drop_unused(e: CudaEmitter, start: int) -> None:
    """Remove the definitions of `thread` and `warp` if the role does not use them; `thread` may use `warp`."""
    for name in ("thread", "warp"):
        code = [x for x in e.lines[start:] if not x.lstrip().startswith(("//", "#line"))]
        definition = next((x for x in code if f"const int {name} = " in x), None)
        if definition and len(re.findall(rf"\b{name}\b", "\n".join(code))) == 1:
            del e.lines[e.lines.index(definition, start)]
