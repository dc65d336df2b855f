"""Proofs about semaphores: arrivals complete whole phases, and copies bring the bytes expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


@dataclass(frozen=True)
class Use:
    """A use of a semaphore by a group: an arrival, a wait or a copy that signals it. element: the index in an array.

    bytes: those expected, or those of the copy. phase: the one waited for. loop: the index of the innermost loop.
    elsewhere: whether the semaphore is that of another block, or may be.
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
    elsewhere: bool = False


def uses(visit: Visit) -> Iterator[Use]:
    """The uses of semaphores by a group at a node."""
    call, formulas = visit.node, visit.formulas
    if not isinstance(call, Call):
        return
    effects = call.op.effects
    bytes, phase = Formula(), Formula()
    if effects.engine in (Engine.COPY_IN, Engine.SEND):
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
                *(bytes, phase, visit.index, call.names_block),
            )


def _owner(semaphore: Value) -> tuple[Value, object]:
    """The result of pk.semaphore, and the index in it."""
    item = semaphore.source
    if isinstance(item, Call) and item.op is OPERATORS["item"]:
        return item.args["memory"], item.args["index"]
    return semaphore, 0


def prove_semaphores(kernel: Kernel, uses: Sequence[Use]) -> Iterator[Finding | str]:
    """Mismatched arrivals and bytes of each semaphore, and those that match for all arguments."""
    for shared in kernel.shared:
        if isinstance(shared.value.type, SEMAPHORE):
            ours = [u for u in uses if u.semaphore is shared.value]
            # Which of them reach the semaphore of one block depends on the numbers of the blocks: only runs tell.
            if any(u.elsewhere for u in ours):
                continue
            by_element = _by_element(ours)
            for some in by_element:
                yield from _arrivals(shared, shared.value.type.arrivals, some)
            for some in by_element or ([ours] if ours else []):
                yield from _bytes(shared, some)


def _by_element(uses: Sequence[Use]) -> list[list[Use]]:
    """The uses of each semaphore of an array; none if the index of a use is unknown."""
    elements = {u.element: None for u in uses}
    if len(elements) > 1 and any(e.constant is None for e in elements):
        return []
    return [[u for u in uses if u.element == e] for e in elements]


def _name(shared: Shared, element: Formula) -> str:
    name = shared.value.name or "semaphore"
    one = shared.count is not None and element.constant is not None
    return f"{name}[{element}]" if one else name


def _of_kind(uses: Sequence[Use], kind: str) -> list[Use]:
    return [u for u in uses if u.kind == kind]


def _mistake(
    kind: Kind, message: str, steps: Iterable[FindingStep], missing: str, help: str
) -> Finding:
    """A finding for all arguments, with one step per group and line."""
    once = {(step.who, step.loc): step for step in steps}
    return Finding(
        kind, message, tuple(once.values()), missing=missing, help=help, scope=Scope.ALWAYS
    )


# -- arrivals --------------------------------------------------------------------------------------


def _arrivals(shared: Shared, needed: int, uses: Sequence[Use]) -> Iterator[Finding | str]:
    arrivals, waits = _of_kind(uses, "arrives"), _of_kind(uses, "waits")
    if not arrivals:
        return
    total = sum((u.count for u in arrivals), Formula())
    name = _name(shared, uses[0].element)
    comes = _per_iteration(total, waits, shared.count)
    if comes is not None and compare(comes, Formula.of(needed)) is Comparison.UNEQUAL:
        said = f"waits for a phase of `{name}` in each iteration"
        message = f"{waits[0].who} {said}; the phase needs {needed} arrivals and gets {comes}"
        yield _miscounted(message, shared, needed, [*arrivals, waits[0]])
        return
    count = total.constant
    if count is not None and all(u.loop is None for u in uses) and count % needed:
        first = next((w for w in waits if w.phase.constant == 0 and w.count.constant), None)
        if first is not None and count < needed:
            said = f"waits for the first phase of `{name}`"
            message = f"{first.who} {said}; the phase needs {needed} arrivals and gets {count}"
            yield _miscounted(message, shared, needed, [*arrivals, first])
        else:
            message = f"`{name}` gets {count} arrivals, not a multiple of the {needed} that complete a phase"
            yield _miscounted(message, shared, needed, arrivals)
    elif all(factor % needed == 0 for _, factor in total.terms):
        yield (
            f"semaphore `{name}`: {total} arrivals complete whole phases of {needed}"
            if needed > 1
            else f"semaphore `{name}`: each arrival completes a phase, {times(total)}"
        )


def _per_iteration(total: Formula, waits: Sequence[Use], count: int | None) -> Formula | None:
    """The arrivals per iteration of a loop whose iterations wait for consecutive phases; None if unknown.

    Each group waits at one line. Arrivals may depend on conditions, but on none that varies between iterations: the
    last iteration may need no arrival.
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
    """Whether the phases waited for are consecutive: i + c, or i // n + c of semaphore i % n of n."""
    if wait.element.constant is not None:
        return (wait.phase - index).constant is not None
    # The names of quotient and remainder contain the dividend.
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
    return _mistake(
        Kind.BARRIER_COUNT,
        message,
        (
            FindingStep("the semaphore", f"counts {needed} arrivals", shared.loc),
            *(FindingStep(u.who, u.kind, u.loc) for u in uses),
        ),
        missing="as many arrivals as complete a phase",
        help="in pk.semaphore(n), n is the number of arrivals of all groups in a phase; a group arrives once, "
        "regardless of its warps, and `expect` is also an arrival",
    )


# -- bytes -----------------------------------------------------------------------------------------


def _bytes(shared: Shared, uses: Sequence[Use]) -> Iterator[Finding | str]:
    """In total, copies bring as many bytes as are expected."""
    arrivals, copies = _of_kind(uses, "arrives"), _of_kind(uses, "copies")
    expected = sum((u.count * u.bytes for u in arrivals), Formula())
    brought = sum((u.count * u.bytes for u in copies), Formula())
    if not expected.terms and not copies:
        return
    elements = {u.element: None for u in uses}
    name = _name(shared, next(iter(elements)) if len(elements) == 1 else Formula.of(Quantity("i")))
    match compare(expected, brought):
        case Comparison.EQUAL:
            yield f"semaphore `{name}`: {expected} bytes are expected, and copies bring as many"
        case Comparison.UNEQUAL:
            does = {"arrives": "expects", "copies": "copies"}
            yield _mistake(
                Kind.BYTE_COUNT,
                f"{expected} bytes are expected at `{name}`, and copies bring {brought}",
                (
                    FindingStep(u.who, f"{does[u.kind]} {u.bytes} bytes", u.loc)
                    for u in (*arrivals, *copies)
                ),
                missing="an `expect` of the bytes of each copy",
                help=f"`{name}.expect(tile)` expects the bytes of a tile; each copy brings the bytes of the whole tile "
                "that it fills, even at the edges of a tensor",
            )
