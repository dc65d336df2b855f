"""Converts a function to a syntax tree and back, with its line numbers and its closure."""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import itertools
import linecache
import operator
import sys
from collections.abc import Callable, Hashable
from types import CellType, CodeType, FunctionType
from typing import Any, cast

from pykittens.errors import LanguageError, Loc
from pykittens.lang.contents import exact
from pykittens.lang.syntax import RUNTIME

_DEFINITION = "__definition"
# The flags of `from __future__ import ...`, such as that of annotations.
_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names)
)


class Definition:
    """The source of a function as it was when the function was defined; files may be edited after that.

    The syntax tree is made when it is first needed.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.code = function, getattr(function, "__code__", None)
        file = "" if self.code is None else self.code.co_filename
        linecache.checkcache(file)
        self._lines = linecache.getlines(file, getattr(function, "__globals__", None))

    def tree(self) -> ast.FunctionDef:
        """The syntax tree without decorators, with the line numbers of its file."""
        name = self.function.__name__
        if self.code is None or not self._lines:
            raise LanguageError(
                f"the source of {name} cannot be read",
                help="define the kernel in a file or a notebook cell",
            )
        self.check_code()
        first = self.code.co_firstlineno
        try:
            source = "".join(inspect.getblock(self._lines[first - 1 :]))
            given, kept = _parsed(source, first), _parsed(source, first)
        except (SyntaxError, IndexError):
            raise self._changed(*_EDITED) from None
        self._check(given)  # which changes it
        return cast(ast.FunctionDef, kept)

    def check_code(self) -> None:
        """Raise an error if the function has another code than the one that the source is of."""
        if getattr(self.function, "__code__", None) is not self.code:
            raise self._changed("its code was replaced", "define a new kernel")

    def _check(self, definition: ast.stmt) -> None:
        """Raise an error if the definition is not that of the function: the file was edited while it was imported."""
        assert self.code is not None
        if not isinstance(definition, ast.FunctionDef):
            if self.function.__name__ == "<lambda>":
                raise LanguageError("<lambda>: a kernel must be defined with `def`")
            raise self._changed(*_EDITED)
        # Code that pytest or a kernel around it has rewritten cannot be compared.
        is_rewritten = RUNTIME in self.code.co_freevars or any(
            name.startswith("@") for name in self.code.co_names
        )
        compiled = _compiled(self.function, definition)
        if definition.name != self.code.co_name or not (
            is_rewritten or _outline(compiled) == _outline(self.code)
        ):
            raise self._changed(*_EDITED)

    def _changed(self, how: str, help: str) -> LanguageError:
        code = self.code
        assert code is not None
        return LanguageError(
            f"{self.function.__name__}: {how} after it was defined",
            loc=Loc(code.co_filename, code.co_firstlineno, code.co_name),
            help=help,
        )


_EDITED = "its source was edited", "import its module again"


def _parsed(source: str, first: int) -> Any:
    """The statement of a block of source lines, of which the first has the number `first`, without its decorators."""
    # An indented function is put below an `if` and not dedented, so that columns stay the user's.
    indented = source[:1] in (" ", "\t")
    above = "\n" * (first - 2) + "if 1:\n" if indented else "\n" * (first - 1)
    statement: Any = ast.parse(above + source).body[0]
    if indented:
        statement = statement.body[0]
    statement.decorator_list = []
    if sys.version_info >= (3, 12):
        statement.type_params = []  # they would make a scope of their own
    return statement


def remade(
    function: Callable[..., Any], definition: ast.FunctionDef, runtime: object
) -> Callable[..., Any]:
    """The function with the body of another definition, in which the name RUNTIME is the object `runtime`."""
    code = _compiled(function, definition)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    result = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    for name in ("__kwdefaults__", "__doc__", "__qualname__", "__module__"):
        setattr(result, name, getattr(function, name))
    return result


def _compiled(function: Callable[..., Any], definition: ast.FunctionDef) -> CodeType:
    """The code of a definition, compiled inside a function that binds the free variables of the original."""
    # A function inside a kernel was rewritten with it, so RUNTIME is one of its free variables.
    free = [n for n in function.__code__.co_freevars if n != RUNTIME]
    factory = ast.parse(f"def __factory({', '.join((*free, RUNTIME))}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    # Under another name, so that the function's own name stays a global in it.
    name, definition.name = definition.name, _DEFINITION
    factory.body = [definition]
    path = [_DEFINITION]
    if (owner := _class_of(function)) is not None:
        # Names that begin with two underscores mean those of the class.
        # The compiler strips underscores before the name of a class, and the class itself stays a global.
        owner = f"__{owner}"
        body = ast.parse(f"class {owner}: pass").body[0]
        assert isinstance(body, ast.ClassDef)
        body.body, factory.body = [definition], [body]
        path = [owner, _DEFINITION]
    module = ast.Module([factory], [])
    file = function.__code__.co_filename
    code: CodeType = compile(
        module, file, "exec", flags=function.__code__.co_flags & _FUTURE, dont_inherit=True
    )
    for part in ("__factory", *path):
        code = _inner(code, part)
    definition.name = name
    return code.replace(co_name=name, co_qualname=function.__qualname__)


def _outline(code: CodeType) -> Hashable:
    """The names and constants of code. Its instructions depend on the imports of its module, too."""
    constants = (
        _outline(c) if isinstance(c, CodeType) else exact(c)
        for c in code.co_consts
        if not (isinstance(c, str) and "<locals>" in c)  # the qualified name of a class in it
    )
    return code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, tuple(constants)


def _class_of(function: Callable[..., Any]) -> str | None:
    """The name of the innermost class around the definition of a function."""
    outer = function.__qualname__.split(".")[:-1]
    # A name before <locals> is that of a function.
    classes = [
        name
        for name, inside in itertools.pairwise([*outer, ""])
        if "<locals>" not in (name, inside)
    ]
    return classes[-1] if classes else None


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
