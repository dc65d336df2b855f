"""The whole program of a kernel: parameters, barriers, and the roles side by side."""

from __future__ import annotations

import re
from importlib.resources import files

from pykittens.errors import BackendError, ResourceError
from pykittens.ir.nodes import (
    Acquire,
    Block,
    Kernel,
    Pipeline,
    Role,
    inputs,
    leaving,
    walk,
    written,
)
from pykittens.ir.values import Value
from pykittens.targets.cuda import debug, semaphores
from pykittens.targets.cuda.debug import STANDING_BYTES, group_places
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.stages import arrivals
from pykittens.targets.cuda.warp_assignment import Team, teams, thread_count
from pykittens.targets.index import Index
from pykittens.targets.names import FUNCTIONS
from pykittens.targets.source import Slot, Source, memory_type, scalar_type
from pykittens.targets.target import Target
from pykittens.types.devices import shared_room


def header(target: Target) -> str:
    """The device functions of a target, its parents' first."""
    return "\n".join(map(text_of, target.headers))


def text_of(name: str) -> str:
    """The text of a file of device functions."""
    return files("pykittens.targets.cuda").joinpath(name).read_text()


def emit(kernel: Kernel, target: Target, debug: bool = False) -> Source:
    """The CUDA C++ of a lowered kernel for a target; for debugging it tells where and why it stops."""
    _check_cluster(kernel, target)
    functions = header(target)
    if debug:
        functions += "\n" + text_of("debug.cuh")
    e = CudaEmitter(kernel, target, functions, debug)
    name = e.names.unique(f"{kernel.name}1" if kernel.name in FUNCTIONS else kernel.name)
    at = layout_shared(kernel, target, debug)
    groups = sum(r.groups for r in kernel.roles)
    left = shared_room(target.shared_bytes, kernel.resident) - at.end
    e.scratch_room = left // max(groups, 1) // 128 * 128
    body = _body(e, at)
    shared_bytes = at.end + e.scratch_bytes * groups
    _check_shared(kernel, target, shared_bytes)
    threads = thread_count(kernel, target)
    outputs = set(written(kernel)) if not kernel.inplace else {p.name for p in kernel.params}
    parameters = [f"const __grid_constant__ TensorMap {name}" for name in e.maps.values()]
    overlaps = starts_early(kernel, target)
    parameters += [_parameter(slot, name, outputs, overlaps) for slot, name in e.slots.items()]
    parameters += ["Report* report", "i64 patience"] if debug else []
    blocks = kernel.resident if kernel.has_roles or kernel.resident > 1 else None
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    cluster = f" __cluster_dims__({kernel.cluster})" if kernel.cluster > 1 else ""
    title = "// " + "\n// ".join([kernel.name, *kernel.doc.splitlines()]).replace("\\\n", "\n")
    program = [
        *e.instructions.values(),
        f'extern "C" __global__ void __launch_bounds__({bounds}){cluster}',
        f"{name}(" + ",\n    ".join(parameters) + ") {",
        *body,
        "}",
        "",
    ]
    budgets = [(team.role.kind, team.budget) for team in teams(kernel, target)]
    return Source(
        name=name,
        title=f"{title}\n",
        functions=functions,
        program="\n".join(program),
        threads=threads,
        shared_bytes=shared_bytes,
        maps=list(e.maps),
        slots=list(e.slots),
        budgets=budgets,
        sites=tuple(e.sites) if debug else None,
        groups=tuple(group_places(kernel, target)) if debug else (),
        overlaps=overlaps,
    )


def _parameter(slot: Slot, name: str, outputs: set[str], overlaps: bool) -> str:
    match slot.kind:
        case "pointer":
            assert slot.dtype is not None
            type_ = memory_type(slot.dtype)
            if slot.argument in outputs:
                return f"{type_}* {name}"
            # What `__restrict__` says is read-only the compiler reads ahead of the wait for the launches before.
            restrict = "" if overlaps else " __restrict__"
            return f"const {type_}*{restrict} {name}"
        case "stride":
            return f"i64 {name}"
        case "extent":
            return f"int {name}"
        case "scalar":
            assert slot.dtype is not None
            return f"{scalar_type(slot.dtype)} {name}"


# -- shared memory ---------------------------------------------------------------------------------


class SharedMap:
    """Where stages and barriers lie in shared memory, in bytes."""

    def __init__(self) -> None:
        self.stages: dict[Pipeline, int] = {}
        self.full: dict[Pipeline, int] = {}
        self.empty: dict[Pipeline, int] = {}
        self.shared: dict[Value, int] = {}
        self.standing = 0  # of each group, in a program for debugging
        self.end = 0


