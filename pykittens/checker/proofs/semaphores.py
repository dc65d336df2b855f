"""Proofs about semaphores: arrivals complete whole phases, and copies bring the bytes expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pykittens.checker.proofs.counts import Visit, times
from pykittens.checker.proofs.formula import Comparison, Formula, Quantity, compare
from pykittens.emulate.finding import Finding, FindingStep, Kind, Scope
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, Shared
from pykittens.ir.op import Engine
from pykittens.ir.operators import OPERATORS
from pykittens.ir.values import Semaphore, Value
from pykittens.types.tiles import SEMAPHORE

_DIFFERENT = (Comparison.UNEQUAL, Comparison.SOMETIMES)


@dataclass(frozen=True)
class Use:
    """A group that arrives at, waits for or sends a copy to a semaphore, or to one of several by its index.

    bytes: those it expects, or those of the copy. phase: what it waits for. loop: the index of the loop round it.
    """

    semaphore: Value
    element: Formula
    kind: str  # arrives, waits, copies
    who: str
    count: Formula
    loc: Loc | None
    bytes: Formula = Formula()
    phase: Formula = Formula()
    loop: Formula | None = None


def uses(visit: Visit) -> Iterator[Use]:
    """What a group does with semaphores at a node."""
    call, formulas = visit.node, visit.formulas
    if not isinstance(call, Call):
        return
    effects = call.op.effects
    bytes, phase = Formula(), Formula()
    if effects.engine is Engine.COPY_IN:
        kind, bytes = "copies", Formula.of(call.args[effects.writes[0]].type.bytes)
    elif effects.waits:
        kind, phase = "waits", formulas.formula(call.args.get("phase", 0))
    else:
        kind, bytes = "arrives", formulas.formula(call.args.get("bytes", 0))
    for name in (*effects.signals, *effects.waits):
        semaphore = call.args[name]
        if isinstance(semaphore, Semaphore):
            owner, index = _owner(semaphore)
            element = formulas.formula(index)
            yield Use(
                *(owner, element, kind, visit.who, visit.count, call.loc),
                *(bytes, phase, visit.index),
            )


def _owner(semaphore: Value) -> tuple[Value, object]:
    """What pk.semaphore made, and which of several it is."""
    made = semaphore.source
    if isinstance(made, Call) and made.op is OPERATORS["item"]:
        return made.args["memory"], made.args["index"]
    return semaphore, 0


def prove_semaphores(kernel: Kernel, uses: Sequence[Use]) -> Iterator[Finding | str]:
    """What is wrong with the arrivals and bytes of each semaphore, and what of them is right for all arguments."""
    for shared in kernel.shared:
        if isinstance(shared.value.type, SEMAPHORE):
            ours = [u for u in uses if u.semaphore is shared.value]
            for part in _apart(ours):
                yield from _arrivals(shared, shared.value.type.arrivals, part)
            for part in _apart(ours) or ([ours] if ours else []):
                yield from _bytes(shared, part)


def _apart(uses: Sequence[Use]) -> list[list[Use]]:
    """The uses of each of several semaphores; none where it is open which one a use is of."""
    elements = {u.element: None for u in uses}
    if len(elements) > 1 and any(e.constant is None for e in elements):
        return []
    return [[u for u in uses if u.element == e] for e in elements]


def _name(shared: Shared, element: Formula) -> str:
    name = shared.value.name or "semaphore"
    one = shared.count is not None and element.constant is not None
    return f"{name}[{element}]" if one else name


def _total(counts: Sequence[Formula]) -> Formula:
    return sum(counts, Formula())


# -- arrivals --------------------------------------------------------------------------------------


def _arrivals(shared: Shared, needed: int, uses: Sequence[Use]) -> Iterator[Finding | str]:
    arrivals = [u for u in uses if u.kind == "arrives"]
    waits = [u for u in uses if u.kind == "waits"]
    if not arrivals:
        return
    total, name = _total([u.count for u in arrivals]), _name(shared, uses[0].element)
    come = _in_a_pass(total, waits, shared.count)
    if come is not None and compare(come, Formula.of(needed)) in _DIFFERENT:
        yield _miscounted(
            f"{waits[0].who} waits for a phase of `{name}` in each pass, which {needed} arrivals complete, "
            f"and {come} come",
            *(shared, needed, [*arrivals, waits[0]]),
        )
        return
    all_come = total.constant
    if all_come is not None and all(u.loop is None for u in uses) and all_come % needed:
        first = next((w for w in waits if w.phase.constant == 0 and w.count.constant), None)
        if first is not None and all_come < needed:
            told = f"{first.who} waits for the first phase of `{name}`, which {needed} arrivals complete, "
            yield _miscounted(f"{told}and {all_come} come", shared, needed, [*arrivals, first])
        else:
            told = f"{all_come} arrivals come at `{name}`, which are no whole phases of {needed}"
            yield _miscounted(told, shared, needed, arrivals)
    elif all(factor % needed == 0 for _, factor in total.terms):
        yield (
            f"semaphore `{name}`: {total} arrivals make up whole phases of {needed}"
            if needed > 1
            else f"semaphore `{name}`: each arrival completes a phase, {times(total)}"
        )


def _in_a_pass(total: Formula, waits: Sequence[Use], count: int | None) -> Formula | None:
    """The arrivals in a pass of a loop in which each pass waits for the next phase; None where that is open.

    All who wait do it in one place. Arrivals may depend on conditions, but on none that changes from pass to pass:
    the last pass may need no arrival.
    """
    if len({w.who for w in waits}) < len(waits) or len({w.count for w in waits}) != 1:
        return None
    for wait in waits:
        if wait.loop is None or not _is_next(wait, wait.loop, count):
            return None
        if any(str(wait.loop) in truth.name for truth in total.truths):
            return None
    return total.divided(waits[0].count)


def _is_next(wait: Use, index: Formula, count: int | None) -> bool:
    """Whether the phases waited for follow one another: i + c, or i // n + c of semaphore i % n of n."""
    if wait.element.constant is not None:
        return (wait.phase - index).constant is not None
    # The names of quotient and remainder hold what is divided.
    (element, phase) = wait.element.terms, wait.phase.terms
    quotients = [q.name for qs, n in phase for q in qs if n == 1 and len(qs) == 1]
    remainders = [q.name for qs, n in element for q in qs if n == 1 and len(qs) == 1]
    inside = f"({index}, {count})"
    return (
        len(element) == 1
        and remainders == [f"floor_mod{inside}"]
        and quotients == [f"floor_div{inside}"]
        and sum(bool(qs) for qs, _ in phase) == 1
    )


