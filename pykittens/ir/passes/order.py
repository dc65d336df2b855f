"""Finds kernels that can stall if their stages are given back late.

Roles that synchronise only through pipelines are a deterministic network: whether it stalls does not depend on the
schedule, so one run of the barriers alone shows it. Trials run the barriers with small trip counts. Loops of two roles
have equal trip counts if their bounds are the same expression of arguments, tasks and elements of tensors that the
kernel does not write; the other trip counts vary independently.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    If,
    Kernel,
    Loop,
    Node,
    Role,
    While,
    all_blocks,
    takes,
    tensors,
    written,
)
from pykittens.ir.operators import OPERATORS
from pykittens.ir.stages import Acquire, GiveBack, Leave, Pipeline
from pykittens.ir.values import Global, TileRef, Value

TASKS = 3  # tasks of a block in a trial
RANDOM_TRIALS = 12

# The indices of the roles that take stages of a pipeline on a side.
Sides = dict[tuple[Pipeline, str], list[int]]

# What a trial runs, and of each block by its id, those nodes: most nodes are calls, which it passes over.
_NETWORK = (Acquire, Leave, GiveBack, For, ForTasks, While, If)
Network = dict[int, list[Node]]


def find_stalls(kernel: Kernel) -> set[Acquire]:
    """The acquires at which a role waits forever while it holds stages; empty if nothing stalls."""
    if not kernel.pipelines:
        return set()
    # If arguments may share memory, a write through one may change what a read through another gives.
    changing = {p.name for p in kernel.params} if kernel.inplace else set(written(kernel))
    sides: Sides = {
        (p, side): [i for i, r in enumerate(kernel.roles) if takes(r.body, p, side)]
        for p in kernel.pipelines
        for side in ("fill", "drain")
    }
    deepest = max(p.stages for p in kernel.pipelines)
    trials: list[TripCounts] = [TripCounts(fixed=n) for n in range(deepest + 3)]
    trials += [TripCounts(seed=seed, most=deepest + 2) for seed in range(RANDOM_TRIALS)]
    network: Network = {
        id(block): [node for node in block.nodes if isinstance(node, _NETWORK)]
        for role in kernel.roles
        for block in all_blocks(role.body)
    }
    for trial in trials:
        stalled = _run([_Walker(role, trial, changing, network) for role in kernel.roles], sides)
        if stalled:
            return stalled
    return set()


class TripCounts:
    """Trip counts and branches for one run: one number for all loops, or a random number for each."""

    def __init__(self, fixed: int | None = None, seed: int = 0, most: int = 0) -> None:
        self.fixed, self.seed, self.most = fixed, seed, most
        self.seen: dict[object, int] = {}

    def ordinal(self, thing: object) -> tuple[str, int]:
        """A number for a thing without another key, the same in every process."""
        return ("value", self.seen.setdefault(thing, len(self.seen)))

    def trips(self, key: object, path: tuple[int, ...]) -> int:
        if self.fixed is not None:
            return self.fixed
        return random.Random(f"{self.seed} {key} {path}").randint(0, self.most)

    def taken(self, key: object, path: tuple[int, ...]) -> bool:
        return random.Random(f"{self.seed} {self.fixed} {key} {path}").random() < 0.5


class _Walker:
    """One role of the network."""

    def __init__(self, role: Role, trial: TripCounts, written: set[str], network: Network) -> None:
        self.trial, self.written, self.network = trial, written, network
        self.keys: dict[Value, object] = {}
        self.taken: dict[tuple[Pipeline, str], int] = defaultdict(int)
        self.given: dict[Pipeline, int] = defaultdict(int)
        self.filled: dict[Pipeline, int] = defaultdict(int)
        self.steps = self.run(role.body, ())
        self.waiting: Acquire | None = None
        self.done = False

    def run(self, block: Block, path: tuple[int, ...]) -> Iterator[Acquire]:
        for node in self.network[id(block)]:
            match node:
                case Acquire():
                    yield node
                    self.taken[node.pipeline, node.side] += 1
                case Leave():
                    self.filled[node.acquire.pipeline] += 1
                case GiveBack():
                    self.given[node.pipeline] = max(
                        self.given[node.pipeline], self.taken[node.pipeline, "drain"] - node.keep
                    )
                case For() | ForTasks() | While():
                    for i in range(self.trips(node, path)):
                        yield from self.run(node.body, (*path, i))
                case If():
                    side = self.trial.taken(self.key(node.condition), path)
                    yield from self.run(node.then if side else node.otherwise, path)

    def trips(self, node: Loop, path: tuple[int, ...]) -> int:
        """How many passes a loop makes in the trial."""
        if isinstance(node, ForTasks):
            self.keys.update({v: ("task", axis) for axis, v in enumerate(node.index)})
            return TASKS
        if isinstance(node, While):
            return self.trial.trips(self.trial.ordinal(node), path)
        span = _minus(self.key(node.stop), self.key(node.start))
        if node.step < 0:
            span = _minus(self.key(node.start), self.key(node.stop))
        if isinstance(span, int):
            return max(0, min(-(-span // abs(node.step)), 8))
        return self.trial.trips((span, abs(node.step)), path)

    def key(self, value: Any) -> object:
        """Equal for values that are the same expression of arguments, tasks and tensors that are not written."""
        if isinstance(value, TileRef | Global):
            ref = value.first
            windows = [(axis, *map(self.key, w.bounds)) for axis, w in ref.windows.items()]
            index = tuple(map(self.key, ref.index))
            return (ref.tensor.name, index, ref.plane, tuple(windows))
        if not isinstance(value, Value):
            return value
        if value not in self.keys:
            self.keys[value] = self.expression(value)
        return self.keys[value]

    def expression(self, value: Value) -> object:
        """The key of a value from the keys of its operands."""
        if isinstance(value.source, Call) and self.is_settled(value.source):
            args = tuple(self.key(a) for a in value.source.args.values())
            if value.source.op is OPERATORS["-"]:
                return _minus(*args)
            return (value.source.op.name, args)
        return self.trial.ordinal(value)

    def is_settled(self, call: Call) -> bool:
        """Whether its operands determine its result: it reads at most tensors that the kernel does not write."""
        effects = call.op.effects
        read = list(tensors(call, effects.reads))
        known = len(read) == len(effects.reads) and self.written.isdisjoint(read)
        return known and effects.only_reads

    def holds(self) -> bool:
        """Whether it has drained stages that it has not given back."""
        return any(n > self.given[p] for (p, side), n in self.taken.items() if side == "drain")


def _minus(a: object, b: object) -> object:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return a if b == 0 else ("sub", (a, b))


def _run(walkers: list[_Walker], sides: Sides) -> set[Acquire]:
    moved = True
    while moved:
        moved = False
        for walker in walkers:
            while not walker.done and (walker.waiting is None or _ready(walker, walkers, sides)):
                walker.waiting = next(walker.steps, None)
                walker.done = walker.waiting is None
                moved = True
    return {w.waiting for w in walkers if w.waiting is not None and w.holds()}


def _ready(walker: _Walker, walkers: list[_Walker], sides: Sides) -> bool:
    node = walker.waiting
    assert node is not None
    count, pipeline = walker.taken[node.pipeline, node.side], node.pipeline
    if node.side == "drain":
        return all(walkers[i].filled[pipeline] > count for i in sides[pipeline, "fill"])
    free = count - pipeline.stages
    return all(walkers[i].given[pipeline] > free for i in sides[pipeline, "drain"])
