"""Run-time branches: the functions that a rewritten `if` calls.

Both sides are recorded, each from the state before the branch. Names are merged, and so are the items of every list
and dict that a side changes, whichever name it uses.
"""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Block, If, Merged
from pykittens.ir.numbers import number
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import Value, describe, handle
from pykittens.lang.bindings import (
    MISSING,
    alike,
    at_head,
    held,
    parts,
    rebuilt,
    refill,
    shown,
    type_of,
)
from pykittens.lang.control_exits import Construct
from pykittens.lang.heap import Heap, Place, is_same
from pykittens.lang.identity import keep, note, refuse_change
from pykittens.lang.truth import Thunk, check_condition

Items = dict[int, dict[Any, Any]]  # of lists and dicts, by id


class _Branch(Construct):
    word = "if"

    def __init__(self, condition: Any) -> None:
        self.condition = condition
        self.live = isinstance(condition, Value)
        if isinstance(condition, Undefined):
            condition.fail()
        if self.live:
            builder = current("if")
            builder.check_use(condition, "if")
            check_condition(condition, "if")
            self.node = If(condition, Block(), Block(), loc=Loc.here())
            builder.append(self.node)

    def then(self) -> bool:
        return self.live or bool(self.condition)

    def otherwise(self) -> bool:
        return self.live or not self.condition

    def enter_then(self, names: tuple[str, ...], thunks: tuple[Thunk, ...]) -> list[Any]:
        self.names, self.before, self.heap = names, held(thunks), Heap()
        return self._enter(self.node.then)

    def leave_then(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        """The values of the names before the branch, at the end of its first side."""
        self.after_then, self.items_then, self.heap_then = self._leave(thunks)
        for at, items in self.items_then.items():
            before = self.heap.found[at]
            if not _equal(items, before.contents):
                refill(before.thing, before.contents)
        return self.before

    def enter_otherwise(self) -> list[Any]:
        return self._enter(self.node.otherwise)

    def leave_otherwise(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        """The values of the names after the branch."""
        after, self.items_otherwise, self.heap_otherwise = self._leave(thunks)
        merged = []
        for name, a, b in zip(self.names, self.after_then, after, strict=True):
            merged.append(self._merge(name, a, b, self.heap.variable(name)))
        refilled = [(self.heap.found[at].thing, self._merge_items(at)) for at in self.items_then]
        for thing, items in refilled:
            if not _equal(parts(thing), items):
                refill(thing, items)
        del self.heap, self.heap_then, self.heap_otherwise
        return merged

    def _enter(self, side: Block) -> list[Any]:
        current("if").stack.append(side)
        return at_head(self.names, self.before, "is read in a branch before it is bound")

    def _leave(self, thunks: tuple[Thunk, ...]) -> tuple[list[Any], Items, Heap]:
        """At the end of a side: the values of the names, the items of what was reached before, and what is now."""
        for reached, key in self.heap.changes():
            if not isinstance(reached.thing, list | dict):
                refuse_change(reached, key, "if")
        known = self.heap.found.items()
        items = {at: parts(r.thing) for at, r in known if isinstance(r.thing, list | dict)}
        values = held(thunks)
        heap = Heap()
        current("if").stack.pop()
        return values, items, heap

    def _merge_items(self, at: int) -> dict[Any, Any]:
        """The items of a list or dict that both sides reach, after the branch."""
        reached, then, otherwise = (
            self.heap.found[at],
            self.items_then[at],
            self.items_otherwise[at],
        )
        if isinstance(reached.thing, list) and len(then) != len(otherwise):
            raise LanguageError(
                f"`{reached.path}` has {len(then)} items after one branch of a run-time `if` and {len(otherwise)} "
                "after the other",
                help="make the list in its full length before the `if`",
            )
        return {
            k: self._merge(
                reached.part(k), then.get(k, MISSING), otherwise.get(k, MISSING), (at, k)
            )
            for k in {**then, **otherwise}
        }

    def _merge(self, name: str, a: Any, b: Any, place: Place) -> Any:
        if is_same(a, b):
            return Undefined(name, "is bound in no branch") if a is MISSING else a
        if self._is_hidden(a, self.node.then) or self._is_hidden(b, self.node.otherwise):
            return Undefined(
                name, "is bound in one branch of a run-time `if` only", "bind it before the `if`"
            )
        if alike(a, b):
            return self._merge_containers(name, a, b, place)
        type_ = type_of(a)
        if type_ is None or type_ != type_of(b):
            return Undefined(
                name,
                f"is {describe(a)} in one branch of a run-time `if` and {describe(b)} in the other",
            )
        builder = current("if")
        decided = a, b, self.condition
        if builder.homes is not None and (apart := builder.homes.apart(decided)):
            return Undefined(name, f"lives with the {apart} after a run-time `if`")
        result = handle(type_, name, self.node.loc)
        builder.define(result, self.node, builder.stack[-1])
        if builder.homes is not None:
            result.home = builder.homes.of_operands(f"`{name}`", decided)
            if not builder.homes.runs(result.home):
                return result
        self.node.merged.append(Merged(number(a), number(b), result))
        return result

    @staticmethod
    def _is_hidden(value: Any, side: Block) -> bool:
        """Whether there is no value at the end of a side, or one of a block inside it."""
        return shown(value) is MISSING and not (isinstance(value, Value) and value.block is side)

    def _merge_containers(self, name: str, a: Any, b: Any, place: Place) -> Any:
        then, otherwise = self.items_then.get(id(a)), self.items_otherwise.get(id(b))
        then = parts(a) if then is None else then
        otherwise = parts(b) if otherwise is None else otherwise
        inner = id(a)
        made = rebuilt(
            a,
            {
                k: self._merge(f"{name}[{k!r}]", v, otherwise[k], (inner, k))
                for k, v in then.items()
            },
        )
        if not isinstance(a, tuple):
            # Whether another name has the same list as this one is known only when the kernel runs.
            shared = [a] * bool(self.heap_then.holders(a) - {place})
            shared += [b] * bool(self.heap_otherwise.holders(b) - {place, (id(b), place[1])})
            note(made, [a, b])
            if shared:
                keep(name, shared, self.node.loc)
        return made


def branch(condition: Any) -> _Branch:
    """The object that a rewritten `if` calls."""
    return _Branch(condition)


def _equal(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    return a.keys() == b.keys() and all(a[k] is b[k] for k in a)
