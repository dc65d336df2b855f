"""A kernel and its arguments from the command line: FILE --kernel K --arg A=bf16[512,512] --constant n=2.

FILE:K names a kernel, too.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError, KernelError, Loc
from pykittens.ir.nodes import Call, tensors, walk
from pykittens.runtime.arguments import check
from pykittens.runtime.kernel import DEFAULT_ARCH, KernelFunction
from pykittens.targets.architectures import TARGETS
from pykittens.types.dtypes import DTYPES, DType

_ARRAY = re.compile(r"(\w+)\s*\[([\d\s,_]*)\]\s*(?:=(.+))?")
_DRAWN = 1 << 20  # numbers that are drawn at a time
_WORDS = {"true": True, "false": False, "none": None}
# The help for a file whose own calls do not serve a command.
NAMED = "name a kernel and its arguments, as in --kernel K --arg A=bf16[512,512] --arg n=3"
# The contents of an array for which --arg gives none, from its name, shape and dtype.
Fill = Callable[[str, tuple[int, ...], DType], np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Request:
    """A kernel and its arguments: `kernel.compile(*args, arch=…, **constants)`."""

    kernel: KernelFunction
    args: tuple[Any, ...]
    constants: dict[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    """Add FILE, --kernel, --arg and --constant to the parser of a command."""
    parser.add_argument("file", metavar="FILE", help="a Python file with a kernel, or FILE:KERNEL")
    parser.add_argument("--kernel", metavar="K", help="its name, if the file has several")
    for option, help in (
        (
            "--arg",
            "an argument: an array as dtype[shape], A=bf16[512,512], an array full of one number, flags=int32[4]=0, or "
            "a number, eps=1e-6, or None, bias=None",
        ),
        ("--constant", "a keyword constant: causal=True, dtype=f16, order='row'"),
    ):
        parser.add_argument(option, metavar="NAME=VALUE", action="append", default=[], help=help)


def add_arch(parser: argparse.ArgumentParser) -> None:
    """Add --arch to the parser of a command."""
    help = f"one of {', '.join(TARGETS)}; the default is {DEFAULT_ARCH}"
    parser.add_argument("--arch", default=DEFAULT_ARCH, help=help)


def zeros(name: str, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Zeros: the compiled kernel depends only on dtypes, ranks, alignment and static extents."""
    return np.zeros(shape, dtype.numpy)


