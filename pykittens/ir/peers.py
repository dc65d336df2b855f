"""The blocks of a cluster that share multicast copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call, Kernel, calls
from pykittens.ir.stages import Pipeline


@dataclass(frozen=True)
class Peers:
    """Groups of `count` blocks of a cluster, whose numbers in the cluster are `step` apart."""

    count: int
    step: int = 1

    @property
    def description(self) -> str:
        """What error texts call them."""
        return f"pk.peers({self.count}, step={self.step})"

    def __bool__(self) -> bool:
        """Whether a block has others in its group: a copy is no multicast copy otherwise."""
        return self.count > 1

    def number(self, rank: Any) -> Any:
        """Which one of its group a block is: a number, or an array or an expression of one, as its rank is."""
        return rank // self.step % self.count

    def ranks(self, rank: int) -> range:
        """The numbers in the cluster of the blocks in the group of a block."""
        first = rank - self.number(rank) * self.step
        return range(first, first + self.count * self.step, self.step)


def peers_of(call: Call, cluster: int) -> Peers | None:
    """The groups of blocks that share a multicast copy; None if a call is none."""
    given = call.args.get("multicast")
    return Peers(cluster) if given is True else given or None


def groups_of_peers(kernel: Kernel, pipeline: Pipeline) -> list[Peers]:
    """The groups of blocks that share copies to the stages of a pipeline, each once."""
    found = {
        peers: None
        for call in calls(kernel.body)
        if (peers := peers_of(call, kernel.cluster))
        and call.args["dst"].stage.acquire.pipeline is pipeline
    }
    return list(found)


def writers(groups: list[Peers], rank: int = 0) -> list[int]:
    """The numbers in the cluster of the blocks that write to the stages of a block, in order; itself among them."""
    return sorted({rank, *(r for peers in groups for r in peers.ranks(rank))})
