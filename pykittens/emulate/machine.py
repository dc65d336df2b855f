"""Runs a recorded kernel on NumPy arrays.

Each group of each role is a coroutine that stops where it waits for others. A seeded scheduler picks who goes on.
Copies land, products run and stores are read as late as their barriers and waits allow, so what is used too
early is found unwritten: shared memory holds NaN until it has been filled.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from pykittens.emulate.block import BlockRun
from pykittens.emulate.group import Group
from pykittens.emulate.memory import Array
from pykittens.errors import DeadlockError, LanguageError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Block, Kernel, Pipeline, Role, Tasks, waits_for_flags
from pykittens.ir.orders import task_extents
from pykittens.ir.values import Global, Value

# Blocks that share the tasks of a persistent kernel here; a GPU has one or more a multiprocessor.
BLOCKS = 4


def run(
    kernel: Kernel, tensors: Mapping[str, Array], scalars: Mapping[str, Any], seed: int = 0
) -> None:
    """Run a lowered kernel; tensors are written in place. The seed picks the schedule."""
    known: dict[Value, Any] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            known.update(zip(param.extents, tensors[param.name].shape, strict=True))
        else:
            known[param] = scalars[param.name]
    dims = tuple(int(host_value(d, known)) for d in kernel.launch.dims) if kernel.launch else ()
    extents = (
        task_extents(kernel.launch, dims, kernel.cluster)
        if isinstance(kernel.launch, Tasks)
        else dims
    )
    total = prod(extents)
    clusters = min(total, BLOCKS) if isinstance(kernel.launch, Tasks) else total // kernel.cluster
    rng = random.Random(seed)
    # Blocks that wait for one another run at once, others a cluster at a time.
    at_once = clusters if waits_for_flags(kernel) else 1
    with np.errstate(all="ignore"):
        for first in range(0, clusters, max(at_once, 1)):
            blocks: list[BlockRun] = []
            for cluster in range(first, first + at_once):
                blocks += _cluster(kernel, tensors, extents, cluster, clusters)
            groups = {block: _groups(kernel, block, known) for block in blocks}
            _schedule([g for gs in groups.values() for g in gs], blocks, rng)
            for mine in groups.values():
                _check_drained(mine, kernel.pipelines)


def _cluster(
    kernel: Kernel,
    tensors: Mapping[str, Array],
    extents: tuple[int, ...],
    index: int,
    count: int,
) -> list[BlockRun]:
    """The blocks of one cluster."""
    blocks = [
        BlockRun(kernel, tensors, extents, index, count, rank) for rank in range(kernel.cluster)
    ]
    for block in blocks:
        block.cluster = blocks
    return blocks


def _groups(kernel: Kernel, block: BlockRun, known: Mapping[Value, Any]) -> list[Group]:
    """The groups of a block; what stands outside the roles has been computed for all of them."""
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


def _schedule(groups: list[Group], blocks: list[BlockRun], rng: random.Random) -> None:
    """Run groups that work together to their end; copies land and stores are written when nothing else can go on."""
    waiting = list(groups)
    while waiting:
        ready = [g for g in waiting if g.ready()]
        if not (going := [g for g in ready if not g.is_late]):
            under_way = [b for b in blocks if b.copies]
            if under_way:
                copies = under_way[rng.randrange(len(under_way))].copies
                copies.pop(rng.randrange(len(copies))).finish()
                continue
            if not ready:
                raise _deadlock(waiting)
            going = ready
        group = going[rng.randrange(len(going))] if len(going) > 1 else going[0]
        if not group.advance():
            waiting.remove(group)


def _check_drained(groups: list[Group], pipelines: list[Pipeline]) -> None:
    """Raise if blocks have ended with stages filled that nobody drained: copies may still be landing in them."""
    for pipeline in pipelines:
        filled = max(g.turns[pipeline, "fill"] for g in groups)
        drained = max(g.turns[pipeline, "drain"] for g in groups)
        if filled != drained:
            raise LanguageError(
                f"the pipeline `{pipeline.name}` was filled {filled} times and drained {drained} times",
                operands={"made at": pipeline.loc},
                loc=pipeline.loc,
                help="every stage that is filled must be drained before the block ends",
            )


def _deadlock(waiting: list[Group]) -> DeadlockError:
    several = len({g.block for g in waiting}) > 1
    told = {}
    for group in waiting:
        assert group.waits_for is not None
        name = group.name
        if several:
            role = "" if name == "block" else f", {name}"
            name = f"block {group.block.number}{role}"
        told[name] = group.waits_for.told()
    first = waiting[0].waits_for
    return DeadlockError(
        "deadlock: every role that is left waits", operands=told, loc=first.loc if first else None
    )
