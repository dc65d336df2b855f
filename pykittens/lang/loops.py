"""Run-time loops: `pk.range`, and the functions that a rewritten `for` and `while` call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current, recording
from pykittens.ir.nodes import Block, Carried, For, ForTasks, Loop, Tasks, While, blocks, walk
from pykittens.ir.structure import uses
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import Scalar, Value, describe, handle
from pykittens.lang.bindings import (
    MISSING,
    alike,
    at_head,
    held,
    named,
    parts,
    rebuilt,
    same,
    type_of,
)
from pykittens.lang.control_exits import Construct
from pykittens.lang.truth import Thunk, check_condition
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR


@dataclass(frozen=True)
class Range:
    """`pk.range(start, stop, step)`: a `for` over it in a rewritten function is a run-time loop."""

    start: Any
    stop: Any
    step: int

    def __iter__(self) -> Iterator[Any]:
        raise LanguageError(
            "pk.range: a run-time loop must be in a function that is rewritten",
            help="mark the function with @pk.kernel or @pk.function",
        )


class _Loop(Construct):
    """The values that a loop carries, found from the names that its body binds."""

    node: Loop

    def enter(
        self, names: tuple[str, ...], exposed: set[str], thunks: tuple[Thunk, ...]
    ) -> list[Any]:
        """The values of the names at the start of an iteration."""
        self.names, self.exposed = names, exposed
        self.before = held(thunks)
        self.params = [
            self._param(value, name) if name in exposed else value
            for name, value in zip(names, self.before, strict=True)
        ]
        return at_head(names, self.params, "is read in a run-time loop before it is bound")

    def _param(self, value: Any, name: str) -> Any:
        if isinstance(value, list | tuple | dict):
            return rebuilt(
                value, {k: self._param(v, f"{name}{k}") for k, v in parts(value).items()}
            )
        type_ = type_of(value)
        if type_ is None:
            return value
        param = handle(type_, name)
        current("loop").define(param, self.node, self.node.body)
        return param

    def leave(self, thunks: tuple[Thunk, ...]) -> None:
        """Note the values of the names at the end of an iteration, for the next one and for after the loop."""
        self.results = [
            self._carry(name, before, param, after)
            for name, before, param, after in zip(
                self.names, self.before, self.params, held(thunks), strict=True
            )
        ]

    def _carry(self, name: str, before: Any, param: Any, after: Any) -> Any:
        if before is MISSING:
            return Undefined(
                name,
                "is bound only inside a run-time loop",
                "bind it before the loop to read it afterwards",
            )
        if alike(before, after):
            first, head, last = parts(before), parts(param), parts(after)
            return rebuilt(
                before,
                {k: self._carry(f"{name}[{k!r}]", first[k], head[k], last[k]) for k in first},
            )
        if same(before, after) and param is before:
            return before
        if after is MISSING and not self._reads(name, before, param):
            return Undefined(
                name, "holds a value of an inner loop or branch after the run-time loop"
            )
        was, becomes = type_of(before), type_of(after)
        if was is None or was != becomes:
            if self._reads(name, before, param):
                raise LanguageError(
                    f"`{name}` is carried by the loop and changes from {describe(before)} to {describe(after)}",
                    help="a name that the next iteration reads must keep its type; `.to(...)` converts",
                )
            return Undefined(
                name, f"changes from {describe(before)} to {describe(after)} in a run-time loop"
            )
        if param is before:  # not read before it is bound: carried only to be read after the loop
            param = self._param(before, name)
        result = handle(was, name, self.node.loc)
        self.node.carried.append(Carried(before, param, after, result))
        return result

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
        return self.results


class _ForLoop(_Loop):
    node: For | ForTasks

    def __init__(self, iterable: Any, hint: str | tuple[str, ...]) -> None:
        self.iterable = iterable
        self.live = isinstance(iterable, Range | Tasks)
        if not self.live:
            return
        builder = current("loop")
        body, loc = Block(), Loc.here()
        if isinstance(iterable, Range):
            builder.check_use(iterable.start, "pk.range")
            builder.check_use(iterable.stop, "pk.range")
            index = Scalar(SCALAR(int32))
            self.index: Any = index
            targets = [index]
            self.node = For(index, iterable.start, iterable.stop, iterable.step, body, loc=loc)
        else:
            targets = [Scalar(SCALAR(int32)) for _ in iterable.dims]
            self.index = tuple(targets)
            self.node = ForTasks(iterable, targets, body, loc=loc)
        for target in targets:
            builder.define(target, self.node, body)
        named(hint, self.index)

    def __iter__(self) -> Iterator[Any]:
        if not self.live:
            yield from self.iterable
            return
        builder = current("loop")
        builder.append(self.node)
        with builder.inside(self.node.body):
            yield self.index


def for_loop(iterable: Any, hint: str | tuple[str, ...] = "") -> _ForLoop:
    """The object over which a rewritten `for` iterates: once if the loop is run-time, otherwise as Python does."""
    return _ForLoop(iterable, hint)


class _WhileLoop(_Loop):
    node: While

    def __init__(self, test: Thunk) -> None:
        self.tests = 0
        builder = recording()
        if builder is None:
            self.first = test()
            return
        # Only its evaluation shows whether the condition is run-time: it is evaluated once as a trial.
        trial = Block()
        with builder.inside(trial):
            self.first = test()
        self.live = isinstance(self.first, Value)
        if not self.live:
            builder.stack[-1].nodes += trial.nodes
            for node in trial.nodes:
                for result in getattr(node, "results", ()):
                    builder.define(result, node, builder.stack[-1])
            return
        check_condition(self.first, "while")
        self.node = While(Block(), None, Block(), loc=Loc.here())

    def test(self, test: Thunk) -> bool:
        """The condition for Python's `while`: it runs one iteration of a run-time loop."""
        self.tests += 1
        if not self.live:
            value = self.first if self.tests == 1 else test()
            if isinstance(value, Value):
                raise LanguageError(
                    "the condition of a `while` is known in the first iteration and a run-time value in a later one",
                    help="make it a run-time value from the start, or a Python value throughout",
                )
            return bool(value)
        builder = current("while")
        if self.tests == 1:
            # The test reads carried values, which belong to the body.
            builder.stack.append(self.node.body)
            with builder.inside(self.node.test):
                self.node.condition = test()
            return True
        builder.stack.pop()
        builder.append(self.node)
        return False


def while_loop(test: Thunk) -> _WhileLoop:
    """The object that a rewritten `while` calls."""
    return _WhileLoop(test)


def python_test(condition: Any) -> Any:
    """The condition of a `while` that binds a name, which must be a Python value."""
    if isinstance(condition, Value):
        raise LanguageError(
            "the condition of a run-time `while` binds a name",
            help="bind it before the loop and at the end of the body",
        )
    return condition
