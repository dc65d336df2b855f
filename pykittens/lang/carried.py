"""The values that a run-time loop carries: those of names, and the items of lists, tuples and dicts.

A name is carried by value. The items of a list that the body assigns by `xs[i] = ...` are carried in the list itself,
so that every name of the list sees them. A list that a name is bound to anew is carried by value, too: afterwards the
name has a new list, and neither it nor a list that it may be instead can change if another name has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from pykittens.errors import LanguageError
from pykittens.ir.build import current
from pykittens.ir.nodes import Carried, Loop, blocks, walk
from pykittens.ir.numbers import number
from pykittens.ir.structure import uses
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import RegTile, RegVector, Value, describe, handle
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
from pykittens.lang.homes import deciding
from pykittens.lang.identity import is_changed, keep, note, refuse_change
from pykittens.lang.truth import Thunk
from pykittens.types.tiles import RT, RV, Spread


@dataclass(eq=False)
class _Given:
    """A list or dict as the body gets it. before, head: its items before the loop and at the start of an iteration."""

    name: str
    place: Place
    original: Any
    thing: Any
    before: dict[Any, Any]
    head: dict[Any, Any]


class Carrying(Construct):
    """A loop and what it carries, found from the names that its body binds."""

    node: Loop

    def enter(
        self,
        names: tuple[str, ...],
        items: tuple[str, ...],
        exposed: tuple[str, ...],
        thunks: tuple[Thunk, ...],
    ) -> list[Any]:
        """The values of the names at the start of an iteration; of `items`, the body assigns items only."""
        self.names, self.exposed = names, exposed
        self.heap, self.before = Heap(), held(thunks)
        self.homes = current("loop").homes
        if self.homes is not None:
            self.number = self.homes.next_loop()
        self.opened: dict[int, _Given] = {}  # carried in place, by id
        self.copies: dict[
            int, _Given
        ] = {}  # the copies of what is carried by value, by id of the original
        given = dict(zip(names, self.before, strict=True))
        for in_place in (True, False):
            for name in names:
                if name in exposed and (name in items) is in_place:
                    place = self.heap.variable(name)
                    given[name] = self._give(given[name], name, in_place, place)
        self.params = [given[name] for name in names]
        return at_head(names, self.params, "is read in a run-time loop before it is bound")

    def _give(self, value: Any, name: str, in_place: bool, place: Place) -> Any:
        if isinstance(value, list | dict):
            return self._give_items(value, name, in_place, place)
        if isinstance(value, tuple):
            before = parts(value)
            head = self._give_each(value, name, in_place)
            return value if _equal(before, head) else rebuilt(value, head)
        return self._param(value, name)

    def _give_items(self, value: Any, name: str, in_place: bool, place: Place) -> Any:
        if (known := self.opened.get(id(value))) is not None:
            if not in_place:
                self._refuse(name, f"`{name}` and `{known.name}`")
            return value
        if (known := self.copies.get(id(value))) is not None:
            return known.thing
        before = parts(value)
        made = value if in_place else rebuilt(value, before)
        given = _Given(name, place, value, made, before, before)
        (self.opened if in_place else self.copies)[id(value)] = given
        given.head = self._give_each(value, name, in_place)
        refill(made, given.head)
        if not in_place:
            note(made, [value])
        return made

    def _give_each(self, value: Any, name: str, in_place: bool) -> dict[Any, Any]:
        return {
            k: self._give(v, f"{name}[{k!r}]", in_place, (id(value), k))
            for k, v in parts(value).items()
        }

    def _param(self, value: Any, name: str) -> Any:
        type_ = type_of(shown(value))
        if type_ is None:
            return value
        param = handle(type_, re.sub(r"\W", "", name))
        if self.homes is not None:
            param.home = self.homes.at_head(self.number, name, value)
        current("loop").define(param, self.node, self.node.body)
        return param

    # -- the end of the body ---------------------------------------------------------------------

    def leave(self, thunks: tuple[Thunk, ...]) -> None:
        """Note the values of the names at the end of an iteration, for the next one and for after the loop."""
        for reached, key in self.heap.changes():
            if id(reached.thing) not in self.opened:
                refuse_change(reached, key, "loop")
        self.end, after = Heap(), held(thunks)
        self.refilled: list[tuple[Any, dict[Any, Any]]] = []
        self.replaced: set[int] = set()  # lists of which another list has taken the place
        for copy in self.copies.values():
            if is_changed(copy.thing, copy.head) and self._others(
                self.heap, copy.original, copy.place
            ):
                self._refuse(copy.name, f"`{copy.name}` and another name")
        known = zip(self.names, self.before, self.params, after, strict=True)
        self.results = [
            self._carry(name, before, param, now, (self.heap.variable(name),) * 2)
            for name, before, param, now in known
        ]
        for g in self.opened.values():
            if id(g.thing) not in self.replaced:
                self.refilled.append((g.thing, self._carry_items(g)))
        del self.heap, self.end

    def _carry_items(self, given: _Given) -> dict[Any, Any]:
        """The items after the loop of a list that is carried in place."""
        now, at = parts(given.thing), id(given.thing)
        if now.keys() != given.before.keys():
            raise LanguageError(
                f"`{given.name}` is carried by the loop and changes its length or its keys",
                help="make the list in its full length before the loop",
            )
        return {
            k: self._carry(f"{given.name}[{k!r}]", v, given.head[k], now[k], ((at, k), (at, k)))
            for k, v in given.before.items()
        }

    def _carry(
        self, name: str, before: Any, param: Any, after: Any, places: tuple[Place, Place]
    ) -> Any:
        """The value after the loop. places: of the value before the loop, and at the end of an iteration."""
        after = shown(after)
        if shown(before) is MISSING:
            return Undefined(
                name,
                "is bound only inside a run-time loop",
                "bind it before the loop to read it afterwards",
            )
        if before is after and (id(before) in self.opened or param is before):
            return before
        if alike(before, after):
            return self._carry_container(name, before, param, after, places)
        if after is MISSING and not self._reads(name, before, param):
            return Undefined(
                name, "holds a value of an inner loop or branch after the run-time loop"
            )
        return self._carry_value(name, before, param, after)

    def _carry_value(self, name: str, before: Any, param: Any, after: Any) -> Any:
        if is_same(before, after) and param is before:
            return before
        was, becomes = type_of(before), type_of(after)
        if was is None or was != becomes:
            if self._reads(name, before, param):
                raise LanguageError(
                    f"`{name}` is carried by the loop and changes from {describe(before)} to {describe(after)}",
                    help=_help(was, after),
                )
            return Undefined(
                name, f"changes from {describe(before)} to {describe(after)} in a run-time loop"
            )
        decided = before, after, *deciding(self.node)
        apart = self.homes.apart(decided) if self.homes is not None else None
        if apart is not None and name.split("[")[0] not in self.exposed:
            return Undefined(name, f"lives with the {apart} in a run-time loop")
        if param is before:  # not read before it is bound: carried only to be read after the loop
            param = self._param(before, name)
        result = handle(was, name, self.node.loc)
        if self.homes is not None:
            result.home = self.homes.carried(self.number, name, (param, *decided))
            if not self.homes.runs(result.home):
                return result
        self.node.carried.append(Carried(number(before), param, number(after), result))
        return result

    def _carry_container(
        self, name: str, before: Any, param: Any, after: Any, places: tuple[Place, Place]
    ) -> Any:
        given = self.opened.get(id(before)) or self.copies.get(id(before))
        first, last = given.before if given else parts(before), parts(after)
        head = given.head if given else parts(param)
        found = {}
        for k, value in first.items():
            inner = (id(before), k), (id(after), k)
            found[k] = self._carry(f"{name}[{k!r}]", value, head[k], last[k], inner)
        if isinstance(before, tuple):
            return rebuilt(before, found)
        if given is not None and after is given.thing:
            # The name was not bound anew: all names of the list see its items.
            self.refilled.append((before, found))
            return before
        made = rebuilt(before, found)
        self.replaced.add(id(before))
        self._check_identity(name, given, before, after, made, places)
        return made

    def _check_identity(
        self,
        name: str,
        given: _Given | None,
        before: Any,
        after: Any,
        made: Any,
        places: tuple[Place, Place],
    ) -> None:
        """Refuse what depends on whether two names have one list: that is known only when the kernel runs."""
        was_shared = self._others(self.heap, before, places[0])
        is_shared = self._others(self.end, after, places[1])
        in_place = id(before) in self.opened
        changed = given is not None and is_changed(given.thing, given.head)
        if given is not None and (
            id(after) in self.opened
            or (in_place and was_shared)
            or (changed and (was_shared or is_shared))
        ):
            self._refuse(name, f"`{name}` and another name")
        note(made, [before, after, *([given.thing] if given else [])])
        shared = [before] * was_shared + [after] * is_shared
        if shared:
            keep(name, shared, self.node.loc)

    def _others(self, heap: Heap, thing: Any, place: Place) -> bool:
        """Whether something else refers to a list; names without a value before the loop do not count."""
        own = {
            heap.variable(n)
            for n, before in zip(self.names, self.before, strict=True)
            if before is MISSING
        }
        return bool(heap.holders(thing) - own - {place})

    def _refuse(self, name: str, names: str) -> NoReturn:
        raise LanguageError(
            f"{names} are one list in some iterations and two in others, and the loop assigns items of it",
            help=f"give each its own list, as in `{name.split('[')[0]} = list(...)`, or assign items only, "
            "through one name",
        )

    def _reads(self, name: str, before: Any, param: Any) -> bool:
        """Whether an iteration reads the value that the name has at its start."""
        if not isinstance(param, Value) or param is before:
            return name.split("[")[0] in self.exposed
        nodes = (n for block in blocks(self.node) for n in walk(block))
        return any(param is v for n in nodes for v in uses(n))

    def after(self) -> list[Any]:
        """The values of the names after the loop."""
        for c in self.node.carried:
            current("loop").define(c.result, self.node, current("loop").stack[-1])
        for thing, items in self.refilled:
            refill(thing, items)
        return self.results


def _equal(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    return a.keys() == b.keys() and all(a[k] is b[k] for k in a)


def _help(was: Any, after: Any) -> str:
    """How a name keeps its type in a loop: from a value of the program before it, or by a conversion."""
    if not isinstance(after, RegTile | RegVector) or isinstance(was, RT | RV):
        return "a name that the next iteration reads must keep its type; `.to(...)` converts"
    made = ["pk." + str(after.dtype), *map(str, after.type.shape)]
    if isinstance(after, RegVector) and after.type.spread is not Spread.PLAIN:
        made.append("spread=pk." + str(after.type.spread).replace(" ", "_"))
    return (
        "bind it before the loop to what the first iteration shall read, such as "
        f"pk.zeros({', '.join(made)}) for a sum, or pk.full with the least value for a maximum"
    )