def layout_shared(kernel: Kernel, target: Target, debug: bool = False) -> SharedMap:
    """Place stages at multiples of 1024 bytes and the barriers behind them; refuse more than there is."""
    at = SharedMap()
    for p in kernel.pipelines:
        if p.reuse is not None:
            at.stages[p] = at.stages[p.reuse]
            at.end = max(at.end, at.stages[p] + p.stages * p.stage_bytes)
        else:
            at.stages[p] = at.end
            at.end += p.stages * p.stage_bytes
    for shared_ in semaphores.tiles_first(kernel):
        at.shared[shared_.value] = at.end
        at.end += semaphores.shared_bytes(shared_)
    for p in kernel.pipelines:
        at.full[p], at.empty[p] = at.end, at.end + 8 * p.stages
        at.end += 16 * p.stages
    if debug:
        at.standing = at.end
        at.end += STANDING_BYTES * sum(r.groups for r in kernel.roles)
    _check_shared(kernel, target, at.end)
    return at


def _check_shared(kernel: Kernel, target: Target, total: int) -> None:
    """Refuse more shared memory than a block can have."""
    room = shared_room(target.shared_bytes, kernel.resident)
    if total > room:
        over = total - room
        told: dict[str, object] = {
            p.name: f"{p.stages} x {p.stage_bytes} bytes"
            + (f", in place of {p.reuse.name}" if p.reuse else "")
            for p in kernel.pipelines
        }
        told |= {
            s.value.name or "shared": f"{s.count or 1} x {s.value.type}" for s in kernel.shared
        }
        largest = max(kernel.pipelines, key=lambda p: p.stages * p.stage_bytes, default=None)
        raise ResourceError(
            f"{kernel.name}: {total} bytes of shared memory, {over} more than a block of {target.name} has"
            + (f" where {kernel.resident} share a multiprocessor" if kernel.resident > 1 else ""),
            operands=told,
            loc=largest.loc if largest is not None else kernel.loc,
            help="take fewer stages or smaller tiles",
        )


def _check_cluster(kernel: Kernel, target: Target) -> None:
    if kernel.cluster > target.max_cluster:
        raise BackendError(
            f"{kernel.name}: {target.name} has no clusters of {kernel.cluster} blocks",
            loc=kernel.loc,
            help="clusters and multicast copies need sm_90a; @pk.kernel(cluster=1) runs everywhere",
        )


# -- the program -----------------------------------------------------------------------------------


def _body(e: CudaEmitter, at: SharedMap) -> list[str]:
    kernel = e.kernel
    placed = teams(kernel, e.target)
    if kernel.has_roles:
        _outside_roles(e)
    prologue, e.lines = e.lines, []
    _roles(e, placed)
    roles, e.lines = e.lines, []
    e.line("extern __shared__ __align__(1024) unsigned char shared[];")
    e.line("const int lane = threadIdx.x % 32;")
    if e.debug:
        debug.begin(e, at.standing)
    if kernel.cluster > 1:
        e.line("const u32 rank = cluster_rank();")
    if e.scratch_bytes:
        # Where the warps of each group meet.
        e.line(f"constexpr int SCRATCH = {at.end}, SCRATCH_BYTES = {e.scratch_bytes};")
    if kernel.pipelines or kernel.shared:
        e.line("const u32 smem = (u32)__cvta_generic_to_shared(shared);")
    for p in kernel.pipelines:
        ring = e.rings[p]
        tiles = ", ".join(f"{n}: {t}" if n else str(t) for n, t in p.tiles.items())
        e.line(f"// pipeline {ring}: {p.stages} x ({tiles})")
        e.line(
            f"const u32 {ring} = {Index('smem') + at.stages[p]}, {ring}_full = smem + {at.full[p]}, "
            f"{ring}_empty = smem + {at.empty[p]};"
        )
    semaphores.write_addresses(e, at.shared)
    if kernel.pipelines or kernel.shared:
        _start(e)
    if starts_early(kernel, e.target):
        # Nothing above touches global memory. The next launch waits in its turn.
        e.line("earlier_launches_wait();")
        if _last_to_load(kernel) is None:
            e.line("next_launch_start();")
    return e.lines + prologue + roles


def starts_early(kernel: Kernel, target: Target) -> bool:
    """Whether a launch may start while the one before it still ends."""
    return kernel.overlaps and target.overlaps


def _last_to_load(kernel: Kernel) -> Role | None:
    """The producer at whose end the next launch may start; without one it may from the beginning.

    Blocks that come earlier take their places one by one, as others end. Those that share what they read then lie
    apart, and the L2 cache has more to do: a fifth of the time of products of 256 rows (docs/tuning/gemm.md).
    """
    return next((r for r in reversed(kernel.roles) if r.kind == "producer"), None)


