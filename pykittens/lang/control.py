"""Rewrites a kernel function so that recording sees its run-time loops and branches.

Python runs the function once. What that cannot see is rewritten: a `for`, `while` or `if` gets calls round its
body that open and close a block and swap the names it binds for carried values; `and`, `or`, `not` and chained
comparisons become calls; an assignment tells the value its name. If the loop or condition turns out to be
Python's own, the calls do nothing. No body is moved, so closures, `with`, inner functions and walrus work.

    for k in pk.range(n):           __1 = __pk.for_loop(pk.range(n))
        acc = acc + x               for k in __1:
                                        if __1.live: acc, = __1.enter(("acc",), {"acc"}, (lambda: acc,))
                                        acc = __pk.named("acc", acc + x)
                                        if __1.live: __1.leave((lambda: acc,))
                                    if __1.live: acc, = __1.after()
"""

from __future__ import annotations

import ast
import copy
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pykittens.errors import LanguageError
from pykittens.lang import loops

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", bound=ast.AST)
_RUNTIME = "__pk"


def rewrite(function: F) -> F:
    """The function with its control flow made visible; its closure, defaults and source lines stay."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise LanguageError(
            f"the source of {function.__name__} cannot be read",
            help="define the kernel in a file or a notebook cell",
        ) from None
    source = "".join(lines)
    # Columns must stay the user's, so an indented function is put below an `if`, not dedented.
    indented = source[0] in " \t"
    tree = ast.parse("if 1:\n" + source if indented else source)
    definition = tree.body[0].body[0] if isinstance(tree.body[0], ast.If) else tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise LanguageError(f"{function.__name__}: only a function made with `def` can be a kernel")
    definition.decorator_list = []
    _Rewriter().rewrite_function(definition)
    # A function inside a kernel has been rewritten with it and names the runtime already.
    free = tuple(n for n in function.__code__.co_freevars if n != _RUNTIME)
    factory = ast.parse(f"def __factory({', '.join((*free, _RUNTIME))}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    factory.body = [definition, ast.Return(ast.Name(definition.name, ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    ast.increment_lineno(module, first - (2 if indented else 1))
    code = compile(module, inspect.getsourcefile(function) or "<kernel>", "exec", dont_inherit=True)
    inner = _code_named(code, definition.name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[_RUNTIME] = types.CellType(loops)
    closure = tuple(cells[name] for name in inner.co_freevars)
    made = types.FunctionType(
        inner, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__, made.__qualname__, made.__module__ = (
        function.__doc__,
        function.__qualname__,
        function.__module__,
    )
    return made  # type: ignore[return-value]


def _code_named(module: types.CodeType, name: str) -> types.CodeType:
    factory = next(c for c in module.co_consts if isinstance(c, types.CodeType))
    return next(c for c in factory.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def function(helper: F) -> F:
    """Mark a helper whose loops and branches depend on run-time values; kernels call it like any function."""
    return rewrite(helper)


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0
        # Constructs round the statement: variable, None where it is surely Python's, and whether it is a loop.
        self.open: list[tuple[str | None, bool]] = []
        # Names of the function that its inner functions read, and those they rebind: any call may do so.
        self.read_inside: set[str] = set()
        self.rebound_inside: list[str] = []

    def rewrite_function(self, node: ast.FunctionDef) -> None:
        outer = self.open, self.read_inside, self.rebound_inside
        self.open, (self.read_inside, self.rebound_inside) = [], _captured(node)
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
        return f"__pk{self.count}"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.rewrite_function(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        loop = self._fresh()
        targets = _targets(node.target)
        names = [n for n in self._rebound(node.body) if n not in targets]
        exposed = _exposed(node.body, targets) | self.read_inside
        start = _assign([loop], _call("for_loop", self.visit(node.iter), _hint(node.target)), node)
        body = self._inside(loop, True, node.body)
        node.iter = _name(loop, node.iter)
        node.body = [*_enter(loop, names, exposed, node), *body, *_leave(loop, names, node)]
        return [start, *self._ended(loop, names, node)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        if _has_walrus(node.test):
            # The test would have to run twice, once to see what it is; so it must be Python's.
            node.test = _located(_call("python_test", self.visit(node.test)), node.test)
            node.body = self._inside(None, True, node.body)
            node.orelse = self._statements(node.orelse)
            return [node]
        loop = self._fresh()
        names = self._rebound(node.body)
        exposed = _exposed([ast.Expr(node.test), *node.body], set()) | self.read_inside
        test = self.visit(node.test)
        start = _assign([loop], _call("while_loop", _thunk(copy.deepcopy(test))), node)
        body = self._inside(loop, True, node.body)
        node.test = _located(_method(loop, "test", _thunk(test)), node.test)
        node.body = [*body, *_leave(loop, names, node)]
        return [start, *_enter(loop, names, exposed, node), *self._ended(loop, names, node)]

    def _ended(self, loop: str, names: list[str], node: ast.For | ast.While) -> list[ast.stmt]:
        """A loop with what comes behind it. A run-time loop has no `break`, so its `else` always runs."""
        after = _after(loop, names, node)
        if not node.orelse:
            return [node, *after]
        node.orelse = [*after, *self._statements(node.orelse)]
        return [node]

    def _rebound(self, body: Sequence[ast.stmt]) -> list[str]:
        """Names that a body may bind anew, itself or by calling an inner function."""
        return list(dict.fromkeys([*_bound(body), *self.rebound_inside]))

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        branch = self._fresh()
        names = self._rebound([*node.body, *node.orelse])
        start = _assign([branch], _call("branch", self.visit(node.test)), node)
        then = self._inside(branch, False, node.body)
        otherwise = self._inside(branch, False, node.orelse)
        nodes: list[ast.stmt] = [start]
        for side, body in (("then", then), ("otherwise", otherwise)):
            enter = _when_live(
                branch, _method(branch, f"enter_{side}", _names(names), _thunks(names)), node, names
            )
            restored = _when_live(
                branch, _method(branch, f"leave_{side}", _thunks(names)), node, names
            )
            condition = _located(_method(branch, side), node)
            nodes.append(_located(ast.If(condition, [*enter, *body, *restored], []), node))
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
                    _located(ast.Expr(_method(variable, "forbid", ast.Constant(word))), node)
                )
            if to_loop and is_loop:
                break
        return [*checks, node]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if _has_walrus(node):
            return node
        word = "and_" if isinstance(node.op, ast.And) else "or_"
        return _located(_call(word, *(_thunk(v) for v in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _located(_call("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        simple = all(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq)
            for op in node.ops
        )
        if len(node.ops) == 1 or not simple or _has_walrus(node):
            return node
        operators = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        return _located(
            _call("chain", operators, node.left, *(_thunk(c) for c in node.comparators)), node
        )

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        node.value = _located(_call("named", _hint(node.targets[0]), node.value), node.value)
        return self._no_attributes(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        self.generic_visit(node)
        return self._no_attributes(node, [node.target])

    def _no_attributes(self, node: ast.stmt, targets: Sequence[ast.expr]) -> list[ast.stmt]:
        """What an object holds is not carried: only names, and the lists, tuples and dicts they hold, are."""
        stored = [
            n
            for t in targets
            for n in ast.walk(t)
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        ]
        return (
            self._forbid(f"{ast.unparse(stored[0])} = ...", node, to_loop=False)
            if stored
            else [node]
        )

    def visit_With(self, node: ast.With) -> ast.stmt:
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
            if isinstance(item.optional_vars, ast.Name):
                hint = ast.Constant(item.optional_vars.id)
                item.context_expr = _located(
                    _call("named", hint, item.context_expr), item.context_expr
                )
        node.body = self._statements(node.body)
        return node


# -- pieces of syntax ------------------------------------------------------------------------------


def _located(node: N, like: ast.AST) -> N:
    return ast.fix_missing_locations(ast.copy_location(node, like))


def _name(identifier: str, like: ast.AST) -> ast.expr:
    result: ast.expr = _located(ast.Name(identifier, ast.Load()), like)
    return result


def _call(word: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name(_RUNTIME, ast.Load()), word, ast.Load()), list(args), [])


def _method(variable: str, word: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name(variable, ast.Load()), word, ast.Load()), list(args), [])


def _thunk(expression: ast.expr) -> ast.expr:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, expression)


def _has_walrus(node: ast.AST) -> bool:
    """Whether it binds a name, which it could not from inside a lambda."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def _names(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def _hint(target: ast.expr) -> ast.expr:
    """The names a target gives: one, a tuple of them, or none."""
    match target:
        case ast.Name():
            return ast.Constant(target.id)
        case ast.Tuple() if all(isinstance(e, ast.Name) for e in target.elts):
            return _names([e.id for e in target.elts if isinstance(e, ast.Name)])
        case _:
            return ast.Constant("")


