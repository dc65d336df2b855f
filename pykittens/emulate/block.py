"""One block of a launch: which tasks are its own, its rings of shared memory and its copies under way."""

from __future__ import annotations

from collections.abc import Mapping

from pykittens.emulate.barriers import Copy, Ring, shared_memory
from pykittens.emulate.memory import Array
from pykittens.emulate.shared import shared_values
from pykittens.ir.nodes import Kernel, is_multicast, takes


class BlockRun:
    """The `rank`-th block of the `index`-th of `count` clusters; `cluster` are the blocks of its own."""

    def __init__(
        self,
        kernel: Kernel,
        tensors: Mapping[str, Array],
        extents: tuple[int, ...],
        index: int,
        count: int,
        rank: int,
    ) -> None:
        self.kernel, self.tensors, self.extents = kernel, tensors, extents
        self.index, self.count, self.rank = index, count, rank
        self.number = index * kernel.cluster + rank
        self.cluster: list[BlockRun] = [self]
        self.copies: list[Copy] = []
        self.shared = shared_values(kernel.shared)
        roles = kernel.roles
        takers = {
            (p, side): sum(r.groups for r in roles if takes(r.body, p, side))
            for p in kernel.pipelines
            for side in ("fill", "drain")
        }
        # A stage that the other blocks of a cluster write to is free when their consumers are done, too.
        self.shared_rings = {p for p in kernel.pipelines if is_multicast(kernel, p)}
        memory = shared_memory(kernel.pipelines)
        self.rings = {
            p: Ring(
                p,
                takers[p, "fill"],
                takers[p, "drain"] * (kernel.cluster if p in self.shared_rings else 1),
                memory[p],
            )
            for p in kernel.pipelines
        }