def _miscounted(message: str, shared: Shared, needed: int, uses: Sequence[Use]) -> Finding:
    steps = {(u.who, u.loc): FindingStep(u.who, u.kind, u.loc) for u in uses}
    return Finding(
        Kind.BARRIER_COUNT,
        message,
        steps=(
            FindingStep("the semaphore", f"counts {needed} arrivals", shared.loc),
            *steps.values(),
        ),
        missing="as many arrivals as complete a phase",
        help="pk.semaphore(n): n is the arrivals of all groups in a phase; a group arrives once however many warps it "
        "has, and `expect` is an arrival, too",
        scope=Scope.ALWAYS,
    )


# -- bytes -----------------------------------------------------------------------------------------


def _bytes(shared: Shared, uses: Sequence[Use]) -> Iterator[Finding | str]:
    """In all, copies bring as many bytes as are expected."""
    arrivals = [u for u in uses if u.kind == "arrives"]
    copies = [u for u in uses if u.kind == "copies"]
    expected = _total([u.count * u.bytes for u in arrivals])
    brought = _total([u.count * u.bytes for u in copies])
    if not expected.terms and not copies:
        return
    elements = {u.element: None for u in uses}
    name = _name(shared, next(iter(elements)) if len(elements) == 1 else Formula.of(Quantity("i")))
    comparison = compare(expected, brought)
    if comparison is Comparison.EQUAL:
        yield f"semaphore `{name}`: {expected} bytes are expected, and copies bring as many"
    elif comparison in _DIFFERENT:
        yield _other_bytes(name, expected, brought, [*arrivals, *copies])


def _other_bytes(name: str, expected: Formula, brought: Formula, uses: Sequence[Use]) -> Finding:
    steps = {
        (u.who, u.loc): FindingStep(
            u.who,
            f"expects {u.bytes} bytes" if u.kind == "arrives" else f"copies {u.bytes} bytes",
            u.loc,
        )
        for u in uses
        if u.bytes.terms or u.kind == "arrives"
    }
    return Finding(
        Kind.BYTE_COUNT,
        f"{expected} bytes are expected at `{name}`, and copies bring {brought}",
        steps=tuple(steps.values()),
        missing="an `expect` of the bytes of each copy",
        help=f"`{name}.expect(tile)` expects the bytes of a tile; each copy brings those of the whole tile it fills, "
        "at the edges of a tensor, too",
        scope=Scope.ALWAYS,
    )
