"""Turns the errors that Python raises for run-time values while a kernel is recorded into errors of the language."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, ModuleType, TracebackType
from typing import Any

import numpy as np

from pykittens.errors import PYKITTENS, PYTHON, KernelError, LanguageError, Loc, owner
from pykittens.ir import habits
from pykittens.ir.operators import Arithmetic
from pykittens.ir.values import Global, Scalar, describe

_UNPACKED = (
    "a shape has one extent per axis of the tensor, a task one coordinate per extent of the tasks"
)
_KINDS = {
    "RegTile": "a register tile",
    "RegVector": "a register vector",
    "Scalar": "a run-time scalar",
    "Global": "a tensor",
    "TileRef": "a tile of a tensor",
    "SharedTile": "a shared tile",
    "SharedRow": "a row of a shared tile",
    "SharedVector": "a shared vector",
    "DType": "a dtype",
    "RT": "the type of a register tile",
    "RV": "the type of a register vector",
}


@contextmanager
def python_errors(params: Sequence[Global | Scalar], absent: Sequence[str]) -> Iterator[None]:
    """Raise a LanguageError, with a word for what was meant, for an error of Python about a run-time value or None.

    params: the arguments, whose types the error shows. absent: those that are None; an error for None names them.
    """
    try:
        yield
    except KernelError as error:
        if absent and ("not None" in error.message or "None" in error.operands.values()):
            _name_absent(error, absent)
        raise
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        fault = _fault(error, params, absent)
        if fault is None:
            raise
        raise fault from None


def _fault(
    error: Exception, params: Sequence[Global | Scalar], absent: Sequence[str]
) -> LanguageError | None:
    """The error of the language for one of Python; None if it has nothing to do with run-time values."""
    asked, message = getattr(error, "obj", None), str(error)
    found = _users_line(error, asked)
    if found is None:
        return None
    loc, opcode = _loc(found), _opcode(found)
    if opcode == "RAISE_VARARGS":
        return None  # the user's own
    scope = {**found.tb_frame.f_globals, **found.tb_frame.f_locals}
    named = {n: scope[n] for n in sorted(habits.names_in(loc)) if _is_run_time(scope.get(n))}
    if _is_package(asked):
        name = getattr(error, "name", "")
        return LanguageError(f"pykittens has no `{name}`", loc=loc, help=habits.meant(name))
    if isinstance(asked, Arithmetic):
        attribute, name = getattr(error, "name", ""), getattr(asked, "name", "") or "this value"
        message = f"`{name}` is {describe(asked)} and has no `{attribute}`"
        return LanguageError(message, operands=_types(params), loc=loc, help=habits.word(attribute))
    if bool(absent) and "NoneType" in message:
        fault = LanguageError(
            re.sub(r"'?NoneType'?( object)?", "None", message), operands=_types(params), loc=loc
        )
        _name_absent(fault, absent)
        return fault
    if opcode.startswith("UNPACK"):
        help = _UNPACKED if " values to unpack" in message else None
        return LanguageError(_plain(message), operands=_types(params), loc=loc, help=help)
    if not named and _plain(message) == message:
        return None
    of_tuple = any(isinstance(x, tuple) for x in named.values())
    help = habits.COORDINATES if of_tuple else habits.subscript(message) or habits.at(loc)
    if isinstance(error, IndexError) and any(isinstance(x, np.ndarray) for x in scope.values()):
        help = "pass the array to the kernel as an argument and read it with pk.load"
    return LanguageError(
        _plain(message), operands={n: describe(x) for n, x in named.items()}, loc=loc, help=help
    )


def _users_line(error: Exception, asked: object) -> TracebackType | None:
    """The last line of an error that is the user's; None if the error comes from the package itself."""
    trace, found, last = error.__traceback__, None, ""
    while trace is not None:
        last = owner(trace.tb_frame.f_code.co_filename)
        if last not in (PYTHON, PYKITTENS) and not _is_library(trace.tb_frame.f_code):
            found = trace
        trace = trace.tb_next
    return None if last == PYKITTENS and not _is_package(asked) else found


def _is_library(code: CodeType) -> bool:
    """Whether code is NumPy's or PyTorch's, which have taken a value and call one of its methods."""
    return re.search(r"[/\\](?:numpy|torch)[/\\]", code.co_filename) is not None


def _is_package(asked: object) -> bool:
    return isinstance(asked, ModuleType) and asked.__name__ == __name__.partition(".")[0]


def _loc(trace: TracebackType) -> Loc:
    code = trace.tb_frame.f_code
    return Loc(code.co_filename, trace.tb_lineno, code.co_name, code, trace.tb_lasti)


def _opcode(trace: TracebackType) -> str:
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]


def _is_run_time(x: object) -> bool:
    """Whether it is a run-time value, or a tuple that holds one."""
    return isinstance(x, Arithmetic) or (isinstance(x, tuple) and any(map(_is_run_time, x)))


def _types(params: Sequence[Global | Scalar]) -> dict[str, Any]:
    return {p.name: p.type for p in params}


def _plain(message: str) -> str:
    """Python's message with the classes of values in words."""
    if "__array_ufunc__" in message or "setting an array element with a sequence" in message:
        return "NumPy's functions take arrays, not run-time values"
    names = "|".join(_KINDS)
    return re.sub(
        rf"(?:object of )?(?:type )?'?(?:[\w.]+\.)?({names})\b'?(?:\.__\w+__)?(?: object)?",
        lambda m: _KINDS[m[1]],
        message,
    )


def _name_absent(error: KernelError, absent: Sequence[str]) -> None:
    """Add to an error the arguments that are None: those in its lines, or all if none is there."""
    lines = [line.text for line in (error.loc, *error.loc.callers)] if error.loc else []
    found = [n for n in absent if any(_stands_in(n, line) for line in lines)] or absent
    error.operands |= dict.fromkeys(found, "None in this call")
    way = f"`if {found[0]} is not None:` decides, when the kernel is recorded, what it does without the argument"
    error.help = f"{error.help}; {way}" if error.help else way


def _stands_in(name: str, line: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", line) is not None
