"""The state of a role at a point: the products that may be in flight, and the stages that are held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.values import Value

# A wait can name no more products than this (CUTLASS, `warpgroup_wait`).
MOST_PENDING = 7


@dataclass(eq=False)
class HeldStage:
    """A stage taken by `drain` and not given back. open: the user still uses it. sure: it is held on every path."""

    pipeline: Pipeline
    acquire: Acquire
    open: bool = True
    sure: bool = True


@dataclass(eq=False)
class PendingProduct:
    """A product not known to be complete: the values of its result, the stages and registers that it reads.

    sure: it is issued on every path. loose: it reads shared memory outside pipelines. handed_over: other groups access
    that memory, too.
    """

    results: set[Value]
    stages: list[HeldStage]
    registers: list[Value]
    sure: bool = True
    loose: bool = False
    handed_over: bool = False


@dataclass
class State:
    """Products in the order of their issue, and the held stages of each pipeline, oldest first."""

    queue: list[PendingProduct] = field(default_factory=list)
    held: dict[Pipeline, list[HeldStage]] = field(default_factory=dict)

    def last(self, matches: Callable[[PendingProduct], bool]) -> int | None:
        """The index in the queue of the newest product that matches."""
        return max((i for i, q in enumerate(self.queue) if matches(q)), default=None)

    def surely_after(self, index: int) -> int:
        """The number of products that were surely issued after the one at this index."""
        return sum(q.sure for q in self.queue[index + 1 :])

    def finish(self, index: int) -> tuple[int, list[PendingProduct]]:
        """Wait for the product at this index: the number that may stay pending, and the products that are complete."""
        pending = min(MOST_PENDING, self.surely_after(index))
        done: list[PendingProduct] = []
        unfinished: list[PendingProduct] = []
        for i, q in enumerate(self.queue):
            (done if self.surely_after(i) >= pending else unfinished).append(q)
        for i, q in enumerate(unfinished):
            q.sure = q.sure and len(unfinished) - i - 1 < pending
        self.queue = unfinished
        return pending, done

    def free(self, pipeline: Pipeline) -> int:
        """The number of stages, oldest first, that the user has left and no unfinished product reads."""
        busy = {h for q in self.queue for h in q.stages}
        count = 0
        for stage in self.held[pipeline]:
            if stage.open or stage in busy:
                break
            count += 1
        return count

    def key(self) -> object:
        """Equal for states that lead to the same placement."""
        position = {h: (p, len(hs) - i) for p, hs in self.held.items() for i, h in enumerate(hs)}
        return (
            tuple(
                (
                    frozenset(q.results),
                    tuple(position[h] for h in q.stages if h in position),
                    q.sure,
                )
                for q in self.queue
            ),
            frozenset(
                (p, tuple((h.acquire, h.open, h.sure) for h in hs))
                for p, hs in self.held.items()
                if hs
            ),
        )

    def copy(self) -> State:
        held = {h: replace(h) for hs in self.held.values() for h in hs}
        queue = [
            replace(q, results=set(q.results), stages=[held[h] for h in q.stages if h in held])
            for q in self.queue
        ]
        return State(queue, {p: [held[h] for h in hs] for p, hs in self.held.items()})


def join(a: State, b: State) -> State:
    """The state after two paths; an entry of only one path is not sure. Entries are aligned from the newest."""
    a, b = a.copy(), b.copy()
    same: dict[HeldStage, HeldStage] = {}
    held: dict[Pipeline, list[HeldStage]] = {}
    for pipeline in {**a.held, **b.held}:
        ours, theirs = a.held.get(pipeline, []), b.held.get(pipeline, [])
        longer, shorter = (ours, theirs) if len(ours) >= len(theirs) else (theirs, ours)
        extra = len(longer) - len(shorter)
        for i, h in enumerate(longer):
            if i < extra:
                h.sure = False
            else:
                other = shorter[i - extra]
                same[other] = h
                h.sure = h.sure and other.sure
                h.open = h.open or other.open
        held[pipeline] = longer
    queue: list[PendingProduct] = []
    while a.queue and b.queue and a.queue[-1].results & b.queue[-1].results:
        p, q = a.queue.pop(), b.queue.pop()
        stages = list(dict.fromkeys(same.get(h, h) for h in p.stages + q.stages))
        registers = list(dict.fromkeys(p.registers + q.registers))
        both = p.sure and q.sure
        loose, handed_over = p.loose or q.loose, p.handed_over or q.handed_over
        results = p.results | q.results
        queue.insert(0, PendingProduct(results, stages, registers, both, loose, handed_over))
    for q in reversed(a.queue + b.queue):
        queue.insert(0, replace(q, stages=[same.get(h, h) for h in q.stages], sure=False))
    return State(_distinct(queue), held)


def _distinct(queue: list[PendingProduct]) -> list[PendingProduct]:
    """The products, but only the newest of equal ones that are not sure: a wait for it covers the others."""
    kept: list[PendingProduct] = []
    seen: set[object] = set()
    for q in reversed(queue):
        like = (frozenset(q.results), frozenset(q.stages), frozenset(q.registers))
        if q.sure or like not in seen:
            kept.insert(0, q)
        if not q.sure:
            seen.add(like)
    return kept
