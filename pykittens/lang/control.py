"""Rewrites a kernel function so that recording sees its run-time loops and branches.

Python runs the function once. Constructs that this run cannot see are rewritten: a `for`, `while` or `if` gets calls
before and after its body that open and close a block and replace the names it binds by carried values; `and`, `or`,
`not` and chained comparisons become calls; an assignment passes its name to the value. If the loop or condition is
Python's own, the calls do nothing. No body is moved, so closures, `with`, inner functions and walrus work.

    for k in pk.range(n):           __1 = __pk.for_loop(pk.range(n))
        acc = acc + x               for k in __1:
                                        if __1.live: acc, = __1.enter(("acc",), (), ("acc",), (lambda: acc,))
                                        acc = __pk.named("acc", acc + x)
                                        if __1.live: __1.leave((lambda: acc,))
                                    if __1.live: acc, = __1.after()
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from pykittens.lang.bindings import named
from pykittens.lang.branches import branch
from pykittens.lang.loops import for_loop, python_test, while_loop
from pykittens.lang.names import (
    bound_names,
    captured_names,
    names_of_items,
    read_first,
    target_names,
)
from pykittens.lang.source import Definition, remade
from pykittens.lang.syntax import (
    RUNTIME,
    bind,
    call,
    has_walrus,
    hint,
    located,
    method,
    strings,
    thunk,
    thunks,
    when_live,
)
from pykittens.lang.truth import and_, chain, not_, or_

F = TypeVar("F", bound=Callable[..., Any])

# The functions that rewritten code calls.
_WORDS = SimpleNamespace(
    and_=and_,
    branch=branch,
    chain=chain,
    for_loop=for_loop,
    named=named,
    not_=not_,
    or_=or_,
    python_test=python_test,
    while_loop=while_loop,
)


def rewrite(source: Definition) -> Callable[..., Any]:
    """The function with its control flow rewritten; its closure, defaults and source lines stay."""
    definition = source.tree()
    _Rewriter().rewrite_function(definition)
    return remade(source.function, definition, _WORDS)


def function(helper: F) -> F:
    """Rewrite a helper whose loops or branches depend on run-time values; kernels call it like any function.

    Other helpers need no decorator. @pk.kernel does the same for a kernel.

        >>> @pk.function
        ... def power(x, n):
        ...     result = x
        ...     for _ in pk.range(n - 1):
        ...         result = result * x
        ...     return result
    """
    return cast(F, rewrite(Definition(helper)))


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0
        # The enclosing constructs: the variable, or None if it is certainly Python's, and whether it is a loop.
        self.open: list[tuple[str | None, bool]] = []
        # Names of the function that its inner functions read, and names that they rebind: any call may do so.
        self.read_inside: set[str] = set()
        self.rebound_inside: list[str] = []

    def rewrite_function(self, node: ast.FunctionDef) -> None:
        outer = self.open, self.read_inside, self.rebound_inside
        self.open, (self.read_inside, self.rebound_inside) = [], captured_names(node)
        node.body = self._statements(node.body)
        self.open, self.read_inside, self.rebound_inside = outer

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            done += result if isinstance(result, list) else [result]
        return done

    def _inside(self, variable: str | None, loop: bool, body: list[ast.stmt]) -> list[ast.stmt]:
        self.open.append((variable, loop))
        done = self._statements(body)
        self.open.pop()
        return done

    def _fresh(self) -> str:
        self.count += 1
        return f"{RUNTIME}{self.count}"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.rewrite_function(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node  # Python's own: names of a class body are not the function's

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        loop = self._fresh()
        targets = target_names(node.target)
        names = [n for n in self._rebound(node.body) if n not in targets]
        exposed = read_first(node.body, targets) | self.read_inside
        items = self._items(node.body, names)
        start = bind(loop, call("for_loop", self.visit(node.iter), hint(node.target)), node)
        body = self._inside(loop, True, node.body)
        node.iter = located(ast.Name(loop, ast.Load()), node.iter)
        node.body = [*_enter(loop, names, items, exposed, node), *body, *_leave(loop, names, node)]
        return [start, *self._ended(loop, names, node)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        if has_walrus(node.test):
            # A run-time test is evaluated twice, so a test with a walrus must be Python's.
            node.test = located(call("python_test", self.visit(node.test)), node.test)
            node.body = self._inside(None, True, node.body)
            node.orelse = self._statements(node.orelse)
            return [node]
        loop = self._fresh()
        names = self._rebound(node.body)
        exposed = read_first([ast.Expr(node.test), *node.body], set()) | self.read_inside
        items = self._items(node.body, names)
        test = self.visit(node.test)
        start = bind(loop, call("while_loop", thunk(copy.deepcopy(test))), node)
        body = self._inside(loop, True, node.body)
        node.test = located(method(loop, "test", thunk(test)), node.test)
        node.body = [*body, *_leave(loop, names, node)]
        return [start, *_enter(loop, names, items, exposed, node), *self._ended(loop, names, node)]

    def _ended(self, loop: str, names: list[str], node: ast.For | ast.While) -> list[ast.stmt]:
        """A loop and the statements after it. A run-time loop has no `break`, so its `else` always runs."""
        after = _after(loop, names, node)
        if not node.orelse:
            return [node, *after]
        node.orelse = [*after, *self._statements(node.orelse)]
        return [node]

    def _rebound(self, body: Sequence[ast.stmt]) -> list[str]:
        """Names that a body may rebind, directly or by calling an inner function."""
        return list(dict.fromkeys([*bound_names(body), *self.rebound_inside]))

    def _items(self, body: Sequence[ast.stmt], names: Sequence[str]) -> set[str]:
        """Names of which the body assigns items only, and that no inner function rebinds."""
        return names_of_items(body).intersection(names).difference(self.rebound_inside)

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        branch = self._fresh()
        names = self._rebound([*node.body, *node.orelse])
        start = bind(branch, call("branch", self.visit(node.test)), node)
        then = self._inside(branch, False, node.body)
        otherwise = self._inside(branch, False, node.orelse)
        nodes: list[ast.stmt] = [start]
        for side, body, known in (
            ("then", then, [strings(names), thunks(names)]),
            ("otherwise", otherwise, []),
        ):
            enter = when_live(branch, method(branch, f"enter_{side}", *known), node, names)
            leave = when_live(branch, method(branch, f"leave_{side}", thunks(names)), node, names)
            condition = located(method(branch, side), node)
            nodes.append(located(ast.If(condition, [*enter, *body, *leave], []), node))
        return nodes

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return self._forbid("break", node, to_loop=True)

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return self._forbid("continue", node, to_loop=True)

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        self.generic_visit(node)
        return self._forbid("return", node, to_loop=False)

    def _forbid(self, word: str, node: ast.stmt, to_loop: bool) -> list[ast.stmt]:
        checks: list[ast.stmt] = []
        for variable, is_loop in reversed(self.open):
            if variable is not None:
                checks.append(
                    located(ast.Expr(method(variable, "forbid", ast.Constant(word))), node)
                )
            if to_loop and is_loop:
                break
        return [*checks, node]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if has_walrus(node):
            return node
        word = "and_" if isinstance(node.op, ast.And) else "or_"
        return located(call(word, *(thunk(v) for v in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return located(call("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        simple = all(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq)
            for op in node.ops
        )
        if len(node.ops) == 1 or not simple or has_walrus(node):
            return node
        operators = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        return located(
            call("chain", operators, node.left, *(thunk(c) for c in node.comparators)), node
        )

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        node.value = located(call("named", hint(node.targets[0]), node.value), node.value)
        return self._no_attributes(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        self.generic_visit(node)
        return self._no_attributes(node, [node.target])

    def _no_attributes(self, node: ast.stmt, targets: Sequence[ast.expr]) -> list[ast.stmt]:
        """Attributes of objects are not carried: only names are, and lists, tuples and dicts."""
        for n in (n for target in targets for n in ast.walk(target)):
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store):
                return self._forbid(f"{ast.unparse(n)} = ...", node, to_loop=False)
        return [node]

    def visit_With(self, node: ast.With) -> ast.stmt:
        for item in node.items:
            value = self.visit(item.context_expr)
            if isinstance(item.optional_vars, ast.Name):
                value = located(call("named", hint(item.optional_vars), value), value)
            item.context_expr = value
        node.body = self._statements(node.body)
        return node


def _enter(
    loop: str, names: list[str], items: set[str], exposed: set[str], like: ast.AST
) -> list[ast.stmt]:
    known = strings(names), strings(sorted(items)), strings(sorted(exposed)), thunks(names)
    return when_live(loop, method(loop, "enter", *known), like, names)


def _leave(loop: str, names: list[str], like: ast.AST) -> list[ast.stmt]:
    return when_live(loop, method(loop, "leave", thunks(names)), like)


def _after(loop: str, names: list[str], like: ast.AST) -> list[ast.stmt]:
    return when_live(loop, method(loop, "after"), like, names)
