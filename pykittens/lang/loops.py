"""What the rewritten control flow of a kernel calls: loops, branches, `and`, `or`, `not` and names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Block, Carried, For, ForTasks, If, Merged, Tasks, While
from pykittens.ir.values import (
    RegTile,
    RegVector,
    Scalar,
    Undefined,
    Value,
    describe,
    handle,
)
from pykittens.lang.truth import Thunk, and_, chain, not_, or_
from pykittens.types.dtypes import bool_, f32, int32
from pykittens.types.tiles import SCALAR, Type


@dataclass(frozen=True)
class Range:
    """`pk.range(start, stop, step)`: a run-time loop, once it stands in a `for` of a rewritten function."""

    start: Any
    stop: Any
    step: int

    def __iter__(self) -> Iterator[Any]:
        raise LanguageError(
            "pk.range: a run-time loop stands in a function that was not rewritten",
            help="mark the function with @pk.kernel or @pk.function",
        )


def named(hint: str | tuple[str, ...], value: Any) -> Any:
    """The value, told the name the user gives it. The first name stays."""
    if isinstance(hint, tuple):
        if isinstance(value, tuple) and len(value) == len(hint):
            for h, v in zip(hint, value, strict=True):
                named(h, v)
    elif (isinstance(value, Value) or hasattr(value, "name_by_assignment")) and not value.name:
        value.name = hint
    return value


# -- values that names hold ------------------------------------------------------------------------


def _values(thunks: tuple[Thunk, ...]) -> list[Any]:
    """What the names hold now; `_MISSING` where a name has no value, or one that is not seen here."""
    found = []
    for thunk in thunks:
        try:
            value = thunk()
        except NameError:
            value = _MISSING
        hidden = isinstance(value, Undefined) or (isinstance(value, Value) and not _is_seen(value))
        found.append(_MISSING if hidden else value)
    return found


def _is_seen(value: Value) -> bool:
    return value.block is None or any(b is value.block for b in current("loop").stack)


class _Missing(Undefined):
    """A name without a value."""


_MISSING = _Missing("the name", "has no value here")


def _scalar_type(value: Any) -> Type | None:
    """The type a Python number has as a run-time value."""
    match value:
        case bool():
            return SCALAR(bool_)
        case int():
            return SCALAR(int32)
        case float():
            return SCALAR(f32)
        case _:
            return None


def _type_of(value: Any) -> Type | None:
    """The type with which a value is carried, None if it cannot be."""
    return value.type if isinstance(value, RegTile | RegVector | Scalar) else _scalar_type(value)


def _same_object(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple | dict):
        return _alike(a, b) and all(map(_same_object, _parts(a).values(), _parts(b).values()))
    if isinstance(a, float) and isinstance(b, float) and a == 0 == b:
        return math.copysign(1, a) == math.copysign(1, b)
    return a is b or (type(a) is type(b) and isinstance(a, int | float | str) and a == b)


def _alike(a: Any, b: Any) -> bool:
    """Whether two values are containers of one kind with the same keys."""
    return (
        isinstance(a, list | tuple | dict)
        and type(a) is type(b)
        and _parts(a).keys() == _parts(b).keys()
    )


def _parts(container: Any) -> dict[Any, Any]:
    """What a list, a tuple or a dict holds, by index or key."""
    return container if isinstance(container, dict) else dict(enumerate(container))


def _rebuilt(like: Any, parts: dict[Any, Any]) -> Any:
    """A container of the kind of another that holds these parts."""
    if isinstance(like, dict):
        return type(like)(parts)
    return like._make(parts.values()) if hasattr(like, "_make") else type(like)(parts.values())


def _copied(value: Any) -> Any:
    """The value, a container copied so that an assignment to a part of it does not show in the original."""
    if not isinstance(value, list | tuple | dict):
        return value
    return _rebuilt(value, {k: _copied(v) for k, v in _parts(value).items()})


_NAMES_ONLY = "attributes are not carried or merged; assign to a name"
_WAYS_OUT = {
    "continue": "put the rest of the body under an `if`",
    "break": "use a `while` with the condition, or put the rest of the body under an `if`",
    "return": "bind a name in the branch and return it at the end",
}


class _Construct:
    """Shared by loops and branches: whether it is run-time, and words that may not stand inside."""

    live = False
    word = "loop"

    def forbid(self, word: str) -> None:
        if self.live:
            raise LanguageError(
                f"`{word}` inside a run-time {self.word}", help=_WAYS_OUT.get(word, _NAMES_ONLY)
            )


class _Loop(_Construct):
    """The values carried round a loop, from the names its body binds."""

    carried: list[Carried]
    body: Block

    def enter(
        self, names: tuple[str, ...], exposed: set[str], thunks: tuple[Thunk, ...]
    ) -> list[Any]:
        """At the head of a pass: what each name holds there."""
        self.names, self.exposed = names, exposed
        self.before = _values(thunks)
        self.params = [
            self._param(value, name) if name in exposed else value
            for name, value in zip(names, self.before, strict=True)
        ]
        return [
            Undefined(n, "is read in a run-time loop before it is bound")
            if p is _MISSING
            else _copied(p)
            for n, p in zip(names, self.params, strict=True)
        ]

    def _param(self, value: Any, name: str) -> Any:
        if isinstance(value, list | tuple | dict):
            return _rebuilt(
                value, {k: self._param(v, f"{name}{k}") for k, v in _parts(value).items()}
            )
        type_ = _type_of(value)
        if type_ is None:
            return value
        param = handle(type_, name)
        current("loop").define(param, self.node, self.body)
        return param

    def leave(self, thunks: tuple[Thunk, ...]) -> None:
        """At the end of a pass: what each name holds for the next one, and after the loop."""
        self.results = [
            self._carry(name, before, param, after)
            for name, before, param, after in zip(
                self.names, self.before, self.params, _values(thunks), strict=True
            )
        ]

    def _carry(self, name: str, before: Any, param: Any, after: Any) -> Any:
        if before is _MISSING:
            return Undefined(
                name,
                "is bound only inside a run-time loop",
                "bind it before the loop to read it afterwards",
            )
        if _alike(before, after):
            first, head, last = _parts(before), _parts(param), _parts(after)
            return _rebuilt(
                before,
                {k: self._carry(f"{name}[{k!r}]", first[k], head[k], last[k]) for k in first},
            )
        if _same_object(before, after) and param is before:
            return before
        if after is _MISSING and param is before:
            return Undefined(
                name, "holds a value of an inner loop or branch behind the run-time loop"
            )
        was, becomes = _type_of(before), _type_of(after)
        if was is None or was != becomes:
            if param is not before or name.split("[")[0] in self.exposed:
                raise LanguageError(
                    f"`{name}` is carried round the loop and changes from {describe(before)} to {describe(after)}",
                    help="a name that the next pass reads keeps its type; `.to(...)` converts",
                )
            return Undefined(
                name, f"changes from {describe(before)} to {describe(after)} in a run-time loop"
            )
        if param is before:  # not read before it is bound: carried only to be read after the loop
            param = self._param(before, name)
        result = handle(was, name, self.node.loc)
        self.carried.append(Carried(before, param, after, result))
        return result

    def after(self) -> list[Any]:
        """Behind the loop: what each name holds."""
        for c in self.carried:
            current("loop").define(c.result, self.node, current("loop").stack[-1])
        return self.results

    @property
    def node(self) -> Any:
        raise NotImplementedError


class _ForLoop(_Loop):
    def __init__(self, iterable: Any, hint: str | tuple[str, ...]) -> None:
        self.iterable = iterable
        self.live = isinstance(iterable, Range | Tasks)
        if not self.live:
            return
        builder = current("loop")
        self.carried, self.body = [], Block()
        loc = Loc.here()
        if isinstance(iterable, Range):
            builder.check_use(iterable.start, "pk.range")
            builder.check_use(iterable.stop, "pk.range")
            index = Scalar(SCALAR(int32))
            self._node: For | ForTasks = For(
                index, iterable.start, iterable.stop, iterable.step, self.body, self.carried, loc
            )
            self.targets: list[Scalar] = [index]
        else:
            self.targets = [Scalar(SCALAR(int32)) for _ in iterable.dims]
            self._node = ForTasks(iterable, self.targets, self.body, self.carried, loc)
        for target in self.targets:
            builder.define(target, self._node, self.body)
        named(hint, self.targets[0] if isinstance(iterable, Range) else tuple(self.targets))

    @property
    def node(self) -> For | ForTasks:
        return self._node

    def __iter__(self) -> Iterator[Any]:
        if not self.live:
            yield from self.iterable
            return
        builder = current("loop")
        builder.append(self._node)
        with builder.inside(self.body):
            yield self.targets[0] if isinstance(self._node, For) else tuple(self.targets)


def for_loop(iterable: Any, hint: str | tuple[str, ...] = "") -> _ForLoop:
    """What a rewritten `for` iterates over: a run-time loop's body once, anything else as Python does."""
    return _ForLoop(iterable, hint)