def random_numbers(name: str, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Random normal numbers, integers from 0 to 7, or bools; always the same for a name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    made = np.empty(shape, dtype.numpy)
    flat = made.reshape(-1)
    for first in range(0, made.size, _DRAWN):  # the numbers are drawn with 8 bytes each
        part = flat[first : first + _DRAWN]
        match dtype.kind:
            case "float":
                part[...] = rng.standard_normal(part.size).astype(dtype.numpy)
            case "int":
                part[...] = rng.integers(0, 8, part.size)
            case "bool":
                part[...] = rng.random(part.size) < 0.5
    return made


def request(parsed: argparse.Namespace, fill: Fill = zeros) -> Request:
    """The kernel and the arguments from the options of `add`."""
    file, name = file_and_kernel(parsed.file, parsed.kernel)
    kernel = find_kernel(load(file), name)
    values = {n: argument(n, text, fill) for n, text in _pairs("--arg", parsed.arg).items()}
    constants = {n: constant(n, text) for n, text in _pairs("--constant", parsed.constant).items()}
    names = kernel.parameters.names(len(values))
    _check_names("--arg", kernel, values, names)
    _check_names("--constant", kernel, constants, tuple(kernel.parameters.constants))
    if missing := [n for n in names if n not in values]:
        raise ArgumentError(
            f"{kernel.parameters.name}: `{missing[0]}` is missing",
            loc=kernel.parameters.loc,
            help=as_options(missing),
        )
    return Request(kernel, tuple(values[n] for n in names), constants)


def clear_flags(request: Request) -> None:
    """Set flags, the tensors by which blocks wait for one another, to 0, as callers of such kernels do."""
    kernel = request.kernel
    try:
        call = check(kernel.parameters, request.args, request.constants)
        recorded = kernel.record(call)
    except Exception:
        return  # the check reports it
    for node in walk(recorded.body):
        if isinstance(node, Call):
            for name in tensors(node, node.op.effects.flags):
                call.tensors[name].numpy()[...] = 0


def as_options(names: Sequence[str]) -> str:
    """Arguments of these names as they are written in a command."""
    return " ".join(f"--arg {n}=DTYPE[SHAPE]" for n in names) + ", or =NUMBER for a number"


def file_and_kernel(file: str, kernel: str | None) -> tuple[str, str | None]:
    """The file and the kernel, from FILE or FILE:KERNEL and the option --kernel."""
    path, colon, name = file.rpartition(":")
    if not colon or not name.isidentifier():
        return file, kernel
    if kernel not in (None, name):
        raise ArgumentError(f"{file} names the kernel `{name}`, and --kernel names `{kernel}`")
    return path, name


def python_file(file: str | Path) -> Path:
    """The path of an existing Python file."""
    path = Path(file).resolve()
    if path.is_dir():
        raise ArgumentError(f"{file} is a folder", help="name a Python file in it")
    if not path.exists():
        raise ArgumentError(f"there is no file {file}", help="name a file that ends in .py")
    if path.suffix != ".py" or not path.is_file():
        raise ArgumentError(f"{file} is not a Python file", help="name a file that ends in .py")
    return path


def load(file: str | Path) -> ModuleType:
    """The module of a Python file; it can import from its folder, as if Python ran the file."""
    path = python_file(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module  # dataclasses and pickle look a class's module up
    try:
        spec.loader.exec_module(module)
    except KernelError:
        raise
    except Exception as error:
        raise stopped_by(f"{file} cannot be loaded", error, path) from error
    finally:
        sys.path.remove(str(path.parent))
        if before is not None:
            sys.modules[path.stem] = before
    return module


def kernels_of(names: Mapping[str, Any], file: str | None) -> dict[str, KernelFunction]:
    """The kernels among the names of a module that its own file defines."""
    found = {n: v for n, v in names.items() if isinstance(v, KernelFunction)}
    return {n: k for n, k in found.items() if k.parameters.loc.file == file}


def find_kernel(module: ModuleType, name: str | None) -> KernelFunction:
    """The kernel of this name, or the only one that the module itself defines."""
    found = {n: v for n, v in vars(module).items() if isinstance(v, KernelFunction)}
    own = kernels_of(found, module.__file__)
    if name is None and len(own) == 1:
        return next(iter(own.values()))
    if name is not None and name in found:
        return found[name]
    names = ", ".join(own or found)
    if not names:
        what, help = "no kernel", "a kernel is a function marked @pk.kernel"
    elif name is None:
        what, help = f"several kernels: {names}", "--kernel NAME"
    else:
        what, help = f"no kernel `{name}`", f"it has {names}"
    raise ArgumentError(f"{module.__file__} has {what}", help=help)


def argument(name: str, text: str, fill: Fill = zeros) -> Any:
    """The array, the number or the None that the text of an --arg describes."""
    if match := _ARRAY.fullmatch(text.strip()):
        dtype, extents = match[1], [e for e in match[2].split(",") if e.strip()]
        if dtype not in DTYPES:
            raise ArgumentError(
                f"--arg {name}: there is no dtype `{dtype}`", help=f"there are {', '.join(DTYPES)}"
            )
        try:
            shape = tuple(int(e) for e in extents)
            if match[3] is None:
                return fill(name, shape, DTYPES[dtype])
            return np.full(shape, _number(name, match[3]), DTYPES[dtype].numpy)
        except (MemoryError, ValueError, OverflowError) as error:
            raise ArgumentError(f"--arg {name}={text}: {error}") from None
    return None if _literal(text) is None else _number(name, text)


def _number(name: str, text: str) -> int | float | bool:
    value = _literal(text)
    if not isinstance(value, bool | int | float):
        raise ArgumentError(
            f"--arg {name}: `{text}` is neither an array nor a number",
            help=f"an array is DTYPE[SHAPE], such as {name}=bf16[512,512]; a number, {name}=1e-6",
        )
    return value


def constant(name: str, text: str) -> Any:
    """The dtype or Python literal that the text of a --constant describes."""
    if text.strip() in DTYPES:
        return DTYPES[text.strip()]
    value = _literal(text)
    if value is Ellipsis:
        raise ArgumentError(
            f"--constant {name}: `{text}` is neither a Python literal nor a dtype",
            help=f"a string needs quotes: --constant \"{name}='{text}'\"",
        )
    return value


def _literal(text: str) -> Any:
    """A Python literal; true, false or none in any case; Ellipsis if the text is no literal."""
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return Ellipsis


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ArgumentError(f"{option} {text}: a name, `=` and a value are expected")
        if name.strip() in pairs:
            raise ArgumentError(f"{option} {name.strip()} is given twice")
        pairs[name.strip()] = value
    return pairs


def _check_names(
    option: str, kernel: KernelFunction, given: dict[str, Any], known: tuple[str, ...]
) -> None:
    for name in given:
        if name not in known:
            p = kernel.parameters
            other = "--constant" if option == "--arg" else "--arg"
            elsewhere = name in p.constants or name in p.positional
            raise ArgumentError(
                f"{option} {name}: {p.name} takes no such " + option.removeprefix("--"),
                loc=p.loc,
                help=f"it is given with {other}"
                if elsewhere
                else f"it takes {', '.join(known) or 'none'}",
            )


def stopped_by(message: str, error: Exception, path: Path) -> ArgumentError:
    """The error for an exception of the user's file, with its line."""
    return ArgumentError(f"{message}: {type(error).__name__}: {error}", loc=_line(error, path))


def _line(error: Exception, path: Path) -> Loc | None:
    """The innermost line of the file itself in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return Loc(str(path), error.lineno or 1, "<module>")
    trace, found = error.__traceback__, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == str(path):
            found = Loc(str(path), trace.tb_lineno, code.co_name, code, trace.tb_lasti)
        trace = trace.tb_next
    return found
