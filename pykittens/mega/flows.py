"""What the roles of an instruction know of one another when it ends: stages that one fills and another drains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from graphlib import TopologicalSorter
from typing import TypeVar

from pykittens.ir.nodes import Block, Call, Node, calls, takes, tensors, walk, within
from pykittens.ir.stages import Acquire, Leave, Pipeline

R = TypeVar("R")  # how roles are named
Found = Mapping[tuple[str, R], Block]  # the roles of each kind


def flows(kind: str, found: Found[R], written: Set[str], rewrites: bool = False) -> dict[R, Set[R]]:
    """For each role of a kind the roles all of whose waits are over when it ends; in an order of such ends.

    A role that drains a ring ends after the last fill of the role that fills it, if all kinds fill and drain the ring
    outside of loops and branches, equally often. That fill comes after all waits of the other role if it stands behind
    its drains and its first read of a tensor that instructions write; otherwise nothing is known. written: these
    tensors. rewrites: it waits before its first access to one, not only before a read.
    """
    steady = _steady(found)
    bodies = of_kind(kind, found)
    fillers: dict[Pipeline, R] = {}
    drains: dict[R, set[Pipeline]] = {place: set() for place in bodies}
    for place, body in bodies.items():
        behind, waits, fills = -1, True, dict[Pipeline, int]()
        for at, node in enumerate(walk(body)):
            match node:
                case Acquire(side="drain"):
                    drains[place].add(node.pipeline)
                    behind = at
                case Leave() if node.acquire.side == "fill":
                    fills[node.acquire.pipeline] = at
                case Call() if waits and written & {*accessed([node], reads=True, writes=rewrites)}:
                    behind, waits = at, False
        fillers |= {ring: place for ring, at in fills.items() if at > behind and ring in steady}
    before = {
        place: {fillers[ring] for ring in rings if ring in fillers} - {place}
        for place, rings in drains.items()
    }
    return {place: before[place] for place in TopologicalSorter(before).static_order()}


def of_kind(kind: str, found: Found[R]) -> dict[R, Block]:
    """The roles of a kind."""
    return {place: body for (name, place), body in found.items() if name == kind}


def _steady(found: Found[R]) -> set[Pipeline]:
    """The rings that each kind fills and drains equally often, outside of loops and branches."""
    rings, unsteady = set[Pipeline](), set[Pipeline]()
    counts: Counter[tuple[str, Pipeline]] = Counter()
    for (kind, _), body in found.items():
        for node in (node for node in walk(body) if isinstance(node, Acquire)):
            rings.add(node.pipeline)
            counts[kind, node.pipeline] += 1 if node.side == "fill" else -1
            if node not in body.nodes:
                unsteady.add(node.pipeline)
    return rings - unsteady - {ring for (_, ring), count in counts.items() if count}


def accessed(nodes: Iterable[Node], *, reads: bool = False, writes: bool = False) -> Iterator[str]:
    """The tensors that nodes and those inside them read, write, or do either to."""
    for call in (n for node in nodes for n in within(node) if isinstance(n, Call)):
        effects = call.op.effects
        yield from tensors(call, effects.reads * reads + effects.writes * writes)


def read_ends(found: Found[R], written: Set[str]) -> dict[tuple[str, R, str], Set[R]]:
    """For the reads of a tensor by a role of a kind the roles at whose ends they are over; none if that is not known.

    Reads of lanes are over at the end of the role. A copy to a stage is over when the stage is drained.
    """
    ends: dict[tuple[str, R, str], Set[R]] = {}
    for (kind, place), body in found.items():
        for call in calls(body):
            for tensor in {*accessed([call], reads=True)} & written:
                bodies, is_copy = of_kind(kind, found), call.op.effects.engine is not None
                places = _drainers(call, bodies) if is_copy else {place}
                known = ends.get((kind, place, tensor), places)
                ends[kind, place, tensor] = known | places if known and places else set()
    return ends


def _drainers(call: Call, bodies: Mapping[R, Block]) -> set[R]:
    """The roles that drain the stage of a ring to which a call copies."""
    stage = getattr(call.args.get("dst"), "stage", None)
    if stage is None:
        return set()
    return {p for p, body in bodies.items() if takes(body, stage.acquire.pipeline, "drain")}