def _check_condition(condition: Any, word: str) -> None:
    if not isinstance(condition, Scalar) or condition.dtype != bool_:
        raise LanguageError(
            f"the condition of a run-time `{word}` must be a bool scalar, not {describe(condition)}",
            help="compare it, as in `x != 0`" if isinstance(condition, Scalar) else None,
        )


class _WhileLoop(_Loop):
    def __init__(self, test: Thunk) -> None:
        self.passes = 0
        builder = None
        try:
            builder = current("while")
        except LanguageError:
            self.first = test()
            return
        # Whether the condition is run-time shows only when it is evaluated: once for a trial.
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
        _check_condition(self.first, "while")
        self.carried, self.body = [], Block()
        self._node = While(Block(), None, self.body, self.carried, Loc.here())

    @property
    def node(self) -> While:
        return self._node

    def test(self, test: Thunk) -> bool:
        self.passes += 1
        if not self.live:
            value = self.first if self.passes == 1 else test()
            if isinstance(value, Value):
                raise LanguageError(
                    "the condition of a `while` is known in its first pass and a run-time value in a later one",
                    help="make it a run-time value from the start, or keep it one of Python",
                )
            return bool(value)
        builder = current("while")
        if self.passes == 1:
            builder.stack.append(
                self.body
            )  # the test reads what is carried, which belongs to the body
            with builder.inside(self._node.test):
                self._node.condition = test()
            return True
        builder.stack.pop()
        builder.append(self._node)
        return False


