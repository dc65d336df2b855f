"""Proofs from the recorded program, for all arguments: stages, turns, arrivals and bytes balance.

Counts are formulas of arguments and tasks. An undecided comparison is not reported: the emulator decides it for the
arguments of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pykittens.checker.faults import merged
from pykittens.checker.proofs.counts import Visit, times, visits
from pykittens.checker.proofs.formula import Comparison, Formula, compare
from pykittens.checker.proofs.semaphores import Use, prove_semaphores, uses
from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, Node, Role, group_name
from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.values import Turns

_DONE = {"fill": "filled", "drain": "drained"}

# Visits of a role that fill or drain a pipeline, or take a turn.
_Taken = Mapping[tuple[Pipeline | Turns, str, Role], Sequence[Visit]]


@dataclass(frozen=True)
class Proofs:
    """The faults that were proved, and sentences that hold for all arguments."""

    findings: tuple[Finding, ...]
    proved: tuple[str, ...]


def prove(kernel: Kernel) -> Proofs:
    """Every mismatch that the recorded program shows, and the counts that match for all arguments."""
    taken: dict[tuple[Pipeline | Turns, str, Role], list[Visit]] = {}
    semaphores: list[Use] = []
    for visit in visits(kernel):
        for resource, action in _takes(visit.node):
            taken.setdefault((resource, action, visit.role), []).append(visit)
        semaphores += uses(visit)
    results = [
        *(x for p in kernel.pipelines for x in _stages(kernel, p, taken)),
        *(
            x
            for t, _, role in taken
            if isinstance(t, Turns)
            for x in _turns(kernel, t, role, taken)
        ),
        *prove_semaphores(kernel, semaphores),
    ]
    findings = merged(x for x in results if isinstance(x, Finding))
    return Proofs(tuple(findings), tuple(x for x in results if isinstance(x, str)))


def _takes(node: Node) -> Iterator[tuple[Pipeline | Turns, str]]:
    """The pipeline that a node fills or drains, or the turns of which it takes one."""
    if isinstance(node, Acquire):
        yield node.pipeline, node.side
    elif isinstance(node, Call):
        for name in node.op.effects.waits:
            if isinstance(turns := node.args[name], Turns):
                yield turns, "turn"


@dataclass(frozen=True)
class _Party:
    """Groups that fill, drain or take turns: how often, and the first line."""

    who: str
    action: str
    count: Formula
    loc: Loc | None


def _parties(
    kernel: Kernel, resource: Pipeline | Turns, action: str, role: Role, taken: _Taken
) -> Iterator[_Party]:
    """The groups of a role; one party if their counts are the same."""
    found = taken.get((resource, action, role))
    if found is None:
        return
    loc = found[0].node.loc
    counts = [sum((v.count for v in found if v.group == g), Formula()) for g in range(role.groups)]
    if role.groups > 1 and len(set(counts)) == 1:
        yield _Party(f"each of {role.groups} {role.shown}", action, counts[0], loc)
        return
    for g, count in enumerate(counts):
        yield _Party(group_name(kernel, role, g), action, count, loc)


# -- stages ----------------------------------------------------------------------------------------


def _stages(kernel: Kernel, pipeline: Pipeline, taken: _Taken) -> Iterator[Finding | str]:
    """Every group that fills and every group that drains takes each stage once."""
    parties = [
        party
        for action in _DONE
        for role in dict.fromkeys(role for *_, role in taken)
        for party in _parties(kernel, pipeline, action, role, taken)
    ]
    if not parties:
        return
    first, *others = parties
    compared = [compare(first.count, p.count) for p in others]
    for party, comparison in zip(others, compared, strict=True):
        if comparison is Comparison.UNEQUAL:
            yield _unbalanced(pipeline, first, party)
    if all(comparison is Comparison.EQUAL for comparison in compared):
        said = ", ".join(f"{_DONE[p.action]} by {p.who}" for p in parties)
        yield f"pipeline `{pipeline.name}`: {said}, {times(first.count)} each"


def _unbalanced(pipeline: Pipeline, a: _Party, b: _Party) -> Finding:
    least = (a.count - b.count).least
    more, less = (a, b) if least is not None and least >= 0 else (b, a)
    rest = more.count - less.count
    said = [f"{_DONE[p.action]} {times(p.count)} by {p.who}" for p in (a, b)]
    return Finding(
        Kind.BARRIER_COUNT,
        f"`{pipeline.name}` is {said[0]}, and {said[1]}",
        steps=tuple(FindingStep(p.who, f"{p.action}s `{pipeline.name}`", p.loc) for p in (a, b)),
        missing=f"a {less.action} by {less.who} for each {more.action} by {more.who}",
        help="every group that fills a pipeline, and every group that drains it, takes each of its stages once"
        + (f"; the counts are equal only if {rest} is 0" if rest.constant is None else ""),
        scope=Scope.ALWAYS,
    )


# -- turns -----------------------------------------------------------------------------------------


def _turns(kernel: Kernel, turns: Turns, role: Role, taken: _Taken) -> Iterator[Finding | str]:
    """All groups of a role take equally many turns."""
    first, *others = _parties(kernel, turns, "turn", role, taken)
    if not others:
        if role.groups > 1:
            yield f"turns of {role.shown}: {first.who} takes a turn {times(first.count)}"
        return
    for party in others:
        if compare(first.count, party.count) is Comparison.UNEQUAL:
            yield Finding(
                Kind.BARRIER_COUNT,
                f"{first.who} takes its turn {times(first.count)}, and {party.who} {times(party.count)}",
                steps=tuple(FindingStep(p.who, "takes its turn", p.loc) for p in (first, party)),
                missing="a turn of each group in every round",
                help="groups pass the turn on in a ring, so all of them take equally many turns",
                scope=Scope.ALWAYS,
            )
