"""Which elements of which tensors instructions read and write: boxes, found for all instructions of a kind at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pykittens.errors import LanguageError
from pykittens.ir.evaluate import definition, fold, host_value
from pykittens.ir.nodes import Block, Call, For, If, While, blocks, moved, tensors
from pykittens.ir.values import Global, TileRef, Value
from pykittens.types.tiles import RT, ST

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
# The values of scalars, one for each row; (2, rows), the least and the most, of a number that is read from memory.
Columns = Mapping[Value, Numbers]
# Operations that keep or turn the order of an operand if the others are fixed; of quotients, that of the first.
MONOTONE = {"add", "sub", "mul", "neg", "minimum", "maximum", "floor_div", "cdiv"}
MONOTONE |= {"less", "less_equal", "greater", "greater_equal"}
RISING = {"minimum", "maximum"}  # with all operands, each of which may be any between two ends


class Touched(NamedTuple):
    """Boxes of a tensor: the instruction of each, its first element along each axis, and that after its last.

    by_lanes: not by an engine.
    """

    tensor: str
    writes: bool
    by_lanes: bool
    owner: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True)
class RoleBody:
    """The body of a role of a kind of instruction, the values that the host knows, and the tensors of interest.

    most: of the numbers in a tensor, of which the least is 0.
    """

    kind: str
    body: Block
    host: Mapping[Value, Any]
    written: Collection[str]
    most: Mapping[str, int]

    def touched(self, given: Columns) -> list[Touched]:
        """What instructions touch of these tensors, whose fields and groups have these values; `owner` counts the rows.

        A LanguageError if a place follows neither from fields nor from loops over them, or if elements with tags are
        written at a place, or under a condition, that depends on a number or on memory.
        """
        owner = np.arange(len(next(iter(given.values()))))
        return [*self._block(self.body, given, owner, owner >= 0)]

    def _block(
        self, block: Block, columns: Columns, owner: Numbers, is_sure: Flags
    ) -> Iterator[Touched]:
        """What a block touches, for rows whose fields have these values; is_sure: those in which it surely runs."""
        for node in block.nodes:
            match node:
                case Call():
                    yield from self._call(node, columns, owner, is_sure)
                case For():
                    yield from self._for(node, columns, owner, is_sure)
                case If():
                    taken = self._ends(node.condition, columns, owner)
                    for side, is_then in ((node.then, True), (node.otherwise, False)):
                        rows, surely = owner >= 0, is_sure & False
                        if taken is not None:
                            rows = (taken[0] == is_then) | (taken[1] == is_then)
                            surely = is_sure & (taken[0] == taken[1])
                        inner = {value: x[..., rows] for value, x in columns.items()}
                        yield from self._block(side, inner, owner[rows], surely[rows])
                case While():
                    yield from self._block(node.test, columns, owner, is_sure)
                    yield from self._block(node.body, columns, owner, is_sure & False)
                case _:
                    assert not blocks(node), "a node with blocks that is not known here"

    def _for(
        self, node: For, columns: Columns, owner: Numbers, is_sure: Flags
    ) -> Iterator[Touched]:
        starts, stops = (self._ends(x, columns, owner) for x in (node.start, node.stop))
        if starts is None or stops is None:  # nothing may depend on its passes
            yield from self._block(node.body, columns, owner, is_sure & False)
            return
        vary = [bool(np.any(least != most)) for least, most in (starts, stops)]
        # The passes that there may be; a start may be any between its ends.
        step = int(np.sign(node.step)) if vary[0] else node.step
        start, stop = starts[step < 0], stops[step > 0]
        counts = np.maximum(-(-(stop - start) // step), 0)
        rows = np.repeat(np.arange(len(owner)), counts)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        inner = {value: x[..., rows] for value, x in columns.items()}
        inner[node.index] = start[rows] + number * step
        yield from self._block(node.body, inner, owner[rows], is_sure[rows] & (not any(vary)))

    def _call(
        self, call: Call, columns: Columns, owner: Numbers, is_sure: Flags
    ) -> Iterator[Touched]:
        effects = call.op.effects
        for operands, writes in ((effects.reads, False), (effects.writes, True)):
            for name in operands:
                for tensor in (t for t in tensors(call, (name,)) if t in self.written):
                    low, high, is_exact = self._box(call, call.args[name], columns, owner)
                    if writes and effects.tagged and not np.all(is_sure & is_exact):
                        self._refuse_store(call, tensor)
                    yield Touched(tensor, writes, effects.engine is None, owner, low, high)

    def _refuse_store(self, call: Call, tensor: str) -> None:
        """A reader waits for the tags of elements, so they are written in every run."""
        name = tensor.partition(".")[2]
        raise LanguageError(
            f"{self.kind}: elements of `{name}` with tags are written at a place, or under a condition, that depends "
            "on memory or on a number of the program",
            loc=call.loc,
            help="write the same elements in every run, and choose what is written by pk.where",
        )

    def _box(
        self, call: Call, target: TileRef | Global, columns: Columns, owner: Numbers
    ) -> tuple[Numbers, Numbers, Flags]:
        """The first elements along each axis, those after the last, and whether these are all touched for sure."""
        ref = target.first
        name = ref.tensor.name.partition(".")[2]
        if ref.windows or call.op.effects.index is not None:
            raise LanguageError(
                f"{self.kind}: which elements of `{name}` are touched here is not known",
                loc=call.loc,
                help="let instructions touch tiles at indices that follow from their fields",
            )
        sides = dict(zip(ref.plane, _extents(call)[-len(ref.plane) :], strict=True))
        low, high = np.empty((2, len(owner), len(ref.index)), np.int64)
        is_exact = np.ones(len(owner), np.bool_)
        for axis, index in enumerate(ref.index):
            ends = self._ends(index, columns, owner)
            if ends is None:
                raise LanguageError(
                    f"{self.kind}: axis {axis} of `{name}` has an index that follows from no field",
                    operands={"the index": getattr(index, "name", None) or index},
                    loc=call.loc,
                    help="compute it from fields and indices of loops, by pk.where in place of a branch; a value from "
                    "memory or carried round a loop is not known",
                )
            side = sides.get(axis, 1)
            is_exact &= ends[0] == ends[1]
            extent = host_value(ref.tensor.extents[axis], self.host)
            low[:, axis] = np.clip(ends[0] * side, 0, extent)
            high[:, axis] = np.clip(ends[1] * side + side, 0, extent)
        return low, high, is_exact

    def _ends(self, value: Any, columns: Columns, owner: Numbers) -> tuple[Numbers, Numbers] | None:
        """The least and the most that a scalar can be, None if they are not known."""
        found = self._value(value, columns)
        if found is None:
            return None
        both = np.broadcast_to(np.asarray(found), (2, len(owner)))
        return both.min(axis=0), both.max(axis=0)

    def _value(self, value: Any, columns: Columns) -> Any:
        if not isinstance(value, Value):
            return value
        if value in columns:
            return columns[value]
        if (known := host_value(value, self.host)) is not None:
            return known
        if isinstance(source := getattr(value, "source", None), Call):
            for tensor in tensors(source, source.op.effects.reads):
                if tensor in self.most:
                    return np.array([[0], [self.most[tensor]]])
        call = definition(value)
        if call is None:
            return None
        given = [self._value(a, columns) for a in call.args.values()]
        vary = [i for i, x in enumerate(given) if np.ndim(x) == 2]
        is_alone = vary == [0] or (len(vary) == 1 and "div" not in call.op.name)
        rises = call.op.name in RISING and len(vary) == len(given)
        if vary and not (rises or (is_alone and call.op.name in MONOTONE)):
            return None
        operands = iter(given)
        found = fold(call, lambda _: next(operands))
        if found is not None and np.any((found < -(2**31)) | (found >= 2**31)):
            raise LanguageError(f"{self.kind}: a value overflows an int32", loc=call.loc)
        return found


def _extents(call: Call) -> tuple[int, int]:
    """Rows and columns of the tile that an operation moves, turned as it lies in the tensor."""
    type_ = getattr(moved(call), "type", None)
    rows, cols = 1, getattr(type_, "length", 1)
    if isinstance(type_, RT | ST):
        rows, cols = type_.rows, type_.cols
    return (cols, rows) if call.args.get("transposed") else (rows, cols)
