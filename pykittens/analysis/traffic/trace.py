"""The boxes of tensors that the tasks of a launch move, in order, found from control flow and coordinates.

Loops whose passes do not depend on one another are run in all passes at once, as are the tasks. What only a running
kernel knows is taken in a simple way and told as a Guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from pykittens.analysis.traffic.boxes import BOX, BYTES, LANE, UNIT, UNKNOWN, Line, Places, lines_of
from pykittens.analysis.traffic.launch import Launch
from pykittens.analysis.traffic.tables import at, in_order, side_by_side
from pykittens.analysis.traffic.vector import Column, IntArray, Lanes, Later, as_column, put, taken
from pykittens.emulate.memory import Array
from pykittens.errors import Loc
from pykittens.ir.nodes import (
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    Grid,
    If,
    Loop,
    Merged,
    Role,
    While,
    all_blocks,
    blocks,
    calls,
    written,
)
from pykittens.ir.values import Scalar
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

# Units of what is outside the loop over tasks: it is done once by a block that stays, before its tasks and after them.
BEFORE, AFTER = -1, 2**40


@dataclass(frozen=True)
class Guess:
    """Where the number of bytes rests on something that only a running kernel knows, and how that was taken."""

    what: str
    loc: Loc | None


class _Sequential(Exception):
    """Raised where a pass of a loop asks for what the pass before it has left."""

    def __init__(self, node: Loop) -> None:
        self.node = node


@dataclass
class Trace:
    """Runs what moves memory in the units from `first` to before `last`; `table` gives their boxes."""

    launch: Launch
    places: Places
    numbers: dict[Call, list[int]]  # of the lines of a call
    moving: set[Block]  # blocks in which boxes are moved
    guesses: dict[Guess, None]
    contents: Mapping[str, Array]
    first: int = 0
    last: int = 0
    rank: Scalar = field(default_factory=lambda: Scalar(SCALAR(int32)))
    past_tasks: bool = False

    @staticmethod
    def of(
        launch: Launch,
        shapes: Mapping[str, tuple[int, ...]],
        contents: Mapping[str, Array] = MappingProxyType({}),
    ) -> Trace:
        """The trace of a launch, for tensors of these shapes; `contents` has those whose numbers are known."""
        lines = lines_of(launch.kernel)
        numbers: dict[Call, list[int]] = {}
        for number, line in enumerate(lines):
            numbers.setdefault(line.call, []).append(number)
        moving = {
            block
            for block in all_blocks(launch.kernel.body)
            if any(call in numbers for call in calls(block))
        }
        outputs = written(launch.kernel)
        known = {n: array for n, array in contents.items() if n not in outputs}
        return Trace(launch, Places(lines, shapes), numbers, moving, {}, known)

    @property
    def lines(self) -> list[Line]:
        return self.places.lines

    def table(self, first: int, last: int) -> IntArray:
        """The boxes of these units, unit by unit, in the order in which the groups of a block ask for them."""
        self.first, self.last = first, last
        kernel = self.launch.kernel
        count = 1 if self.launch.persistent else last - first
        root = Lanes(count, self.launch.known)
        root.reads = self._element
        root.known[self.rank] = (
            0 if self.launch.persistent else np.arange(first, last) % kernel.cluster
        )
        outside = Block([n for n in kernel.body.nodes if not isinstance(n, Role)])
        self.moving.add(outside)
        self.past_tasks = False
        tables = [self._of_group(outside, root)]
        for role in kernel.roles if kernel.has_roles else []:
            for group in range(role.groups if role.body in self.moving else 0):
                self.past_tasks = False
                lanes = Lanes(count, {} if role.index is None else {role.index: group}, root)
                tables.append(self._of_group(role.body, lanes))
        self.moving.discard(outside)
        return side_by_side(tables, self.lines)

    def _of_group(self, block: Block, lanes: Lanes) -> IntArray:
        table = self.run(block, lanes)
        if not self.launch.persistent:
            table[UNIT] = table[LANE] + self.first
        table = table[:, table[BYTES] > 0]
        return table[:, np.argsort(table[UNIT], kind="stable")]

    def _element(self, call: Call, lanes: Lanes) -> Column:
        """The number that a call loads from a tensor whose content is known."""
        lines = [n for n in self.numbers.get(call, []) if self.lines[n].tensor in self.contents]
        if len(lines) != 1 or not isinstance(call.results[0], Scalar):
            return None
        content = self.contents[self.lines[lines[0]].tensor]
        found = self.places.element(lines[0], lanes, content, call.args.get("fill", 0))
        return None if found is None else as_column(found, call.results[0].dtype)

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block, lanes: Lanes) -> IntArray:
        """The boxes that a block moves, lane by lane, each lane in the order of the program."""
        tables = []
        for node in block.nodes:
            match node:
                case Call() if node in self.numbers:
                    tables += [self._boxes(n, lanes) for n in self.numbers[node]]
                case Grid():
                    index = self.launch.coordinates(self.first, self.last)
                    lanes.known.update(zip(node.index, index, strict=True))
                case For() | ForTasks() | While():
                    tables.append(self._loop(node, lanes))
                case If():
                    tables.append(self._branch(node, lanes))
                case _:
                    pass
        return in_order(tables, lanes.count)

    def _boxes(self, number: int, lanes: Lanes) -> IntArray:
        table = self.places.boxes(number, lanes, lanes.value(self.rank))
        table[UNIT] = AFTER if self.past_tasks else BEFORE
        if (table[BOX] == UNKNOWN).any():
            line = self.lines[number]
            what = (
                f"where in `{line.tensor}` it is depends on data: counted as memory not met before"
            )
            self.guess(what, line.loc)
        return table

    def guess(self, what: str, loc: Loc | None) -> None:
        self.guesses.setdefault(Guess(what, loc))

    def _branch(self, node: If, lanes: Lanes) -> IntArray:
        made: list[tuple[Block, Lanes, IntArray]] = []
        tables: list[IntArray] = []

        def sides() -> list[tuple[Block, Lanes, IntArray]]:
            if made:
                return made
            holds = lanes.value(node.condition)
            if holds is None:
                self.guess("which branch is taken depends on data: counted as the first", node.loc)
            chosen = np.broadcast_to(True if holds is None else holds, lanes.count)
            for block, where in ((node.then, chosen), (node.otherwise, ~chosen)):
                if (rows := np.flatnonzero(where)).size:
                    part = lanes.part(rows)
                    made.append((block, part, rows))
                    tables.append(at(self.run(block, part), rows))
            return made

        def merged(m: Merged) -> Column:
            if lanes.value(node.condition) is None:
                return None
            found: Column = 0
            for block, part, rows in sides():
                new = part.value(m.then if block is node.then else m.otherwise)
                found = put(found, rows, new, lanes.count, m.result.dtype)
            return found

        for m in node.merged:
            lanes.known[m.result] = Later(lambda m=m: merged(m))  # type: ignore[misc]
        if node.then in self.moving or node.otherwise in self.moving:
            sides()
        return in_order(tables, lanes.count)

    # -- loops ---------------------------------------------------------------------------------

    def _loop(self, node: Loop, lanes: Lanes) -> IntArray:
        passes: list[tuple[IntArray, dict[Carried, Column]]] = []

        def one_by_one() -> tuple[IntArray, dict[Carried, Column]]:
            if not passes:
                passes.append(self._one_by_one(node, lanes))
            return passes[0]

        for c in node.carried:
            lanes.known[c.result] = Later(lambda c=c: one_by_one()[1].get(c))  # type: ignore[misc]
        if not any(b in self.moving for b in blocks(node)):
            return np.zeros((5, 0), np.int64)
        if isinstance(node, While):
            return one_by_one()[0]
        try:
            return self._at_once(node, lanes)
        except _Sequential as fault:
            if fault.node is not node:
                raise
            return one_by_one()[0]

    def _at_once(self, node: For | ForTasks, lanes: Lanes) -> IntArray:
        """The boxes of all passes of a loop, run at once; _Sequential where one depends on another."""
        counts = np.broadcast_to(self._passes(node, lanes), lanes.count)
        rows = np.repeat(np.arange(lanes.count), counts)
        turn = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        inner = lanes.part(rows)
        self._name(node, lanes, inner, rows, turn)

        def left() -> Column:
            if isinstance(node, For):
                raise _Sequential(node)
            self.guess("what a task leaves to the next is not followed", node.loc)

        for c in node.carried:
            inner.known[c.param] = Later(left)
        table = self.run(node.body, inner)
        if isinstance(node, ForTasks):
            table[UNIT] = turn[table[LANE]] + self.first
            self.past_tasks = True
        return at(table, rows)

    def _passes(self, node: For | ForTasks, lanes: Lanes) -> Column:
        """How often a loop runs, a lane or in all of them."""
        if isinstance(node, ForTasks):
            return self.last - self.first
        start, stop = lanes.value(node.start), lanes.value(node.stop)
        if start is None or stop is None:
            self.guess("how often the loop runs depends on data: counted as once", node.loc)
            return 1
        return np.maximum(-((start - stop) // node.step), 0)

    def _name(self, node: Loop, lanes: Lanes, inner: Lanes, rows: IntArray, turn: Column) -> None:
        """Give the indices of a loop their values in the pass `turn` of each lane."""
        match node:
            case For():
                start = taken(lanes.value(node.start), rows)
                inner.known[node.index] = None if start is None else start + turn * node.step
            case ForTasks():
                index = self.launch.coordinates(self.first, self.last)
                inner.known.update((v, i[turn]) for v, i in zip(node.index, index, strict=True))
                inner.known[self.rank] = (turn + self.first) % self.launch.kernel.cluster
            case While():
                pass

    def _one_by_one(self, node: Loop, lanes: Lanes) -> tuple[IntArray, dict[Carried, Column]]:
        """The boxes of a loop run pass by pass, and what is carried out of it."""
        numbers = [c for c in node.carried if isinstance(c.param, Scalar)]
        state = {c: lanes.value(c.init) for c in numbers}
        rows, tables, turn = np.arange(lanes.count), [], 0
        counts = None if isinstance(node, While) else self._passes(node, lanes)
        while True:
            if counts is not None:
                rows = np.flatnonzero(np.broadcast_to(counts, lanes.count) > turn)
            if not rows.size:
                break
            inner = lanes.part(rows)
            inner.known.update((c.param, taken(state[c], rows)) for c in numbers)
            self._name(node, lanes, inner, rows, turn)
            if isinstance(node, While):
                tables.append(at(self.run(node.test, inner), rows))
                kept = self._kept(node, inner, turn)
                rows, inner = rows[kept], inner.part(kept)
                if not rows.size:
                    break
            tables.append(at(self.run(node.body, inner), rows))
            after = {c: inner.value(c.next) for c in numbers}
            state = {c: put(state[c], rows, after[c], lanes.count, c.param.dtype) for c in numbers}
            turn += 1
        return in_order(tables, lanes.count), state

    def _kept(self, node: While, inner: Lanes, turn: int) -> IntArray:
        """The lanes whose condition holds."""
        holds = inner.value(node.condition)
        if holds is None:
            self.guess("how often the loop runs depends on data: counted as once", node.loc)
            holds = turn == 0
        return np.flatnonzero(np.broadcast_to(holds, inner.count))
