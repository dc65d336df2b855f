"""Run-time loops: `pk.range`, and the functions that a rewritten `for` and `while` call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir import habits
from pykittens.ir.build import current, recording
from pykittens.ir.nodes import Block, For, ForTasks, Tasks, While, walk
from pykittens.ir.operators import Arithmetic
from pykittens.ir.values import Scalar, Value, describe
from pykittens.lang.bindings import named
from pykittens.lang.carried import Carrying
from pykittens.lang.truth import Thunk, check_condition
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR


@dataclass(frozen=True)
class Range:
    """`pk.range(start, stop, step)`: a `for` over it in a rewritten function is a run-time loop."""

    start: Any
    stop: Any
    step: int

    def __iter__(self) -> Iterator[Scalar]:
        raise LanguageError(
            "pk.range: a run-time loop must be in a function that is rewritten",
            help=habits.at(Loc.here()) or "mark the function with @pk.kernel or @pk.function",
        )


# Iterations of a Python loop after which a warning says that they are all written out: the compiler needs 10 s or more
# (docs/language.md).
MANY_ITERATIONS = 1000


def _unrolled(iterable: Any) -> Iterator[Any]:
    """The items of Python's own loop; warns if the recording of very many iterations writes nodes."""
    builder = recording()
    body = builder.stack[-1].nodes if builder is not None else []
    before = len(body)
    if isinstance(iterable, Arithmetic) and getattr(iterable, "__iter__", None) is None:
        raise LanguageError(
            f"a loop cannot take the parts of {describe(iterable)}",
            help="pk.row(t, i) is a row and pk.column(t, j) a column; `for i in pk.range(n):` is a loop that runs",
        )
    for number, item in enumerate(iterable):
        if number == MANY_ITERATIONS and len(body) - before >= MANY_ITERATIONS:
            loc = Loc.here()
            warnings.warn(
                f"the kernel has {number} iterations of a Python loop written out, and compiling it will take long\n"
                f"{loc.excerpt() if loc else ''}\n"
                "help: `for i in pk.range(n)` is one loop of the running kernel",
                RuntimeWarning,
                stacklevel=3,
            )
        yield item


def _check_once(tasks: Tasks) -> None:
    """Raise unless the role goes through tasks by tickets once."""
    builder = current("loop")
    if builder.merging is not None:
        role = builder.stack[builder.merging.depth - 1]
    else:
        role = builder.role.body if builder.role is not None else builder.kernel.body
    others = [n for n in walk(role) if isinstance(n, ForTasks) and n.tasks is tasks]
    if others or builder.stack[-1] is not role:
        raise LanguageError(
            "tasks by tickets: a role goes through them once, outside loops and branches",
            operands={"before": others[0].loc} if others else {},
        )


class _ForLoop(Carrying):
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
            if builder.homes is not None:
                bounds = iterable.start, iterable.stop
                index.home = builder.homes.of_operands("pk.range", bounds)
        else:
            if iterable.tickets is not None:
                _check_once(iterable)
            targets = [Scalar(SCALAR(int32)) for _ in iterable.dims]
            self.index = tuple(targets)
            self.node = ForTasks(iterable, targets, body, loc=loc)
        for target in targets:
            builder.define(target, self.node, body)
        named(hint, self.index)

    def __iter__(self) -> Iterator[Any]:
        if not self.live:
            yield from _unrolled(self.iterable)
            return
        builder = current("loop")
        builder.append(self.node)
        with builder.inside(self.node.body):
            yield self.index


def for_loop(iterable: Any, hint: str | tuple[str, ...] = "") -> _ForLoop:
    """The object over which a rewritten `for` iterates: once if the loop is run-time, otherwise as Python does."""
    return _ForLoop(iterable, hint)


class _WhileLoop(Carrying):
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
