"""Carries sums round loops in parts: each lane adds up its own elements, and the lanes join once after the loop.

Several lanes hold a row of p. In `l = l * alpha + pk.row_sum(p)` they would exchange their sums in every iteration, and
all lanes theirs in `l = l + pk.sum(v)`. A sum is linear: l can be in parts if the loop only adds sums to it and
multiplies it by factors that all lanes of a row have alike, and reads it in no other way. Scalars and vectors of the
type of l are such factors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pykittens.ir.nodes import (
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    Kernel,
    Loop,
    While,
    all_blocks,
    walk,
)
from pykittens.ir.op import Parts
from pykittens.ir.structure import uses
from pykittens.ir.values import RegVector, Scalar, Value, handle
from pykittens.types.tiles import Type


def carry_parts(kernel: Kernel) -> None:
    """Carry the sums of every loop in parts, if they can be."""
    counts = Counter(v for node in walk(kernel.body) for v in uses(node))
    for block in all_blocks(kernel.body):
        for node in list(block.nodes):
            if isinstance(node, For | ForTasks | While):
                _carry(node, block, counts)


def _carry(loop: Loop, block: Block, counts: Counter[Value]) -> None:
    carried = [c for c in loop.carried if _keeps_precision(c.param)]
    split = _Split(loop, carried)
    while (possible := split.possible(counts)) != carried:
        carried = possible
        split = _Split(loop, carried)
    kinds = split.leave()
    for c in carried:
        _split_before(c, loop, block, kinds[c.param.type], counts)
        _join_after(c, loop, block, kinds[c.param.type])


def _keeps_precision(x: Value) -> bool:
    """Whether it is a vector, or a scalar in floating point, whose sums are not rounded to a narrower dtype.

    They are then rounded once for all lanes. An int scalar may not overflow, which its parts may.
    """
    is_summed = isinstance(x, RegVector) or (isinstance(x, Scalar) and x.dtype.is_float)
    return is_summed and x.dtype.compute == x.dtype


class _Split:
    """The values of a loop's body that are in parts if some carried values are.

    ways: for each value that can be in parts, the operands that then are.
    """

    def __init__(self, loop: Loop, carried: list[Carried]) -> None:
        self.carried = carried
        self.made: dict[Value, Call] = {}
        self.ways: dict[Value, tuple[str, ...]] = {c.param: () for c in carried}
        holding = set(self.ways)  # the values that a carried one is a term of
        for call in loop.body.nodes:
            if not isinstance(call, Call) or len(call.results) != 1:
                continue
            ways = list(self._ways_of(call))
            if ways:
                (result,) = call.results
                holders = (w for w in ways if any(call.args[n] in holding for n in w))
                way = next(holders, ways[0])
                self.made[result], self.ways[result] = call, way
                if any(call.args[n] in holding for n in way):
                    holding.add(result)

    def _ways_of(self, call: Call) -> Iterator[tuple[str, ...]]:
        """The sets of operands of which each makes the result be in parts if it is in parts itself."""
        if call.op.parts is not None:
            yield ()
        for names in call.op.linear:
            parts = (call.args[n] for n in names)
            if all(x in self.ways and x.type == call.results[0].type for x in parts):
                yield names

    def terms(self, c: Carried) -> set[Value] | None:
        """The values that are in parts if a carried value is; None if it cannot be."""
        found, work = {c.param}, [c.next]
        while work:
            value = work.pop()
            if value not in self.ways:
                return None
            if value not in found:
                found.add(value)
                work += self._read(value)
        return found

    def _read(self, value: Value) -> list[Value]:
        """The operands in parts from which a value in parts is computed."""
        return [self.made[value].args[n] for n in self.ways[value]] if value in self.made else []

    def possible(self, counts: Counter[Value]) -> list[Carried]:
        """Those carried values that can be in parts, each with a sum, while the others are as they are now."""
        terms = {c: t for c in self.carried if (t := self.terms(c)) is not None}
        if len(terms) < len(self.carried):
            return [*terms]  # without the others, values may be in parts in other ways
        reads = Counter(c.next for c in terms)
        for value in set().union(*terms.values()):
            reads.update(self._read(value))
        # Carried values that are read for one another are in parts together, with the sums of one of them.
        useful = {v for t in terms.values() if any(map(self._is_sum, t)) for v in t}
        while (more := {v for t in terms.values() if t & useful for v in t}) - useful:
            useful |= more
        return [c for c, t in terms.items() if t & useful and all(counts[v] == reads[v] for v in t)]

    def _is_sum(self, value: Value) -> bool:
        return value in self.made and self.made[value].op.parts is not None

    def leave(self) -> dict[Type, Parts]:
        """Leave the sums in parts; how they are joined, by their types."""
        kinds: dict[Type, Parts] = {}
        for value in {v for c in self.carried for v in self.terms(c) or ()}:
            if self._is_sum(value):
                call = self.made[value]
                assert call.op.parts is not None
                kinds[value.type], call.op = call.op.parts, call.op.parts.made
        return kinds


def _split_before(
    c: Carried, loop: Loop, block: Block, kind: Parts, counts: Counter[Value]
) -> None:
    """Carry an initial value in parts: a sum that nothing else reads stays so, any other value is one lane's part.

    A zero is that of all lanes.
    """
    if isinstance(c.init, int | float) and not c.init:
        return
    source = getattr(c.init, "source", None)
    if isinstance(source, Call) and source.op.parts is kind and counts[c.init] == 1:
        source.op = kind.made
        return
    alone = handle(c.param.type, loc=loop.loc)
    call = Call(kind.alone, {"x": c.init}, [alone], loop.loc)
    alone.block, alone.source = block, call
    block.nodes.insert(block.nodes.index(loop), call)
    c.init = alone


def _join_after(c: Carried, loop: Loop, block: Block, kind: Parts) -> None:
    """Join the parts after the loop; later nodes read the joined value."""
    joined, parts = c.result, handle(c.result.type, loc=loop.loc)
    parts.block, parts.source, c.result = joined.block, loop, parts
    joined.source = Call(kind.joined, {"x": parts}, [joined], loop.loc)
    block.nodes.insert(block.nodes.index(loop) + 1, joined.source)
