"""Runs a recorded kernel on NumPy arrays.

Each group of each role is a coroutine that stops if it waits for others. A seeded schedule picks the group that
continues and the time at which engines work. By default engines work as late as barriers and waits allow, so memory
that is used too early is found unwritten: shared memory holds NaN until it is filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from pykittens.emulate.block import BlockRun, LaunchRun
from pykittens.emulate.deadlock import deadlock
from pykittens.emulate.group import Group, uneven
from pykittens.emulate.memory import Array
from pykittens.emulate.schedule import SeededSchedule
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import ArgumentError, BarrierError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Block, Kernel, Role, Tasks, reads_flags, waits_for_flags
from pykittens.ir.orders import ROW_MAJOR, evaluated, limited, task_extents
from pykittens.ir.stages import Pipeline
from pykittens.ir.values import Global, Value

# The usual number of blocks that share the tasks of a persistent kernel; a GPU has one or more per multiprocessor.
BLOCKS = 4
# The blocks that run at once if they wait for one another; no GPU runs as many.
MOST_AT_ONCE = 2**16


def run(
    kernel: Kernel,
    tensors: Mapping[str, Array],
    scalars: Mapping[str, Any],
    seed: int = 0,
    watch: Watcher = NOBODY,
    resident: int | None = None,
) -> None:
    """Run a lowered kernel; tensors are written in place. The seed picks the schedule; `watch` receives the events.

    resident: the number of clusters that run at once. The next one starts when one of them has ended. If None, all run
    at once that wait for flags, as a GPU guarantees; otherwise the schedule chooses the number.
    """
    known: dict[Value, Any] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            known.update(zip(param.extents, tensors[param.name].shape, strict=True))
        else:
            known[param] = scalars[param.name]
    schedule = SeededSchedule(seed)
    dims = tuple(int(host_value(d, known)) for d in kernel.launch.dims) if kernel.launch else ()
    if isinstance(kernel.launch, Tasks):
        extents = task_extents(kernel.launch, dims, kernel.cluster)
        most = host_value(kernel.launch.most, known)
        clusters = schedule.block_count(limited(prod(extents), most, kernel.cluster), BLOCKS)
        order = evaluated(kernel.launch.order, known)
    else:
        extents, order = dims, ROW_MAJOR
        clusters = prod(dims) // kernel.cluster
    waiting = waits_for_flags(kernel)
    # Blocks that read flags are ordered by them, other blocks run one cluster after another.
    at_once = clusters if reads_flags(kernel) else 1
    if at_once * kernel.cluster > MOST_AT_ONCE:
        raise ArgumentError(
            f"{kernel.name}: its blocks exchange data, so all {clusters * kernel.cluster} are kept at once, "
            f"and the emulator keeps at most {MOST_AT_ONCE}",
            loc=kernel.launch.loc if kernel.launch else None,
            help="pk.persistent(...) distributes the tasks among a few blocks",
        )
    if kernel.tickets is not None:
        _check_tickets(kernel, kernel.tickets, tensors)
    launch = LaunchRun(kernel, tensors, extents, order, clusters, schedule, watch)
    indices = schedule.block_order(clusters)
    if resident is None:
        chosen = at_once > 1 and not waiting
        resident = schedule.residents(clusters, BLOCKS) if chosen else clusters
    with np.errstate(all="ignore"):
        for first in range(0, clusters, max(at_once, 1)):
            some = [_cluster(launch, index) for index in indices[first : first + at_once]]
            _run_together(launch, some, known, resident)


def _check_tickets(kernel: Kernel, tickets: Global, tensors: Mapping[str, Array]) -> None:
    """Raise unless the tensor that counts the tasks that are taken starts with a 0."""
    first = tensors[tickets.name].data[:1]
    if first.tolist() != [0]:
        raise ArgumentError(
            f"{kernel.name}: `{tickets.name}`, the tickets of its tasks, must start with a 0, not {first}",
            loc=kernel.launch.loc if kernel.launch else None,
        )


def _run_together(
    launch: LaunchRun, clusters: list[list[BlockRun]], known: Mapping[Value, Any], resident: int
) -> None:
    """Run clusters to their end, at most `resident` at once."""
    blocks = [b for cluster in clusters for b in cluster]
    groups = {block: _groups(block, known) for block in blocks}
    all_groups = [g for gs in groups.values() for g in gs]
    launch.watch.together(blocks, all_groups)
    launch.schedule.begin()
    of_clusters = [[g for block in cluster for g in groups[block]] for cluster in clusters]
    _run_groups(of_clusters, blocks, launch.schedule, resident)
    launch.watch.over(blocks)
    if not launch.watch.reports_unfinished:
        for mine in groups.values():
            _check_drained(mine, launch.kernel.pipelines)
    for group in all_groups:
        group.env.clear()
    for block in blocks:
        block.end()


def _cluster(launch: LaunchRun, index: int) -> list[BlockRun]:
    """The blocks of one cluster."""
    blocks = [BlockRun(launch, index, rank) for rank in range(launch.kernel.cluster)]
    for block in blocks:
        block.cluster = blocks
    return blocks


def _groups(block: BlockRun, known: Mapping[Value, Any]) -> list[Group]:
    """The groups of a block; nodes outside the roles are computed once for all of them."""
    kernel = block.launch.kernel
    env = {**known, **block.shared}
    if kernel.has_roles:
        outside = Block([n for n in kernel.body.nodes if not isinstance(n, Role)])
        for _ in Group(block, kernel.roles[0], 0, env).run(outside):
            pass
    return [
        Group(block, role, number, dict(env))
        for role in kernel.roles
        for number in range(role.groups)
    ]


def _run_groups(
    clusters: list[list[Group]], blocks: list[BlockRun], schedule: SeededSchedule, resident: int
) -> None:
    """Run the groups of clusters to their end; delayed copies land when no group can continue."""
    starting = iter(clusters)
    waiting = [g for groups in islice(starting, resident) for g in groups]
    started = list(waiting)
    while waiting:
        ready = [g for g in waiting if g.ready()]
        going = [g for g in ready if not g.is_late]
        if not going or schedule.lands_next(len(going)):
            copying = [b for b in blocks if b.copies]
            if copying:
                copies = schedule.pick(copying).copies
                copy = schedule.pick(copies)
                copies.remove(copy)
                copy.finish()
                continue
            if not ready:
                raise deadlock(started, waiting, sum(1 for _ in starting), resident)
            going = going or ready
        group = schedule.pick_group(going)
        if not group.advance():
            waiting.remove(group)
            if not any(g.block.cluster is group.block.cluster for g in waiting):
                new = next(starting, [])
                waiting += new
                started += new


def _check_drained(groups: list[Group], pipelines: list[Pipeline]) -> None:
    """Raise if blocks have ended with filled stages that no group drained: copies may still be landing there."""
    for pipeline, filled, drained in uneven(groups, pipelines):
        raise BarrierError(
            f"the pipeline `{pipeline.name}` was filled {filled} times and drained {drained} times",
            operands={"made at": pipeline.loc},
            loc=pipeline.loc,
            help="every stage that is filled must be drained before the block ends",
        )
