"""A walk from a kernel and its constants to all that a recording can have read, which collects comparisons.

Globals, variables of enclosing functions, attributes, items, defaults and the code of helpers are followed by the paths
that bytecode reads.
"""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import (
    Callable,
    Hashable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from dataclasses import dataclass, fields, is_dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from pykittens.errors import (
    LIBRARY,
    PYKITTENS,
    PYTHON,
    USER,
    LanguageError,
    Loc,
    owner,
    owner_of_module,
)
from pykittens.lang.bytecode import Read, reads
from pykittens.lang.contents import CodeKey, Same, code_key, contents, exact, is_frozen, plain
from pykittens.lang.heap import slots
from pykittens.lang.syntax import RUNTIME

# A call compares all of these values, so there must not be many.
MOST_VALUES = 1000

_MISSING = object()
# Of the values in a constant module, those that can change all the same, and other modules.
_FOLLOWED = ModuleType, MutableMapping, MutableSequence, MutableSet
_OF_ARRAYS = {"dtype", "ndim", "shape"}
_WRITERS = {"add", "append", "discard", "extend", "insert", "update"}  # which read nothing

# A kernel, the same with its control flow rewritten, and its constants.
Roots = tuple[FunctionType, FunctionType, Sequence[Any]]


class _Mutable(Exception):
    """A value that can change in ways that no comparison by identity sees.

    path: how the kernel reads it, or what holds it.
    """

    path = "a keyword constant"

    def __init__(self, value: Any, what: str, help: str) -> None:
        super().__init__(what)
        self.value, self.what, self.help = value, what, help

    def error(self, loc: Loc | None) -> LanguageError:
        """The error for the user."""
        return LanguageError(f"{self.path} {self.what}", loc=loc, help=self.help)


@dataclass(frozen=True)
class Guard:
    """A comparison of all that was read, as text, and the objects that it names."""

    text: str
    values: Mapping[str, Any]

    def before(
        self, lines: Sequence[str], parameters: str = "", **scope: Any
    ) -> Callable[..., Any]:
        """The function that returns False if something differs, and else executes these lines."""
        tests = (
            f"try: unchanged = {self.text or True}",
            "except (LookupError, AttributeError, TypeError, ValueError): return False",
            "if not unchanged: return False",
        )
        scope |= self.values
        exec("\n    ".join((f"def guarded({parameters}):", *tests, *lines)), scope)
        return cast(Callable[..., Any], scope["guarded"])


class Survey:
    """A walk from the kernel and its constants to all that can have been read. It collects the comparisons.

    ran: the code that ran, by contents; what other functions read does not matter. owners: those of files that can
    change; all others are taken as constant.
    """

    def __init__(self, roots: Roots, ran: Set[CodeKey]) -> None:
        self.roots, self.ran = roots, ran
        self.owners = {USER, owner(roots[0].__code__.co_filename)} - {PYTHON, PYKITTENS, LIBRARY}
        self.tests: list[str] = []
        self.values: dict[int, tuple[str, Any]] = {}  # the name of each object in the tests
        self.seen: dict[int, tuple[int, Any]] = {}
        self.visited: set[CodeType] = set()

    # -- what is followed ----------------------------------------------------------------------

    def follows(self, code: CodeType, known: Mapping[str, Any]) -> bool:
        """Whether code with these globals is the user's."""
        file = code.co_filename
        if not file.startswith("<"):
            return owner(file) in self.owners
        # Code made from text, such as methods of dataclasses, belongs to the module that its globals are of.
        name = str(known.get("__name__", ""))
        return not name.startswith("namedtuple_") and owner_of_module(name) in self.owners

    def is_constant(self, module: ModuleType) -> bool:
        """Whether the attributes of a module are taken as constant."""
        return owner_of_module(module.__name__, module) not in self.owners

    # -- comparisons ---------------------------------------------------------------------------

    def name(self, x: Any) -> str:
        """The name of an object in the tests."""
        return self.values.setdefault(id(x), (f"v{len(self.values)}", x))[0]

    def test(self, text: str, holder: Any, x: Any) -> None:
        """Compare: `text`, in which {} is the name of the holder, is x."""
        if len(self.tests) >= MOST_VALUES:
            raise _Mutable(
                holder,
                f"holds more than {MOST_VALUES} values that can change",
                "read attributes by name, such as `config.rows`, or use a tuple",
            )
        self.tests.append(f"{text.format(self.name(holder))} is {self.name(x)}")

    def guard(self) -> Guard:
        """The guard that makes all tests."""
        return Guard(" and ".join(dict.fromkeys(self.tests)), dict(self.values.values()))

    def check_found(self, ran: Set[CodeType]) -> None:
        """Raise an error for code that ran and that no path leads to."""
        for code in ran - self.visited:
            if any(_is_rewritten(code, known) for known in self.visited):
                continue
            raise LanguageError(
                f"the kernel calls {code.co_name}, but no name, attribute or constant item that it reads leads there",
                loc=Loc(code.co_filename, code.co_firstlineno, code.co_name),
                help="call it by its name, or pass it as a keyword constant, so that its changes are seen",
            )

    # -- values --------------------------------------------------------------------------------

    def of_kernel(self) -> Hashable:
        """The contents of the kernel and its constants."""
        function, rewritten, constants = self.roots
        if self.follows(function.__code__, function.__globals__):
            self.test("{}.__code__", function, function.__code__)
        try:
            read = tuple(self._reads_of(rewritten)), tuple(map(self._of_constant, constants))
            return code_key(function.__code__), *read
        except _Mutable as fault:
            raise fault.error(None) from None

    def _of_constant(self, x: Any) -> Hashable:
        try:
            return self.of(x)
        except _Mutable as fault:
            if isinstance(x, type):
                fault.path = f"what the class {x.__name__} holds"
            raise

    def of(self, x: Any) -> Hashable:
        """The contents of a value; tests are added for all of it that can change."""
        if (key := plain(x)) is not None:
            return key
        if id(x) in self.seen:
            return "seen", self.seen[id(x)][0]
        self.seen[id(x)] = len(self.seen), x
        match x:
            case FunctionType():
                return self._function(x)
            case ModuleType():
                return Same(x) if self.is_constant(x) else self._module(x)
            case MethodType():
                return "method", self.of(x.__self__), self.of(x.__func__)
            case tuple() | frozenset():
                return type(x).__qualname__, tuple(map(self.of, x))
            case staticmethod() | classmethod():
                return type(x).__name__, self.of(x.__func__)
            case property():
                return "property", self.of((x.fget, x.fset, x.fdel))
            case functools.partial():
                return "partial", self.of(x.func), self.of(x.args), self.of(x.keywords)
            case list():
                self.tests.append(f"len({self.name(x)}) == {len(x)}")
                return "list", tuple(self._item(x, i, v) for i, v in enumerate(x))
            case dict():
                self.tests.append(f"(*{self.name(x)},) == {self.name(tuple(x))}")
                return "dict", tuple((exact(k), self._item(x, k, v)) for k, v in x.items())
            case set():
                self.tests.append(f"{self.name(x)} == {self.name(frozenset(x))}")
                return "set", frozenset(map(exact, x))
            case MutableMapping() | MutableSequence() | MutableSet():
                raise _Mutable(
                    x, f"is a {type(x).__name__}, which can change", "use a tuple or a dict"
                )
            case type():
                return self._class(x)
            case bytearray() | memoryview():
                raise _Mutable(x, "is an array of bytes, which can change", "use bytes")
        if _is_array(x):
            raise _Mutable(
                x,
                "is an array, which can change",
                "pass it as an argument, or its values as a tuple",
            )
        return self._instance(x)

    def _item(self, x: Any, key: Any, value: Any) -> Hashable:
        text = repr(key) if type(key) in (int, str, bool) else self.name(key)
        self.test(f"{{}}[{text}]", x, value)
        return self.of(value)

    def _function(self, f: FunctionType) -> Hashable:
        code = f.__code__
        if not self.follows(code, f.__globals__):
            return Same(f)
        key = code_key(code)
        self.test("{}.__code__", f, code)
        if key not in self.ran:
            return "function", key
        if code.co_argcount:
            self.test("{}.__defaults__", f, f.__defaults__)
        if code.co_kwonlyargcount:
            self.test("{}.__kwdefaults__", f, f.__kwdefaults__)
        defaults = self.of(f.__defaults__), self.of(f.__kwdefaults__)
        return "function", key, defaults, tuple(self._reads_of(f))

    def _reads_of(self, f: FunctionType) -> Iterator[Hashable]:
        """What a function has read."""
        code = f.__code__
        if not self.follows(code, f.__globals__):
            return iter(())
        cells = dict(zip(code.co_freevars, f.__closure__ or (), strict=True))
        return self._reads(code, f.__globals__, cells)

    def _reads(
        self, code: CodeType, known: dict[str, Any], cells: Mapping[str, CellType]
    ) -> Iterator[Hashable]:
        """What code and the functions inside it have read."""
        self.visited.add(code)
        for read in reads(code):
            value = self._start(read, known, cells)
            if value is _MISSING:
                continue
            try:
                yield read[:3], self._end(value, read)
            except _Mutable as fault:
                raise fault.error(_location(code, read)) from None
        inner = {name: cell for name, cell in cells.items() if name not in code.co_cellvars}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._reads(constant, known, inner)

    def _start(self, read: Read, known: dict[str, Any], cells: Mapping[str, CellType]) -> Any:
        """The value of a name; _MISSING if it is Python's own, or a variable of the kernel."""
        if read.scope == "cell":
            if read.name not in cells or read.name == RUNTIME:
                return _MISSING
            cell = cells[read.name]
            value = contents(cell)
            if value is cell:
                return _MISSING
            self.test("{}.cell_contents", cell, value)
            return value
        if read.name not in known:
            self.tests.append(f"{read.name!r} not in {self.name(known)}")
            return _MISSING
        self.test(f"{{}}[{read.name!r}]", known, known[read.name])
        return known[read.name]

    def _end(self, x: Any, read: Read) -> Hashable:
        """The contents at the end of a path."""
        done = 0
        for kind, key in read.steps:
            if isinstance(x, ModuleType) and self.is_constant(x):
                value = vars(x).get(key)
                if not isinstance(value, _FOLLOWED):
                    return Same(x)
            if isinstance(x, list | dict | set) and key in _WRITERS:
                return Same(x)
            if _is_array(x) and key in _OF_ARRAYS:
                self.tests.append(f"{self.name(x)}.{key} == {self.name(getattr(x, key))}")
                return type(x).__name__, key, exact(getattr(x, key))
            value = _attribute(x, key) if kind == "attribute" else _constant_item(x, key)
            if value is _MISSING:
                break
            if not isinstance(x, tuple):
                text = f"{{}}.{key}" if kind == "attribute" else f"{{}}[{key!r}]"
                self.test(text, x, value)
            x, done = value, done + 1
        try:
            return self.of(x)
        except _Mutable as fault:
            path = f"`{_path(read, done)}`"
            fault.path = path if fault.value is x else f"what {path} holds"
            raise

    # -- objects -------------------------------------------------------------------------------

    def _class(self, c: type) -> Hashable:
        """A class by its name and the functions that ran; its attributes are read through instances, too."""
        if owner_of_module(c.__module__) not in self.owners:
            return Same(c)
        parts = []
        for base in c.__mro__:
            if owner_of_module(base.__module__) not in self.owners:
                continue
            for name, value in vars(base).items():
                code = _code_of(value)
                if code_key(code) in self.ran if code else not name.startswith("__"):
                    self.test(f"{{}}[{name!r}]", vars(base), value)
                    parts.append((name, self.of(value)))
        return "class", c.__module__, c.__qualname__, tuple(parts)

    def _module(self, x: ModuleType) -> Hashable:
        """A module of the user that is used as a whole, as in `getattr(module, name)`: all that it holds."""
        parts = []
        for name, value in vars(x).items():
            if not name.startswith("__"):
                self.test(f"{{}}.{name}", x, value)
                parts.append((name, self.of(value)))
        return "module", tuple(parts)

    def _instance(self, x: Any) -> Hashable:
        """An object by its class and its attributes."""
        kind = type(x)
        own: Any = getattr(x, "__dict__", None)
        if is_frozen(x):
            parts = ((field.name, getattr(x, field.name)) for field in fields(x))
            return "object", self.of(kind), tuple((name, self.of(value)) for name, value in parts)
        if kind.__module__.partition(".")[0] == __package__.partition(".")[0]:
            return Same(x), tuple(self._rules(x))
        if isinstance(x, logging.Logger) or not (
            own or owner_of_module(kind.__module__) in self.owners
        ):
            return Same(x)
        attributes = []
        if own:
            self.tests.append(f"len({self.name(x)}.__dict__) == {len(own)}")
            for name, value in own.items():
                self.test(f"{{}}.__dict__[{name!r}]", x, value)
                attributes.append((name, self.of(value)))
        for name, value in slots(x).items():
            self.test(f"{{}}.{name}", x, value)
            attributes.append((name, self.of(value)))
        return "object", self.of(kind), tuple(attributes)

    def _rules(self, x: Any) -> Iterator[Hashable]:
        """The user's functions in an object of the package, such as the type rule of an operation."""
        for name in (field.name for field in fields(x)) if is_dataclass(x) else ():
            value = getattr(x, name)
            if isinstance(value, FunctionType) and self.follows(value.__code__, value.__globals__):
                self.test(f"{{}}.{name}", x, value)
                yield name, self.of(value)


def _is_array(x: Any) -> bool:
    return hasattr(x, "__array_interface__") or hasattr(x, "__dlpack__")


def _attribute(x: Any, name: str) -> Any:
    """The attribute of a module, a class or an object if it is a value that is kept there; else _MISSING."""
    if isinstance(x, ModuleType):
        return vars(x).get(name, _MISSING)
    if isinstance(x, type):
        value = getattr(x, name, _MISSING)
        return value if value is getattr(x, name, _MISSING) else _MISSING
    static = getattr(type(x), name, _MISSING)
    if isinstance(static, types.MemberDescriptorType):
        return getattr(x, name, _MISSING)
    if static is not _MISSING and hasattr(type(static), "__set__"):
        return _MISSING
    own = getattr(x, "__dict__", None)
    return own.get(name, _MISSING) if isinstance(own, dict) else _MISSING


def _constant_item(x: Any, key: Any) -> Any:
    if type(x) not in (tuple, list, dict) or type(key) not in (int, str, bool):
        return _MISSING
    try:
        return x[key]
    except (LookupError, TypeError):
        return _MISSING


def _code_of(x: Any) -> CodeType | None:
    """The code of a function in a class, inside the wrappers of Python."""
    if isinstance(x, property):
        x = x.fget
    x = getattr(x, "__func__", getattr(x, "func", x))
    return x.__code__ if isinstance(x, FunctionType) else None


def _path(read: Read, count: int) -> str:
    """The first steps of a read as the user wrote them."""
    steps = read.steps[:count]
    return read.name + "".join(f".{k}" if kind == "attribute" else f"[{k!r}]" for kind, k in steps)


def _is_rewritten(code: CodeType, known: CodeType) -> bool:
    """Whether code is that of a function inside a kernel after `@pk.function` has rewritten it."""
    last = max((line for *_, line in known.co_lines() if line), default=0)
    return (code.co_filename, code.co_name) == (known.co_filename, known.co_name) and (
        known.co_firstlineno <= code.co_firstlineno <= last
    )


def _location(code: CodeType, read: Read) -> Loc:
    line = next(
        (line for start, end, line in code.co_lines() if start <= read.instruction < end and line),
        code.co_firstlineno,
    )
    return Loc(code.co_filename, line, code.co_name, code, read.instruction)
