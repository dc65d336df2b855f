"""Converts a function to a syntax tree and back, with its line numbers and its closure."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from pykittens.errors import LanguageError
from pykittens.lang.syntax import RUNTIME


def definition_of(function: Callable[..., Any]) -> tuple[ast.FunctionDef, int]:
    """The syntax tree of a function without its decorators, and the number of lines above it in its file."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise LanguageError(
            f"the source of {function.__name__} cannot be read",
            help="define the kernel in a file or a notebook cell",
        ) from None
    source = "".join(lines)
    # An indented function is put below an `if` and not dedented, so that columns stay the user's.
    indented = source[0] in " \t"
    statement = ast.parse("if 1:\n" + source if indented else source).body[0]
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if not isinstance(statement, ast.FunctionDef):
        raise LanguageError(f"{function.__name__}: a kernel must be defined with `def`")
    statement.decorator_list = []
    return statement, first - (2 if indented else 1)


def remade(
    function: Callable[..., Any], definition: ast.FunctionDef, above: int, runtime: object
) -> Callable[..., Any]:
    """The function with the body of another definition, in which the name RUNTIME is the object `runtime`."""
    code = _compiled(function, definition, above)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    result = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    for name in ("__kwdefaults__", "__doc__", "__qualname__", "__module__"):
        setattr(result, name, getattr(function, name))
    return result


def _compiled(function: Callable[..., Any], definition: ast.FunctionDef, above: int) -> CodeType:
    """The code of a definition, compiled inside a function that binds the free variables of the original."""
    # A function inside a kernel was rewritten with it, so RUNTIME is one of its free variables.
    free = [n for n in function.__code__.co_freevars if n != RUNTIME]
    factory = ast.parse(f"def __factory({', '.join((*free, RUNTIME))}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [definition, ast.Return(ast.Name(definition.name, ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    ast.increment_lineno(module, above)
    code = compile(module, inspect.getsourcefile(function) or "<kernel>", "exec", dont_inherit=True)
    return _inner(_inner(code, "__factory"), definition.name)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
