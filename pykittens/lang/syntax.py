"""The syntax that rewriting inserts: calls, lambdas and conditional assignments."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)

# The name of the object with the functions that rewritten code calls, and the stem of its variables.
RUNTIME = "__pk__"


def located(node: N, like: ast.AST) -> N:
    """The node, and what is new below it, with the location of another in the user's source."""
    new: list[ast.AST] = [node]
    for each in new:
        ast.copy_location(each, like)
        new += (n for n in ast.iter_child_nodes(each) if not hasattr(n, "lineno"))
    return node


def head(statement: ast.AST) -> ast.AST:
    """The expression of a compound statement under which carets stand, or the statement."""
    return getattr(statement, "iter", None) or getattr(statement, "test", None) or statement


def call(word: str, *args: ast.expr) -> ast.expr:
    """`__pk.word(...)`."""
    return method(RUNTIME, word, *args)


def method(variable: str, word: str, *args: ast.expr) -> ast.expr:
    """`variable.word(...)`."""
    return ast.Call(ast.Attribute(ast.Name(variable, ast.Load()), word, ast.Load()), list(args), [])


def thunk(expression: ast.expr) -> ast.expr:
    """`lambda: expression`."""
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, expression)


def thunks(names: Sequence[str]) -> ast.expr:
    """`(lambda: a, lambda: b)`: the values of names, read one by one because some may have none."""
    return ast.Tuple([thunk(ast.Name(n, ast.Load())) for n in names], ast.Load())


def strings(names: Sequence[str]) -> ast.expr:
    """`("a", "b")`."""
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def hint(target: ast.expr) -> ast.expr:
    """The names of a target, as a string or a tuple of strings; an empty string for any other target."""
    match target:
        case ast.Name():
            return ast.Constant(target.id)
        case ast.Tuple() | ast.List() if all(isinstance(e, ast.Name) for e in target.elts):
            return strings([e.id for e in target.elts if isinstance(e, ast.Name)])
        case _:
            return ast.Constant("")


def has_walrus(node: ast.AST) -> bool:
    """Whether a node binds a name with `:=`, which a lambda around it would hide."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def bind(variable: str, value: ast.expr, like: ast.AST) -> ast.stmt:
    """`variable = value`."""
    return _assign(ast.Name(variable, ast.Store()), value, like)


def when_live(
    variable: str, value: ast.expr, like: ast.AST, names: Sequence[str] = ()
) -> list[ast.stmt]:
    """`if variable.live: names = value`, or the value alone if there are no names."""
    live = ast.Attribute(ast.Name(variable, ast.Load()), "live", ast.Load())
    targets = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
    step = _assign(targets, value, like) if names else ast.Expr(value)
    return [located(ast.If(live, [step], []), head(like))]


def _assign(target: ast.expr, value: ast.expr, like: ast.AST) -> ast.stmt:
    return located(ast.Assign([target], value), head(like))