def _outside_roles(e: CudaEmitter) -> None:
    """What stands before the roles: scalars that all threads compute."""
    outside = Block([n for n in e.kernel.body.nodes if not isinstance(n, Role)])
    read = {
        v for role in e.kernel.roles for n in walk(role.body) for v in (*inputs(n), *leaving(n))
    }
    e.begin_role(Role("block", 1, 1, None, outside), outliving=read)
    e.block(outside)
    # The roles have variables of their own and know these by name only.
    for value in read:
        if e.storage.changes(value):
            e.expressions[value] = e.array(value)


def _start(e: CudaEmitter) -> None:
    with e.braces("if (threadIdx.x == 0) {"):
        for name in e.maps.values():
            e.line(f"prefetch({name});")
        for p in e.kernel.pipelines:
            ring = e.rings[p]
            full = arrivals(e.kernel, p, "fill", e.target)
            empty = arrivals(e.kernel, p, "drain", e.target)
            init = f"barrier_init({ring}_full + 8 * i, {full}); barrier_init({ring}_empty + 8 * i, {empty});"
            e.line(f"for (int i = 0; i < {p.stages}; ++i) {{ {init} }}")
        semaphores.write_initials(e)
        if e.target.engines:
            e.line("barrier_init_done();")
            e.line("fence_async();")
    e.line("__syncthreads();")
    if e.kernel.cluster > 1:
        e.line("cluster_sync();")


def _roles(e: CudaEmitter, placed: list[Team]) -> None:
    whole_groups = any(t.role.is_service for t in placed) or any(t.role.warps == 4 for t in placed)
    e.line("const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);")
    if e.target.warpgroups and whole_groups and len(placed) > 1:
        e.line("const int warpgroup = warp_of_block / 4;")
    service = [t for t in placed if t.role.is_service]
    working = [t for t in placed if not t.role.is_service]
    if len(placed) == 1 and not service:
        _role(e, working[0])
    elif service and e.target.warpgroups:
        _warpgroup(e, service, closed=not working)
        _chain(e, working, "} else ")
    else:
        _chain(e, placed, "")
    if e.kernel.cluster > 1:
        # No block may end while another still signals its barriers.
        e.line("cluster_sync();")


def _warpgroup(e: CudaEmitter, service: list[Team], closed: bool) -> None:
    """The branch of the warpgroup that producers and storers share; setmaxnreg asks for one a warpgroup."""
    with e.braces("if (warpgroup == 0) {", "}" if closed else None):
        if service[0].budget is not None:
            e.line(f"registers_down<{service[0].budget}>();")
        for team in service:
            only = " && lane == 0" if team.lanes == 1 else ""
            with e.braces(f"if (warp_of_block == {team.first_warp}{only}) {{  // {team.role.kind}"):
                _role(e, team)


def _chain(e: CudaEmitter, placed: list[Team], word: str) -> None:
    """One branch a role; `word` closes what stands before the first."""
    for team in placed:
        last = team is placed[-1]
        condition = f"if (warp_of_block < {team.first_warp + team.warps}) " if not last else ""
        with e.braces(f"{word}{condition}{{  // {team.role.kind}", "}" if last else None):
            if team.budget is not None:
                e.line(f"registers_up<{team.budget}>();")
            _role(e, team)
        word = "} else "


def _role(e: CudaEmitter, team: Team) -> None:
    """The body of a role, with the names its operations use: warp and thread in the group, group index."""
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
        e.group_number = group + team.number
        e.group_barrier = str(e.group_number + 1)
    elif team.lanes > 1:
        e.line("const int warp = 0;")
        e.line("const int thread = lane;")
    if e.debug:
        debug.enter_role(e, group)
    for p in e.kernel.pipelines:
        _turns(e, p, role)
    semaphores.write_phases(e, role)
    e.block(role.body)
    if starts_early(e.kernel, e.target) and role is _last_to_load(e.kernel):
        e.line("next_launch_start();")
    if e.debug:
        e.line("debug.end();")
    _drop_unused(e, start)


def _drop_unused(e: CudaEmitter, start: int) -> None:
    """Take out the helper constants of a role that its body did not need, the last first."""
    for name in ("thread", "warp"):
        text = "\n".join(
            line for line in e.lines[start:] if not line.lstrip().startswith(("//", "#line"))
        )
        if f"const int {name} = " in text and len(re.findall(rf"\b{name}\b", text)) == 1:
            index = next(
                i for i in range(start, len(e.lines)) if f"const int {name} = " in e.lines[i]
            )
            del e.lines[index]


def _turns(e: CudaEmitter, p: Pipeline, role: Role) -> None:
    """The places of a role in a ring."""
    sides = {n.side for n in walk(role.body) if isinstance(n, Acquire) and n.pipeline is p}
    ring = e.rings[p]
    if "fill" in sides:
        e.line(f"Turn<{p.stages}> {ring}_fill;")
    if "drain" in sides:
        e.line(f"Turn<{p.stages}> {ring}_drain, {ring}_back;")
        if e.counts_held(p):
            e.line(f"int {ring}_held = 0;")