def while_loop(test: Thunk) -> _WhileLoop:
    """What a rewritten `while` asks."""
    return _WhileLoop(test)


def python_test(condition: Any) -> Any:
    """The condition of a `while` that binds a name in it."""
    if isinstance(condition, Value):
        raise LanguageError(
            "the condition of a run-time `while` binds a name",
            help="bind it before the loop and at the end of the body",
        )
    return condition


class _Branch(_Construct):
    word = "if"

    def __init__(self, condition: Any) -> None:
        self.condition = condition
        self.live = isinstance(condition, Value)
        if isinstance(condition, Undefined):
            condition.fail()
        if self.live:
            builder = current("if")
            builder.check_use(condition, "if")
            _check_condition(condition, "if")
            self.node = If(condition, Block(), Block(), loc=Loc.here())
            builder.append(self.node)

    def then(self) -> bool:
        return self.live or bool(self.condition)

    def otherwise(self) -> bool:
        return self.live or not self.condition

    def enter_then(self, names: tuple[str, ...], thunks: tuple[Thunk, ...]) -> list[Any]:
        self.names, self.before = names, _values(thunks)
        current("if").stack.append(self.node.then)
        return self._at_head()

    def leave_then(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        self.after_then = _values(thunks)
        current("if").stack.pop()
        return self.before

    def enter_otherwise(self, names: tuple[str, ...], thunks: tuple[Thunk, ...]) -> list[Any]:
        current("if").stack.append(self.node.otherwise)
        return self._at_head()

    def _at_head(self) -> list[Any]:
        return [
            Undefined(n, "is read in a branch before it is bound") if b is _MISSING else _copied(b)
            for n, b in zip(self.names, self.before, strict=True)
        ]

    def leave_otherwise(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        after_otherwise = _values(thunks)
        current("if").stack.pop()
        return [
            self._merge(name, a, b)
            for name, a, b in zip(self.names, self.after_then, after_otherwise, strict=True)
        ]

    def _merge(self, name: str, a: Any, b: Any) -> Any:
        if a is _MISSING or b is _MISSING:
            return Undefined(
                name, "is bound in one branch of a run-time `if` only", "bind it before the `if`"
            )
        if _same_object(a, b):
            return a
        if _alike(a, b):
            other = _parts(b)
            return _rebuilt(
                a, {k: self._merge(f"{name}[{k!r}]", v, other[k]) for k, v in _parts(a).items()}
            )
        type_ = _type_of(a)
        if type_ is None or type_ != _type_of(b):
            return Undefined(
                name,
                f"is {describe(a)} in one branch of a run-time `if` and {describe(b)} in the other",
            )
        result = handle(type_, name, self.node.loc)
        builder = current("if")
        builder.define(result, self.node, builder.stack[-1])
        self.node.merged.append(Merged(a, b, result))
        return result


def branch(condition: Any) -> _Branch:
    """What a rewritten `if` asks."""
    return _Branch(condition)


# What `control.py` writes calls of, all through this module.
__all__ = [
    "Range",
    "and_",
    "branch",
    "chain",
    "for_loop",
    "named",
    "not_",
    "or_",
    "python_test",
    "while_loop",
]
