"""Execution counts of each node by role and group, as formulas of the arguments and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pykittens.checker.proofs.formula import Formula, Quantity
from pykittens.checker.proofs.symbolic import Formulas
from pykittens.ir.nodes import (
    Block,
    For,
    ForTasks,
    If,
    Kernel,
    Node,
    Role,
    Tasks,
    While,
    group_name,
)
from pykittens.ir.values import Value

_ONE = Formula.of(1)


@dataclass(frozen=True)
class Visit:
    """A group at a node: how often it comes there, and the index of the innermost loop round it, if it has one.

    `formulas` knows the values as they are there, while the visits are gone through.
    """

    node: Node
    role: Role
    group: int
    who: str
    count: Formula
    index: Formula | None
    formulas: Formulas


def visits(kernel: Kernel) -> Iterator[Visit]:
    """Every group of every role at every node of its body, in program order."""
    formulas = Formulas(kernel)
    for role in kernel.roles:
        for group in range(role.groups):
            number: dict[Value, Formula] = {}
            if role.index is not None:
                number[role.index] = Formula.of(group)
            who = group_name(kernel, role, group)
            with formulas.bound(number, f" of {who}" if role.groups > 1 else ""):
                walk = _Walk(kernel, role, group, who, formulas)
                yield from walk.block(role.body, _ONE, None, 0)


@dataclass
class _Walk:
    kernel: Kernel
    role: Role
    group: int
    who: str
    formulas: Formulas

    def block(
        self, block: Block, count: Formula, index: Formula | None, depth: int
    ) -> Iterator[Visit]:
        for node in block.nodes:
            yield Visit(node, self.role, self.group, self.who, count, index, self.formulas)
            match node:
                case For():
                    yield from self.loop(node, count, depth)
                case ForTasks():
                    coordinates = _coordinates(node.tasks, len(node.index), depth)
                    bound: dict[Value, Formula] = dict(zip(node.index, coordinates, strict=True))
                    known = node.tasks is self.kernel.launch
                    # A block that runs has a task.
                    tasks = Quantity("tasks" if known else f"tasks of {node.tasks.loc}", int(known))
                    with self.formulas.bound(bound):
                        inside = count * Formula.of(tasks)
                        yield from self.block(node.body, inside, None, depth + 1)
                case While():
                    passes = Formula.of(Quantity(f"passes of the while of {self.at(node)}", 0))
                    again = count * passes
                    yield from self.block(node.test, again + count, None, depth + 1)
                    yield from self.block(node.body, again, None, depth + 1)
                case If():
                    taken = self.formulas.formula(node.condition)
                    yield from self.branch(node.then, count * taken, index, depth)
                    yield from self.branch(node.otherwise, count * (_ONE - taken), index, depth)
                case _:
                    pass

    def branch(
        self, block: Block, count: Formula, index: Formula | None, depth: int
    ) -> Iterator[Visit]:
        """A side of an `if`, unless this group never takes it."""
        if count.terms:
            yield from self.block(block, count, index, depth)

    def loop(self, node: For, count: Formula, depth: int) -> Iterator[Visit]:
        formulas = self.formulas
        trips = formulas.trips(node.start, node.stop, node.step)
        first = formulas.formula(node.start)
        # Loops of two roles over the same range at the same depth are one loop, and have one index.
        stop, step = formulas.formula(node.stop), f", {node.step}" if node.step != 1 else ""
        range_ = f"{first}, {stop}{step}" if first.terms or step else f"{stop}"
        name = f"index {depth} of range({range_})" if depth else f"index of range({range_})"
        least = first.least if node.step > 0 else None
        index = Formula.of(Quantity(name, least))
        if trips.terms:
            with formulas.bound({node.index: index}):
                yield from self.block(node.body, count * trips, index, depth + 1)

    def at(self, node: While) -> str:
        """A name for a loop whose passes cannot be counted; one a group, as its condition may be."""
        return f"{node.loc} in {self.who}"


def times(count: Formula) -> str:
    """A count in words."""
    match count.constant:
        case 0:
            return "never"
        case 1:
            return "once"
        case _:
            return f"{count} times"


def _coordinates(tasks: Tasks, rank: int, depth: int) -> list[Formula]:
    """The coordinates of a task, the same for all roles."""
    inside = f" of loop {depth}" if depth else ""
    return [Formula.of(Quantity(f"task[{axis}]{inside}", least=0)) for axis in range(rank)]
