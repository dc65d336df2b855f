"""What the roles of an instruction know of one another when it ends: stages that one fills and another drains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from graphlib import TopologicalSorter

from pykittens.ir.nodes import Block, Call, calls, takes, tensors, walk
from pykittens.ir.stages import Acquire, Leave, Pipeline
from pykittens.lang.homes import RolePlace

Flows = dict[RolePlace, Set[RolePlace]]
Found = Mapping[tuple[str, RolePlace], Block]  # the roles of each kind


def flows(kind: str, found: Found, written: Set[str], rewrites: bool = False) -> Flows:
    """For each role of a kind the roles all of whose waits are over when it ends; in an order of such ends.

    A role that drains a ring ends after the last fill of the role that fills it, if all kinds fill and drain the ring
    outside of loops and branches, equally often. That fill comes after all waits of the other role if it stands behind
    its drains and its first read of a tensor that instructions write; otherwise nothing is known. written: these
    tensors. rewrites: it waits before its first access to one, not only before a read.
    """
    steady = _steady(found)
    bodies = {place: body for (name, place), body in found.items() if name == kind}
    fillers: dict[Pipeline, RolePlace] = {}
    drains: dict[RolePlace, set[Pipeline]] = {place: set() for place in bodies}
    for place, body in bodies.items():
        behind, waits, fills = -1, True, dict[Pipeline, int]()
        for at, node in enumerate(walk(body)):
            match node:
                case Acquire(side="drain"):
                    drains[place].add(node.pipeline)
                    behind = at
                case Leave() if node.acquire.side == "fill":
                    fills[node.acquire.pipeline] = at
                case Call() if waits and not written.isdisjoint({*touched(node, rewrites)}):
                    behind, waits = at, False
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


def touched(call: Call, writes: bool) -> Iterator[str]:
    """The tensors that a call reads, or with `writes` those that it reads or writes."""
    effects = call.op.effects
    return tensors(call, effects.reads + effects.writes if writes else effects.reads)


def read_ends(found: Found, written: Set[str]) -> dict[tuple[str, RolePlace, str], Set[RolePlace]]:
    """For the reads of a tensor by a role of a kind the roles at whose ends they are over; none if that is not known.

    Reads of lanes are over at the end of the role. A copy to a stage is over when the stage is drained.
    """
    ends: dict[tuple[str, RolePlace, str], Set[RolePlace]] = {}
    for (kind, place), body in found.items():
        for call in calls(body):
            for tensor in {*tensors(call, call.op.effects.reads)} & written:
                places = {place}
                if call.op.effects.engine is not None:
                    stage = getattr(call.args.get("dst"), "stage", None)
                    places = {
                        drainer
                        for (other, drainer), its in found.items()
                        if stage is not None
                        and other == kind
                        and takes(its, stage.acquire.pipeline, "drain")
                    }
                known = ends.get((kind, place, tensor), places)
                ends[kind, place, tensor] = known | places if known and places else set()
    return ends