def _thunks(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([_thunk(ast.Name(n, ast.Load())) for n in names], ast.Load())


def _assign(names: Sequence[str], value: ast.expr, like: ast.AST) -> ast.stmt:
    targets = [ast.Name(n, ast.Store()) for n in names]
    target: ast.expr = (
        targets[0]
        if len(names) == 1 and names[0].startswith(_RUNTIME)
        else ast.Tuple([*targets], ast.Store())
    )
    result: ast.stmt = _located(ast.Assign([target], value), _head(like))
    return result


def _when_live(
    variable: str, value: ast.expr, like: ast.AST, names: Sequence[str] = ()
) -> list[ast.stmt]:
    live = ast.Attribute(ast.Name(variable, ast.Load()), "live", ast.Load())
    step = _assign(names, value, like) if names else ast.Expr(value)
    return [_located(ast.If(live, [step], []), _head(like))]


def _head(like: ast.AST) -> ast.AST:
    """The part of a compound statement that carets should point at."""
    return getattr(like, "iter", None) or getattr(like, "test", None) or like


def _enter(loop: str, names: list[str], exposed: set[str], like: ast.AST) -> list[ast.stmt]:
    first = ast.Set([ast.Constant(n) for n in sorted(exposed)] or [ast.Constant("")])
    return _when_live(
        loop, _method(loop, "enter", _names(names), first, _thunks(names)), like, names
    )


def _leave(loop: str, names: list[str], like: ast.AST) -> list[ast.stmt]:
    return _when_live(loop, _method(loop, "leave", _thunks(names)), like)


def _after(loop: str, names: list[str], like: ast.AST) -> list[ast.stmt]:
    return _when_live(loop, _method(loop, "after"), like, names) if names else []


# -- which names a body binds and which it reads first ---------------------------------------------


def _targets(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


_OPAQUE = (
    ast.FunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.ClassDef,
)


def _bound(body: Sequence[ast.AST]) -> list[str]:
    """Names bound by assignment in a body, in order; those that are only targets of `for` and `with` are not."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, _OPAQUE):
            return
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for n in _stored(target):
                    found.setdefault(n)
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in body:
        visit(statement)
    return list(found)


def _captured(function: ast.FunctionDef) -> tuple[set[str], list[str]]:
    """Names that functions inside a function read from it, and those of its own that they rebind."""
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
    return read, [n for n in _bound(function.body) if n in rebound]


def _stored(target: ast.expr) -> list[str]:
    match target:
        case ast.Name():
            return [target.id]
        case ast.Tuple() | ast.List():
            return [n for e in target.elts for n in _stored(e)]
        case ast.Starred() | ast.Subscript():
            return _stored(target.value)
        case _:
            return []


def _exposed(body: Sequence[ast.stmt], bound: set[str]) -> set[str]:
    """Names that a pass over the body may read before it binds them."""
    reads: set[str] = set()

    def read(node: ast.AST | None, bound: set[str]) -> None:
        if node is not None:
            loads = {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
            }
            reads.update(loads - bound)
            bound.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))

    def keep(node: ast.stmt, bound: set[str]) -> None:
        # What a branch or a loop binds perhaps keeps its value otherwise, which is a read of it.
        reads.update(n for n in _bound([node]) if n not in bound)

    def scan(statements: Sequence[ast.stmt], bound: set[str]) -> set[str]:
        for node in statements:
            match node:
                case ast.Assign():
                    read(node.value, bound)
                    for target in node.targets:
                        read(target, bound)
                        bound |= (
                            _targets(target) if not isinstance(target, ast.Subscript) else set()
                        )
                case ast.AugAssign():
                    reads.update(_targets(node.target) - bound)
                    read(node.value, bound)
                    bound |= _targets(node.target)
                case ast.AnnAssign():
                    read(node.value, bound)
                    bound |= _targets(node.target)
                case ast.If():
                    read(node.test, bound)
                    bound |= scan(node.body, set(bound)) & scan(node.orelse, set(bound))
                    keep(node, bound)
                case ast.For():
                    read(node.iter, bound)
                    scan(node.body, bound | _targets(node.target))
                    scan(node.orelse, set(bound))
                    keep(node, bound)
                case ast.While():
                    read(node.test, bound)
                    scan(node.body, set(bound))
                    keep(node, bound)
                case ast.With():
                    for item in node.items:
                        read(item.context_expr, bound)
                        bound |= _targets(item.optional_vars) if item.optional_vars else set()
                    bound = scan(node.body, bound)
                case ast.FunctionDef():
                    own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
                    for inner in node.body:
                        read(inner, bound | own | set(_bound(node.body)))
                    bound.add(node.name)
                case _:
                    read(node, bound)
                    keep(node, bound)
        return bound

    scan(body, set(bound))
    return reads
