"""Run-time branches: the functions that a rewritten `if` calls."""

from __future__ import annotations

from typing import Any

from pykittens.errors import Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Block, If, Merged
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import Value, describe, handle
from pykittens.lang.bindings import MISSING, alike, at_head, held, parts, rebuilt, same, type_of
from pykittens.lang.control_exits import Construct
from pykittens.lang.truth import Thunk, check_condition


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
        self.names, self.before = names, held(thunks)
        return self._enter(self.node.then)

    def leave_then(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        """The values of the names before the branch, at the end of its first side."""
        self.after_then = self._leave(thunks)
        return self.before

    def enter_otherwise(self) -> list[Any]:
        return self._enter(self.node.otherwise)

    def leave_otherwise(self, thunks: tuple[Thunk, ...]) -> list[Any]:
        """The values of the names after the branch."""
        return [
            self._merge(name, a, b)
            for name, a, b in zip(self.names, self.after_then, self._leave(thunks), strict=True)
        ]

    def _enter(self, side: Block) -> list[Any]:
        current("if").stack.append(side)
        return at_head(self.names, self.before, "is read in a branch before it is bound")

    @staticmethod
    def _leave(thunks: tuple[Thunk, ...]) -> list[Any]:
        values = held(thunks)
        current("if").stack.pop()
        return values

    def _merge(self, name: str, a: Any, b: Any) -> Any:
        if a is MISSING or b is MISSING:
            return Undefined(
                name, "is bound in one branch of a run-time `if` only", "bind it before the `if`"
            )
        if same(a, b):
            return a
        if alike(a, b):
            other = parts(b)
            return rebuilt(
                a, {k: self._merge(f"{name}[{k!r}]", v, other[k]) for k, v in parts(a).items()}
            )
        type_ = type_of(a)
        if type_ is None or type_ != type_of(b):
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
    """The object that a rewritten `if` calls."""
    return _Branch(condition)
