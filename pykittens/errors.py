"""The errors that a user sees, and the location in the user's source that each reports.

KernelError
 ├ LanguageError     the kernel breaks a rule of the language
 ├ TypeMismatch      operands that do not fit an operation
 ├ ArgumentError     the arguments of a call do not fit the kernel
 ├ ResourceError     more registers, shared memory or threads than the target has
 ├ DeadlockError     no role can run
 ├ BarrierError      arrivals, fills and drains that do not match
 ├ AccessError       an address outside its tensor
 ├ AssertError       an assertion of the kernel failed
 └ BackendError      no compiler, no driver or no such architecture
    └ UnsupportedError  a target does not support an operation, with the reason
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, ClassVar

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_RECORDER = os.path.join(_PACKAGE, "lang", "trace.py")
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Kernels and templates are written in the language, so errors can report their lines as a user's.
_WRITTEN_IN_THE_LANGUAGE = tuple(
    os.path.join(_PACKAGE, d) + os.sep for d in ("kernels", "templates")
)
# The folder or file of an installed package; Debian's Python has another name for where they are.
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")

# The owners of files, beside installed packages. The library is what pykittens has written in the language.
USER, PYTHON, PYKITTENS, LIBRARY = "the user", "Python", "pykittens", "the library"


@functools.cache
def owner(file: str) -> str:
    """Whose a file is: USER, PYTHON, PYKITTENS, LIBRARY, or the path of an installed package."""
    if file.startswith("<"):  # no file, such as a cell of a notebook; or a module inside of Python
        return PYTHON if file.startswith("<frozen ") else USER
    path = os.path.abspath(file)
    if path.startswith(_PACKAGE + os.sep):
        return LIBRARY if path.startswith(_WRITTEN_IN_THE_LANGUAGE) else PYKITTENS
    if (installed := _INSTALLED.match(path)) is not None:
        return installed[0]
    return PYTHON if path.startswith(_STANDARD_LIBRARY) else USER


def owner_of_module(name: str, module: ModuleType | None = None) -> str:
    """The owner of a module: of the one that is imported by this name if none is given."""
    module = module or sys.modules.get(name)
    if module is None or name == "__main__":
        return USER
    if (file := getattr(module, "__file__", None)) is not None:
        return owner(file)
    return PYTHON if module.__spec__ else USER  # built in, or made by a program


@dataclass(frozen=True)
class Loc:
    """A location in the user's source: a file, a line and, if the bytecode has them, columns.

    caller: for a line of a helper of a kernel, the line that calls the helper.
    """

    file: str
    line: int
    function: str
    code: CodeType | None = field(default=None, compare=False, repr=False)
    instruction: int = field(default=-1, compare=False, repr=False)
    # The text of the line and the columns, if the location comes from another process, whose bytecode is not here.
    seen: tuple[str, tuple[int, int] | None] | None = field(default=None, compare=False, repr=False)
    caller: Loc | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def here(beyond: tuple[str, ...] = ()) -> Loc | None:
        """The innermost frame on the stack that is the user's and not in one of the folders `beyond`."""
        frame: FrameType | None = sys._getframe(1)
        users: list[FrameType] = []
        while frame is not None:
            file = frame.f_code.co_filename
            if is_user_file(file):
                if not file.startswith(beyond):
                    users.append(frame)
            elif users and _is_recorder(frame.f_code):
                break
            frame = frame.f_back
        if frame is None:  # no kernel is recorded, so the lines further out are no part of one
            users = users[:1]
        found: Loc | None = None
        for user in reversed(users):
            code, line = user.f_code, user.f_lineno
            if found is not None and (found.file, found.line) == (code.co_filename, line):
                found = found.caller  # a lambda or comprehension in its line
            found = Loc(code.co_filename, line, code.co_name, code, user.f_lasti, caller=found)
        return found

    @property
    def columns(self) -> tuple[int, int] | None:
        """Start and end column of the expression on its first line, if the bytecode has them."""
        if self.seen is not None:
            return self.seen[1]
        if self.code is None or self.instruction < 0:
            return None
        for index, (line, end_line, start, end) in enumerate(self.code.co_positions()):
            if index == self.instruction // 2:
                if line != self.line or start is None or end is None:
                    return None
                return start, (end if end_line == line else len(self.text))
        return None

    @property
    def text(self) -> str:
        """The source line, without its line end."""
        if self.seen is not None:
            return self.seen[0]
        return linecache.getline(self.file, self.line).rstrip()

    @property
    def callers(self) -> Iterator[Loc]:
        """The lines by which a kernel calls the line, the innermost first."""
        loc = self.caller
        while loc is not None:
            yield loc
            loc = loc.caller

    @property
    def path(self) -> str:
        """The location with those of its callers."""
        return ", called at ".join(map(str, (self, *self.callers)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the location with its line and columns, because bytecode cannot be pickled."""
        seen = self.text, self.columns
        return Loc, (self.file, self.line, self.function, None, -1, seen, self.caller)

    def __str__(self) -> str:
        return f"{_shown_path(self.file)}:{self.line}"

    def excerpt(self) -> str:
        """The location, the line and carets below the expression, indented for an error text; then its callers."""
        called = (f"  called at {c.line_excerpt().lstrip()}" for c in self.callers)
        return "\n".join((self.line_excerpt(), *called))

    def line_excerpt(self) -> str:
        """The excerpt without the callers."""
        lines = [f"  {self}, in {self.function}"]
        text = self.text
        if text.strip():
            indent = len(text) - len(text.lstrip())
            lines.append(f"    {text.strip()}")
            if (columns := self.columns) is not None:
                start, end = max(columns[0], indent), columns[1]
                # Columns count UTF-8 bytes; carets stand below characters.
                start = len(text.encode()[:start].decode(errors="ignore"))
                end = len(text.encode()[:end].decode(errors="ignore"))
                lines.append("    " + " " * (start - indent) + "^" * max(1, end - start))
        return "\n".join(lines)


def _is_recorder(code: CodeType) -> bool:
    """Whether the function runs a kernel's function to record it."""
    return code.co_name == "trace" and code.co_filename == _RECORDER


@functools.cache
def is_user_file(filename: str) -> bool:
    """Whether errors report the lines of a file: all but Python's and the compiler's."""
    return owner(filename) not in (PYTHON, PYKITTENS)


def _shown_path(path: str) -> str:
    if (cell := _cell(path)) is not None:
        return cell
    if path.startswith("<"):
        return path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on another drive of Windows
        return path
    return path if relative.startswith("..") else relative


def _cell(path: str) -> str | None:
    """The name of the notebook's cell that IPython keeps under a path, such as `Cell In[3]`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(path)
    return None if named is None else " ".join(named)


class KernelError(Exception):
    """A fault of the kernel or of a call, with its operands, its line and, if a fix is known, a help line.

    message, help: texts; help may be None. operands: the values that the error shows, by name. loc: the user's line, or
    None. beyond: folders of the package whose lines are reported only if there is none outside. numbers_read: the
    numbers of a call that a recording read before it failed.
    """

    beyond: ClassVar[tuple[str, ...]] = ()
    numbers_read: Collection[str] = ()

    def __init__(
        self,
        message: str,
        *,
        operands: Mapping[str, object] | None = None,
        loc: Loc | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operands = dict(operands or {})
        self.loc = loc or Loc.here(self.beyond) or Loc.here()
        self.help = help

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with the texts of its operands in place of the operands."""
        shown = {name: f"{value}" for name, value in self.operands.items()}
        return type(self), (self.message,), {**self.__dict__, "operands": shown}

    def __str__(self) -> str:
        parts = [self.message]
        width = max((len(name) for name in self.operands), default=0)
        parts += [f"    {name:<{width}} : {value}" for name, value in self.operands.items()]
        if self.loc is not None:
            parts.append(self.loc.excerpt())
        if self.help:
            parts.append(f"help: {self.help}")
        return "\n".join(parts)

    def _render_traceback_(self) -> list[str]:
        """The error as IPython shows it: its text, then the lines of the user from which the call came."""
        lines = [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]
        if (cause := self.__cause__) is not None and str(cause) not in str(self):
            lines.append(f"caused by {type(cause).__name__}: {cause}")
        shown = set() if self.loc is None else {self.loc, *self.loc.callers}
        for loc in _users_lines(self.__traceback__):
            if loc not in shown:
                lines.append(f"called at {loc.line_excerpt().lstrip()}")
        return lines


def _users_lines(traceback: TracebackType | None) -> list[Loc]:
    """The lines of a traceback in the user's own files, the innermost first."""
    found = []
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        if owner(code.co_filename) == USER:
            found.append(Loc(code.co_filename, line, code.co_name, code, traceback.tb_lasti))
        traceback = traceback.tb_next
    return found[::-1]


class LanguageError(KernelError):
    """The kernel breaks a rule of the language."""


class TypeMismatch(KernelError):
    """Operands whose types, shapes or dtypes do not fit the operation."""


class ArgumentError(KernelError):
    """The arguments of a call do not fit the kernel. For kernels of the library the reported line is the caller's."""

    beyond = _WRITTEN_IN_THE_LANGUAGE


class ResourceError(KernelError):
    """The kernel asks for more registers, shared memory or threads than the target has."""


class DeadlockError(KernelError):
    """No role can run: each waits for another.

    waits: the name, the reason and the location of each wait. history: what the groups have done before, and where.
    """

    waits: tuple[tuple[str, str, Loc | None], ...] = ()
    history: tuple[tuple[str, str, Loc | None], ...] = ()


class BarrierError(KernelError):
    """Arrivals, or fills and drains, that do not match what a barrier counts."""


class AccessError(KernelError):
    """An access outside a tensor or a tile, an integer that overflows, or a division by 0."""


class AssertError(KernelError):
    """An assertion of the kernel, `pk.assert_`, failed."""


class BackendError(KernelError):
    """The compiler, the driver, the device or the requested architecture is missing."""


class UnsupportedError(BackendError):
    """A target does not support an operation, or one call of it; the message has the reason."""
