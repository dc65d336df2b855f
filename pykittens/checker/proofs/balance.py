"""Proofs from the recorded program, for all arguments: stages, turns, arrivals and bytes balance.

Counts are formulas of arguments and tasks. What they leave open is not told here: the emulator decides it for the
arguments of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pykittens.checker.faults import first_of_each
from pykittens.checker.proofs.counts import Visit, times, visits
from pykittens.checker.proofs.formula import Comparison, Formula, compare
from pykittens.checker.proofs.semaphores import Use, prove_semaphores, uses
from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import Loc
from pykittens.ir.nodes import Acquire, Call, Kernel, Pipeline, Role, group_name
from pykittens.ir.values import Turns

What = Literal["fill", "drain", "turn"]
_DONE: dict[str, str] = {"fill": "filled", "drain": "drained"}
_DIFFERENT = (Comparison.UNEQUAL, Comparison.SOMETIMES)


@dataclass(frozen=True)
class Proofs:
    """What was proved of a kernel: mistakes, and sentences of what holds."""

    findings: tuple[Finding, ...]
    proved: tuple[str, ...]


def prove(kernel: Kernel) -> Proofs:
    """Every mistake of balance that the recorded program shows, and what balances for all arguments."""
    counts = _Counts()
    semaphores: list[Use] = []
    for visit in visits(kernel):
        counts.add(visit)
        semaphores += uses(visit)
    told = [
        *(x for p in kernel.pipelines for x in _stages(kernel, p, counts)),
        *(x for t, role in counts.turns() for x in _turns(kernel, t, role, counts)),
        *prove_semaphores(kernel, semaphores),
    ]
    findings = first_of_each(x for x in told if isinstance(x, Finding))
    return Proofs(tuple(findings), tuple(x for x in told if isinstance(x, str)))


Place = tuple[Pipeline | Turns, What, Role]


@dataclass
class _Counts:
    """How often each group of a role takes stages or turns, and where first; the roles in program order."""

    roles: dict[Role, None] = field(default_factory=dict)
    found: dict[Place, dict[int, Formula]] = field(default_factory=dict)
    locs: dict[Place, Loc | None] = field(default_factory=dict)

    def add(self, visit: Visit) -> None:
        self.roles.setdefault(visit.role)
        match visit.node:
            case Acquire() as node:
                self._add((node.pipeline, node.side, visit.role), visit, node.loc)
            case Call() as node:
                for name in node.op.effects.waits:
                    turns = node.args[name]
                    if isinstance(turns, Turns):
                        self._add((turns, "turn", visit.role), visit, node.loc)
            case _:
                pass

    def _add(self, place: Place, visit: Visit, loc: Loc | None) -> None:
        counts = self.found.setdefault(place, {})
        counts[visit.group] = counts.get(visit.group, Formula()) + visit.count
        self.locs.setdefault(place, loc)

    def turns(self) -> list[tuple[Turns, Role]]:
        return [(thing, role) for thing, _, role in self.found if isinstance(thing, Turns)]


@dataclass(frozen=True)
class _Party:
    """Who takes a stage on one side, or a turn: how often, and where."""

    who: str
    what: What
    count: Formula
    loc: Loc | None


def _parties(kernel: Kernel, place: Place, counts: _Counts) -> Iterator[_Party]:
    """The groups of a role; one party where all do the same."""
    _, what, role = place
    found, loc = counts.found.get(place), counts.locs.get(place)
    if found is None:
        return
    groups = [found.get(g, Formula()) for g in range(role.groups)]
    if role.groups > 1 and len(set(groups)) == 1:
        yield _Party(f"each of {role.groups} {role.kind}", what, groups[0], loc)
        return
    for g, count in enumerate(groups):
        yield _Party(group_name(kernel, role, g), what, count, loc)


# -- stages ----------------------------------------------------------------------------------------


def _stages(kernel: Kernel, pipeline: Pipeline, counts: _Counts) -> Iterator[Finding | str]:
    """Every group that fills and every group that drains takes each stage once."""
    sides: tuple[What, What] = ("fill", "drain")
    parties = [
        party
        for side in sides
        for role in counts.roles
        for party in _parties(kernel, (pipeline, side, role), counts)
    ]
    if not parties:
        return
    first, *others = parties
    compared = [compare(first.count, p.count) for p in others]
    for party, comparison in zip(others, compared, strict=True):
        if comparison in _DIFFERENT:
            yield _unbalanced(pipeline, first, party)
    if all(comparison is Comparison.EQUAL for comparison in compared):
        said = ", ".join(f"{_DONE[p.what]} by {p.who}" for p in parties)
        yield f"pipeline `{pipeline.name}`: {said}, {times(first.count)} each"


def _unbalanced(pipeline: Pipeline, a: _Party, b: _Party) -> Finding:
    least = (a.count - b.count).least
    more, less = (a, b) if least is not None and least >= 0 else (b, a)
    rest = more.count - less.count
    said = [f"{_DONE[p.what]} {times(p.count)} by {p.who}" for p in (a, b)]
    return Finding(
        Kind.BARRIER_COUNT,
        f"`{pipeline.name}` is {said[0]}, and {said[1]}",
        steps=tuple(FindingStep(p.who, f"{p.what}s `{pipeline.name}`", p.loc) for p in (a, b)),
        missing=f"a {less.what} by {less.who} for each {more.what} by {more.who}",
        help="every group that fills a pipeline, and every group that drains it, takes each of its stages once"
        + (f"; the counts are equal only where {rest} is 0" if rest.constant is None else ""),
        scope=Scope.ALWAYS,
    )


# -- turns -----------------------------------------------------------------------------------------


def _turns(kernel: Kernel, turns: Turns, role: Role, counts: _Counts) -> Iterator[Finding | str]:
    """All groups of a role make as many turns."""
    parties: Sequence[_Party] = list(_parties(kernel, (turns, "turn", role), counts))
    first, *others = parties
    if not others:
        if role.groups > 1:
            yield f"turns of {role.kind}: {first.who} makes {times(first.count)}"
        return
    for party in others:
        if compare(first.count, party.count) in _DIFFERENT:
            yield Finding(
                Kind.BARRIER_COUNT,
                f"{first.who} takes its turn {times(first.count)}, and {party.who} {times(party.count)}",
                steps=tuple(FindingStep(p.who, "takes its turn", p.loc) for p in (first, party)),
                missing="a turn of each group in every round",
                help="groups hand the turn on in a ring, so all of them make as many turns",
                scope=Scope.ALWAYS,
            )
