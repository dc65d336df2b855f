"""Traces the boxes of tensors that the tasks of a launch move, in order, from control flow and coordinates.

Independent iterations of a loop are traced at once, as are the tasks. A value that only a running kernel knows is
assumed in a simple way and reported as a Guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from pykittens.analysis.traffic.boxes import (
    BOX,
    BYTES,
    LANE,
    UNIT,
    UNKNOWN,
    Boxes,
    TensorLine,
    lines_of,
)
from pykittens.analysis.traffic.launch import LaunchWork
from pykittens.analysis.traffic.tables import at, in_order, side_by_side
from pykittens.analysis.traffic.vector import (
    Column,
    Columns,
    IntArray,
    Later,
    as_column,
    put,
    taken,
)
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
    Sharing,
    While,
    all_blocks,
    blocks,
    calls,
    written,
)
from pykittens.ir.values import Scalar
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

# Units of the nodes outside the loop over tasks, which a persistent block runs once before its tasks and after them.
BEFORE, AFTER = -1, 2**40


@dataclass(frozen=True)
class Guess:
    """An assumption about a value on which the bytes depend and that only a running kernel knows."""

    what: str
    loc: Loc | None


class _Sequential(Exception):
    """Raised if an iteration of a loop reads a value of the previous iteration."""

    def __init__(self, node: Loop) -> None:
        self.node = node


class Trace:
    """Traces the memory traffic of the units from `first` to before `last`; `table` gives their boxes."""

    def __init__(
        self,
        launch: LaunchWork,
        shapes: Mapping[str, tuple[int, ...]],
        contents: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        """The trace of a launch for tensors of these shapes; `contents` has the tensors with known elements."""
        self.launch, self.boxes = launch, Boxes(lines_of(launch.kernel), shapes)
        self.numbers: dict[Call, list[int]] = defaultdict(list)  # the lines of a call
        for number, line in enumerate(self.lines):
            self.numbers[line.call].append(number)
        # The blocks that move boxes.
        self.moving = {
            block
            for block in all_blocks(launch.kernel.body)
            if any(call in self.numbers for call in calls(block))
        }
        self.guesses: dict[Guess, None] = {}
        outputs = written(launch.kernel)
        self.contents = {n: array for n, array in contents.items() if n not in outputs}
        self.first = self.last = 0
        self.rank = Scalar(SCALAR(int32))
        self.past_tasks = False

    @property
    def lines(self) -> list[TensorLine]:
        return self.boxes.lines

    def table(self, first: int, last: int) -> IntArray:
        """The boxes of these units, unit by unit, in the order in which the groups of a block ask for them."""
        self.first, self.last = first, last
        kernel = self.launch.kernel
        count = 1 if self.launch.persistent else last - first
        root = Columns(count, self.launch.known)
        root.reads = self._element
        root.known[self.rank] = (
            0 if self.launch.persistent else np.arange(first, last) % kernel.cluster
        )
        outside = kernel.outside
        self.moving.add(outside)
        self.past_tasks = False
        tables = [self._of_group(outside, root)]
        for role in kernel.roles if kernel.has_roles else []:
            for group in range(role.groups if role.body in self.moving else 0):
                self.past_tasks = False
                lanes = Columns(count, {} if role.index is None else {role.index: group}, root)
                tables.append(self._of_group(role.body, lanes))
        self.moving.discard(outside)
        return side_by_side(tables, self.lines)

    def _of_group(self, block: Block, lanes: Columns) -> IntArray:
        table = self.run(block, lanes)
        if not self.launch.persistent:
            table[UNIT] = table[LANE] + self.first
        table = table[:, table[BYTES] > 0]
        return table[:, np.argsort(table[UNIT], kind="stable")]

    def _element(self, call: Call, lanes: Columns) -> Column:
        """The element that a call loads from a tensor with known content; None if it is not known."""
        lines = [n for n in self.numbers.get(call, []) if self.lines[n].tensor in self.contents]
        if len(lines) != 1 or not isinstance(call.results[0], Scalar):
            return None
        content = self.contents[self.lines[lines[0]].tensor]
        found = self.boxes.element(lines[0], lanes, content, call.args.get("fill", 0))
        return None if found is None else as_column(found, call.results[0].dtype)

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block, lanes: Columns) -> IntArray:
        """The boxes that a block moves, sorted by lane, in each lane in the order of the program."""
        tables = []
        for node in block.nodes:
            match node:
                case Call() if node in self.numbers:
                    tables += [self._boxes(n, lanes) for n in self.numbers[node]]
                case Grid():
                    index = self.launch.coordinates(self.first, self.last)
                    lanes.known.update(zip(node.index, index, strict=True))
                case Sharing():  # the tasks of all blocks are traced as those of one
                    lanes.known.update(zip(node.index, (0, 1), strict=True))
                case For() | ForTasks() | While():
                    tables.append(self._loop(node, lanes))
                case If():
                    tables.append(self._branch(node, lanes))
                case _:
                    pass
        return in_order(tables, lanes.count)

    def _boxes(self, number: int, lanes: Columns) -> IntArray:
        table = self.boxes.boxes(number, lanes, lanes.value(self.rank))
        table[UNIT] = AFTER if self.past_tasks else BEFORE
        if (table[BOX] == UNKNOWN).any():
            line = self.lines[number]
            what = f"the position in `{line.tensor}` depends on data: counted as memory not moved before"
            self.guess(what, line.loc)
        return table

    def guess(self, what: str, loc: Loc | None) -> None:
        self.guesses.setdefault(Guess(what, loc))

    def _branch(self, node: If, lanes: Columns) -> IntArray:
        tables: list[IntArray] = []

        @cache
        def sides() -> list[tuple[Block, Columns, IntArray]]:
            holds = lanes.value(node.condition)
            if holds is None:
                self.guess("the branch taken depends on data: counted as the first", node.loc)
            chosen = np.broadcast_to(True if holds is None else holds, lanes.count)
            run = []
            for block, where in ((node.then, chosen), (node.otherwise, ~chosen)):
                if (rows := np.flatnonzero(where)).size:
                    part = lanes.part(rows)
                    run.append((block, part, rows))
                    tables.append(at(self.run(block, part), rows))
            return run

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

    def _loop(self, node: Loop, lanes: Columns) -> IntArray:
        one_by_one = cache(lambda: self._one_by_one(node, lanes))

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

    def _at_once(self, node: For | ForTasks, lanes: Columns) -> IntArray:
        """The boxes of all iterations of a loop, traced at once; _Sequential if one depends on another."""
        counts = np.broadcast_to(self._passes(node, lanes), lanes.count)
        rows = np.repeat(np.arange(lanes.count), counts)
        step = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        inner = lanes.part(rows)
        self._name(node, lanes, inner, step)

        def previous() -> Column:
            if isinstance(node, For):
                raise _Sequential(node)
            self.guess("values carried from task to task are not followed", node.loc)

        for c in node.carried:
            inner.known[c.param] = Later(previous)
        table = self.run(node.body, inner)
        if isinstance(node, ForTasks):
            table[UNIT] = step[table[LANE]] + self.first
            self.past_tasks = True
        return at(table, rows)

    def _passes(self, node: For | ForTasks, lanes: Columns) -> Column:
        """The number of iterations of a loop: a number, or one per lane."""
        if isinstance(node, ForTasks):
            return self.last - self.first
        start, stop = lanes.value(node.start), lanes.value(node.stop)
        if start is None or stop is None:
            self.guess("the number of iterations depends on data: counted as one", node.loc)
            return 1
        return np.maximum(-((start - stop) // node.step), 0)

    def _name(self, node: Loop, lanes: Columns, inner: Columns, step: Column) -> None:
        """Set the indices of a loop in iteration `step` of each lane."""
        match node:
            case For():
                start = taken(lanes.value(node.start), inner.rows)
                inner.known[node.index] = None if start is None else start + step * node.step
            case ForTasks():
                index = self.launch.coordinates(self.first, self.last)
                inner.known.update((v, i[step]) for v, i in zip(node.index, index, strict=True))
                inner.known[self.rank] = (step + self.first) % self.launch.kernel.cluster
            case While():
                pass

    def _one_by_one(self, node: Loop, lanes: Columns) -> tuple[IntArray, dict[Carried, Column]]:
        """The boxes of a loop traced iteration by iteration, and the values that it carries out."""
        numbers = [c for c in node.carried if isinstance(c.param, Scalar)]
        state = {c: lanes.value(c.init) for c in numbers}
        rows, tables, step = np.arange(lanes.count), [], 0
        counts = None if isinstance(node, While) else self._passes(node, lanes)
        while True:
            if counts is not None:
                rows = np.flatnonzero(np.broadcast_to(counts, lanes.count) > step)
            if not rows.size:
                break
            inner = lanes.part(rows)
            inner.known.update((c.param, taken(state[c], rows)) for c in numbers)
            self._name(node, lanes, inner, step)
            if isinstance(node, While):
                tables.append(at(self.run(node.test, inner), rows))
                kept = self._kept(node, inner, step)
                rows, inner = rows[kept], inner.part(kept)
                if not rows.size:
                    break
            tables.append(at(self.run(node.body, inner), rows))
            after = {c: inner.value(c.next) for c in numbers}
            state = {c: put(state[c], rows, after[c], lanes.count, c.param.dtype) for c in numbers}
            step += 1
        return in_order(tables, lanes.count), state

    def _kept(self, node: While, inner: Columns, step: int) -> IntArray:
        """The lanes in which the condition of a `while` holds."""
        holds = inner.value(node.condition)
        if holds is None:
            self.guess("the number of iterations depends on data: counted as one", node.loc)
            holds = step == 0
        return np.flatnonzero(np.broadcast_to(holds, inner.count))
