"""Compiles CUDA C++ to a cubin with NVRTC, called through ctypes, and reads warnings about speed from its log."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

from pykittens.errors import BackendError, ResourceError
from pykittens.runtime import toolkit

# Signatures as in nvrtc.h; a program's handle is an address.
_SIGNATURES = {
    "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcGetErrorString": (c_int,),
    "nvrtcCreateProgram": (
        POINTER(c_void_p), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p),
    ),
    "nvrtcDestroyProgram": (POINTER(c_void_p),),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    **{f"nvrtcGet{what}Size": (c_void_p, POINTER(c_size_t)) for what in ("CUBIN", "PTX", "ProgramLog")},
    **{f"nvrtcGet{what}": (c_void_p, c_char_p) for what in ("CUBIN", "PTX", "ProgramLog")},
}  # fmt: skip
_SUCCESS, _ERROR_COMPILATION = 0, 6

# ptxas reports spills and local memory only on request, each with its own option.
OPTIONS = (
    "-std=c++17",
    "-lineinfo",
    "--ptxas-options=-warn-spills",
    "--ptxas-options=-warn-lmem-usage",
)

# C7508: ignored setmaxnreg; C7514 to C7517: serialised products, and waits that ptxas inserted.
_FAULT = re.compile(r"\(C75\d\d\)|Registers are spilled|Local memory used")
# A matrix instruction with more accumulators than a thread has registers.
_TOO_WIDE = re.compile(r"\(C7602\) Insufficient registers \((\d+)\).* register target of (\d+)")


@dataclass(frozen=True)
class Binary:
    """The output of a compilation: machine code, its PTX and the compiler's remarks."""

    cubin: bytes
    ptx: str
    log: str


class CompileFailure(AssertionError):
    """NVRTC rejected emitted text; `log` is its output and `source` its input."""

    def __init__(self, name: str, log: str, source: str) -> None:
        super().__init__(f"the CUDA C++ emitted for {name} does not compile:\n{log}")
        self.name = name
        self.log = log
        self.source = source


def available() -> str | None:
    """None if kernels can be compiled, else a sentence that says what is missing and how to install it."""
    try:
        version()
    except BackendError as error:
        return f"{error.message}: {error.help}"
    if toolkit.header_folder() is None:
        return f"{toolkit.HEADERS[0]} was not found: pip install nvidia-cuda-runtime"
    return None


@functools.cache
def version() -> tuple[int, int]:
    """Major and minor version of the compiler."""
    major, minor = c_int(), c_int()
    _check(library().nvrtcVersion(byref(major), byref(minor)))
    return major.value, minor.value


@functools.cache
def architectures() -> tuple[str, ...]:
    """Every architecture that this compiler supports, without the suffixes `a` and `f`: sm_75, sm_80, …"""
    count = c_int()
    _check(library().nvrtcGetNumSupportedArchs(byref(count)))
    numbers = (c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(numbers))
    return tuple(f"sm_{number}" for number in numbers)


def compile(
    source: str,
    arch: str,
    name: str,
    headers: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Binary:
    """Machine code of `source` for `arch` (such as sm_90a).

    `name` is the file name in the log, `headers` are texts that `source` may include by name. Raises
    BackendError for an unknown architecture or a missing compiler, ResourceError for an instruction that
    needs more registers than a thread has, CompileFailure for invalid source.
    """
    _require_architecture(arch)
    nvrtc = library()
    texts = headers or {}
    program = c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(
            byref(program),
            source.encode(),
            name.encode(),
            len(texts),
            _strings(texts.values()),
            _strings(texts),
        )
    )
    try:
        arguments = command_line(arch, options)
        status = nvrtc.nvrtcCompileProgram(program, len(arguments), _strings(arguments))
        log = _text(program, "ProgramLog")
        if status != _SUCCESS and ("--gpu-architecture" in log or "--nv_arch" in log):
            raise _unknown_architecture(arch)
        if too_wide := _TOO_WIDE.search(log):
            raise ResourceError(
                f"{name}: one instruction needs {too_wide[2]} registers per thread, but a block of this "
                f"size starts with {too_wide[1]}",
                help="use fewer columns per product, or fewer groups per block",
            )
        if status == _ERROR_COMPILATION:
            raise CompileFailure(name, log, source)
        if status != _SUCCESS:
            raise CompileFailure(name, f"{_error_text(status)}\n{log}", source)
        return Binary(_bytes(program, "CUBIN"), _text(program, "PTX"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def command_line(arch: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options of a compilation for `arch`, include paths last."""
    folder = toolkit.header_folder()
    include = () if folder is None else (f"--include-path={folder}",)
    return (f"--gpu-architecture={arch}", *OPTIONS, *options, *include)


def performance_faults(log: str) -> list[str]:
    """The lines of a log that report lost speed: serialised products, ignored budgets, local memory."""
    return [line.strip() for line in log.splitlines() if _FAULT.search(line)]


@functools.cache
def library() -> ctypes.CDLL:
    """The NVRTC library, with its signatures set."""
    fault: OSError | None = None
    for path in toolkit.nvrtc_libraries():
        try:
            nvrtc = _loaded(path)
        except OSError as error:
            fault = error
            continue
        try:
            for name, arguments in _SIGNATURES.items():
                function = getattr(nvrtc, name)
                function.argtypes, function.restype = arguments, c_int
        except AttributeError as error:
            raise BackendError(
                f"NVRTC ({path}) is older than CUDA 12", help="pip install nvidia-cuda-nvrtc"
            ) from error
        nvrtc.nvrtcGetErrorString.restype = c_char_p
        return nvrtc
    raise BackendError(
        "the NVRTC library was not found", help="pip install nvidia-cuda-nvrtc"
    ) from fault


def _loaded(path: str) -> ctypes.CDLL:
    """The library with this path or name, with its builtins loaded.

    NVRTC loads its builtins by name at the first compilation, but the loader may not search the folder of the library:
    with the wheel of 13.0 it does not (cuda-pathfinder loads them in advance for this reason).
    """
    folder = Path(path).parent
    if folder.is_absolute():
        if sys.platform == "win32":
            os.add_dll_directory(str(folder))
        for builtins in folder.glob("libnvrtc-builtins.so.*"):
            with suppress(OSError):
                ctypes.CDLL(str(builtins))
    return ctypes.CDLL(path)


def _require_architecture(arch: str) -> None:
    if re.sub(r"[af]$", "", arch) not in architectures():
        raise _unknown_architecture(arch)


def _unknown_architecture(arch: str) -> BackendError:
    major, minor = version()
    return BackendError(
        f"NVRTC {major}.{minor} does not know the architecture {arch}",
        operands={"known": ", ".join(architectures())},
        help="sm_90 and above also have a form for a single chip, such as sm_90a",
    )


def _check(status: int) -> None:
    if status != _SUCCESS:
        raise BackendError(f"NVRTC failed: {_error_text(status)}")


def _error_text(status: int) -> str:
    text: bytes = library().nvrtcGetErrorString(status)
    return text.decode()


def _strings(texts: Collection[str]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*(text.encode() for text in texts))


def _bytes(program: c_void_p, what: str) -> bytes:
    """An output of the program: "CUBIN", "PTX" or "ProgramLog"."""
    size = c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(program: c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace").rstrip("\n")
