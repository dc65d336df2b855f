"""What the roles of an instruction know of one another when it ends: stages that one fills and another drains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from graphlib import TopologicalSorter

from pykittens.ir.nodes import Block, Call, tensors, walk
from pykittens.ir.stages import Acquire, Leave, Pipeline
from pykittens.lang.homes import RolePlace

Flows = dict[RolePlace, Set[RolePlace]]
Found = Mapping[tuple[str, RolePlace], Block]  # the roles of each kind


def flows(kind: str, found: Found, written: Set[str]) -> Flows:
    """For each role of a kind the roles all of whose waits are over when it ends; in an order of such ends.

    A role that drains a ring ends after the last fill of the role that fills it, if all kinds fill and drain the ring
    outside of loops and branches, equally often. That fill comes after all waits of the other role if it stands behind
    its drains and its first read of a tensor that instructions write; otherwise nothing is known. written: these
    tensors.
    """
    steady = _steady(found)
    bodies = {place: body for (name, place), body in found.items() if name == kind}
    fillers: dict[Pipeline, RolePlace] = {}
    drains: dict[RolePlace, set[Pipeline]] = {place: set() for place in bodies}
    for place, body in bodies.items():
        behind, has_read, fills = -1, False, dict[Pipeline, int]()
        for at, node in enumerate(walk(body)):
            match node:
                case Acquire(side="drain"):
                    drains[place].add(node.pipeline)
                    behind = at
                case Leave() if node.acquire.side == "fill":
                    fills[node.acquire.pipeline] = at
                case Call() if not has_read and not written.isdisjoint({*_read(node)}):
                    behind, has_read = at, True
        fillers |= {ring: place for ring, at in fills.items() if at > behind and ring in steady}
    before = {
        place: {fillers[ring] for ring in rings if ring in fillers} - {place}
        for place, rings in drains.items()
    }
    return {place: before[place] for place in TopologicalSorter(before).static_order()}


def _steady(found: Found) -> set[Pipeline]:
    """The rings that each kind fills and drains equally often, outside of loops and branches."""
    rings, unsteady = set[Pipeline](), set[Pipeline]()
    counts: Counter[tuple[str, Pipeline]] = Counter()
    for (kind, _), body in found.items():
        for node in walk(body):
            if isinstance(node, Acquire):
                rings.add(node.pipeline)
                counts[kind, node.pipeline] += 1 if node.side == "fill" else -1
                if node not in body.nodes:
                    unsteady.add(node.pipeline)
    return rings - unsteady - {ring for (_, ring), count in counts.items() if count}


def _read(call: Call) -> Iterator[str]:
    return tensors(call, call.op.effects.reads)
