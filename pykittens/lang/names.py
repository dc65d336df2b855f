"""Names that a body of code binds, and names that it reads before it binds them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

# Nodes with a scope, whose names are not the function's.
_OPAQUE = (
    ast.FunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.ClassDef,
)


def target_names(target: ast.expr) -> set[str]:
    """All names in the target of a loop or an assignment."""
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def bound_names(body: Sequence[ast.AST]) -> list[str]:
    """Names bound by assignment in a body, in order; names that are only targets of `for` and `with` are left out.

    `xs[i] = ...` binds `xs`, too.
    """
    return list(_bound(body))


def names_of_items(body: Sequence[ast.AST]) -> set[str]:
    """Names of which the body assigns items, as in `xs[i] = ...`, and that it does not bind otherwise."""
    return {name for name, is_item in _bound(body).items() if is_item}


def _bound(body: Sequence[ast.AST]) -> dict[str, bool]:
    """The names that a body binds, and whether only by assigning items."""
    found: dict[str, bool] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, _OPAQUE):
            return
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for n, is_item in _stored(target):
                    found[n] = found.get(n, True) and is_item
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in body:
        visit(statement)
    return found


def captured_names(function: ast.FunctionDef) -> tuple[set[str], list[str]]:
    """Names that inner functions read from a function, and names of the function that they rebind."""
    read: set[str] = set()
    rebound: set[str] = set()
    for inner in ast.walk(function):
        if inner is function or not isinstance(inner, ast.FunctionDef | ast.Lambda):
            continue
        body = inner.body if isinstance(inner, ast.FunctionDef) else [inner.body]
        names = [n for statement in body for n in ast.walk(statement)]
        outer = {i for n in names if isinstance(n, ast.Nonlocal) for i in n.names}
        own = {a.arg for a in ast.walk(inner.args) if isinstance(a, ast.arg)}
        own |= {
            n.id for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        } - outer
        read |= {n.id for n in names if isinstance(n, ast.Name)} - own
        rebound |= outer
    return read, [n for n in bound_names(function.body) if n in rebound]


def _stored(target: ast.expr, is_item: bool = False) -> list[tuple[str, bool]]:
    match target:
        case ast.Name():
            return [(target.id, is_item)]
        case ast.Tuple() | ast.List():
            return [n for e in target.elts for n in _stored(e, is_item)]
        case ast.Starred():
            return _stored(target.value, is_item)
        case ast.Subscript():
            return _stored(target.value, True)
        case _:
            return []


def read_first(body: Sequence[ast.stmt], bound: set[str]) -> set[str]:
    """Names that a run of the body may read before it binds them."""
    reading = _Reading()
    reading.scan(body, set(bound))
    return reading.reads


class _Reading:
    """The names that a body reads. `bound` are the names that are certainly bound before a statement."""

    def __init__(self) -> None:
        self.reads: set[str] = set()

    def scan(self, statements: Sequence[ast.stmt], bound: set[str]) -> set[str]:
        """Note the names that the statements read; returns `bound` with the names that they certainly bind."""
        for node in statements:
            self._statement(node, bound)
        return bound

    def _statement(self, node: ast.stmt, bound: set[str]) -> None:
        match node:
            case ast.Assign():
                self._read(node.value, bound)
                for target in node.targets:
                    self._read(target, bound)
                    if not isinstance(target, ast.Subscript):
                        bound |= target_names(target)
            case ast.AugAssign():
                self.reads |= target_names(node.target) - bound
                self._read(node.value, bound)
                bound |= target_names(node.target)
            case ast.AnnAssign():
                self._read(node.value, bound)
                bound |= target_names(node.target)
            case ast.If():
                self._read(node.test, bound)
                bound |= self.scan(node.body, set(bound)) & self.scan(node.orelse, set(bound))
                self._keep(node, bound)
            case ast.For():
                self._read(node.iter, bound)
                self.scan(node.body, bound | target_names(node.target))
                self.scan(node.orelse, set(bound))
                self._keep(node, bound)
            case ast.While():
                self._read(node.test, bound)
                self.scan(node.body, set(bound))
                self._keep(node, bound)
            case ast.With():
                for item in node.items:
                    self._read(item.context_expr, bound)
                    if item.optional_vars is not None:
                        bound |= target_names(item.optional_vars)
                self.scan(node.body, bound)
            case ast.FunctionDef():
                own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
                for inner in node.body:
                    self._read(inner, bound | own | set(bound_names(node.body)))
                bound.add(node.name)
            case _:
                self._read(node, bound)
                self._keep(node, bound)

    def _read(self, node: ast.AST | None, bound: set[str]) -> None:
        if node is not None:
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            self.reads |= {n.id for n in names if isinstance(n.ctx, ast.Load)} - bound
            bound |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}

    def _keep(self, node: ast.stmt, bound: set[str]) -> None:
        """Note the names that a branch or loop may bind as read: otherwise they keep their values."""
        self.reads |= set(bound_names([node])) - bound
