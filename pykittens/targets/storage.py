"""Decides which register values share one C++ variable.

Accumulators stay in place: the result of a product takes the array of its accumulator, and a value that a loop carries
keeps one array before, in and after the loop. A product without an accumulator takes the array of an earlier product in
the same block; otherwise the compiler would start it while the earlier result is in use, which takes more registers.
Two values share a variable if their live ranges do not overlap; otherwise the emitter copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykittens.ir.nodes import Block, Call, For, ForTasks, If, Loop, Role, While, blocks
from pykittens.ir.op import Engine
from pykittens.ir.structure import inputs, leaving, reads
from pykittens.ir.values import SharedTile, Value


class Storage:
    """The variables of one role: the leader of the values that share each variable, and the block that declares it.

    outliving: values that are read after the role, such as scalars defined outside roles.
    """

    def __init__(self, role: Role, outliving: Iterable[Value] = ()) -> None:
        self.position = 0
        self.made: dict[Value, int] = {}
        self.used: dict[Value, int] = {}
        self.home: dict[Value, list[Block]] = {}  # the blocks that enclose its definition
        self.leader: dict[Value, Value] = {}
        self.wanted: list[tuple[Value, Value]] = []
        self._number(role.body, [])
        self.position += 1
        for value in outliving:
            self._use(value)
        self.members: dict[Value, list[Value]] = {v: [v] for v in self.made}
        for a, b in self.wanted:
            self._share(a, b)
        self.declared_in: dict[Value, Block] = {}
        for leader, members in self.members.items():
            if self.find(leader) is leader:
                self.declared_in[leader] = _common([self.home[m] for m in members])

    def find(self, value: Value) -> Value:
        """The leader of the values that share the variable of a value."""
        while value in self.leader:
            value = self.leader[value]
        return value

    def same(self, a: Any, b: Any) -> bool:
        """Whether two values share a variable."""
        return isinstance(a, Value) and isinstance(b, Value) and self.find(a) is self.find(b)

    def changes(self, value: Any) -> bool:
        """Whether the variable of a value is written more than once, so that it must be read before it changes."""
        return isinstance(value, Value) and len(self.members.get(self.find(value), ())) > 1

    def depth(self, value: Any) -> int:
        """How many blocks of the role enclose the definition of a scalar."""
        return len(self.home.get(value, ())) if isinstance(value, Value) else 0

    # -- live ranges ---------------------------------------------------------------------------

    def _define(self, value: Value, stack: list[Block]) -> None:
        self.made[value] = self.used[value] = self.position
        self.home[value] = list(stack)

    def _use(self, value: Any) -> None:
        if isinstance(value, Value) and value in self.made:
            self.used[value] = max(self.used[value], self.position)
        if isinstance(value, SharedTile) and isinstance(value.source, Call):
            # Each use of a view computes its address.
            for operand in value.source.args.values():
                self._use(operand)

    def _number(self, block: Block, stack: list[Block]) -> None:
        stack = [*stack, block]
        products: list[Value] = []  # without an accumulator
        for node in block.nodes:
            self.position += 1
            for value in inputs(node):
                self._use(value)
            match node:
                case Call():
                    for result in node.results:
                        self._define(result, stack)
                    accumulates = node.op.effects.accumulates
                    accumulator = node.args.get(accumulates or "")
                    if isinstance(accumulator, Value):
                        self.wanted.append((accumulator, node.results[0]))
                    elif node.op.effects.engine is Engine.PRODUCT:
                        self.wanted += [(earlier, node.results[0]) for earlier in products]
                        products.append(node.results[0])
                    if node.op.effects.engine is Engine.PRODUCT:
                        # The result is written while the operands are read.
                        for name, operand in node.args.items():
                            if name != accumulates and operand in self.made:
                                self.used[operand] = max(self.used[operand], self.position + 1)
                case For() | ForTasks() | While():
                    self._loop(node, stack)
                case If():
                    for inner in blocks(node):
                        self._number(inner, stack)
                        self.position += 1
                        for value in leaving(node):
                            self._use(value)
                    for m in node.merged:
                        self._define(m.result, stack)
                        self.wanted += [
                            (x, m.result) for x in (m.then, m.otherwise) if isinstance(x, Value)
                        ]
                case _:
                    pass

    def _loop(self, node: Loop, stack: list[Block]) -> None:
        start = self.position
        before = set(self.made)
        if isinstance(node, For):
            self.home[node.index] = [*stack, node.body]
        for c in node.carried:
            self._define(c.param, stack)
            if isinstance(c.init, Value):
                self.wanted.append((c.init, c.param))
        # A loop that ends here leaves them all: one is kept apart from another even if no pass reads it.
        self.position += 1
        for c in node.carried:
            self._use(c.param)
        for inner in blocks(node):
            self._number(inner, stack)
        self.position += 1
        for value in leaving(node):
            self._use(value)
        if not isinstance(node, While):  # every pass asks whether there is another
            for value in (node.stop,) if isinstance(node, For) else reads(node):
                self._use(value)
        # What was made before the loop and is read in it is read again by the next pass.
        for value in before:
            if self.used[value] > start:
                self.used[value] = self.position
        self.position += 1
        for c in node.carried:
            self._define(c.result, stack)
            self.wanted.insert(0, (c.param, c.result))
            if isinstance(c.next, Value):
                self.wanted.append((c.param, c.next))

    # -- sharing -------------------------------------------------------------------------------

    def _share(self, a: Value, b: Value) -> None:
        if a not in self.made or b not in self.made or a.type != b.type:
            return
        first, second = self.find(a), self.find(b)
        if first is second:
            return
        if any(self._overlap(x, y) for x in self.members[first] for y in self.members[second]):
            return
        self.leader[second] = first
        self.members[first] += self.members.pop(second)

    def _overlap(self, x: Value, y: Value) -> bool:
        return self.made[x] < self.used[y] and self.made[y] < self.used[x]


def _common(homes: list[list[Block]]) -> Block:
    shortest = min(homes, key=len)
    depth = len(shortest)
    while any(h[depth - 1] is not shortest[depth - 1] for h in homes):
        depth -= 1
    return shortest[depth - 1]
