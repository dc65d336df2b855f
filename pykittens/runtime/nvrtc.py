"""CUDA C++ in, a cubin out: the NVRTC compiler, its headers and what its log says about speed.

The compiler comes from the wheels nvidia-cuda-nvrtc and nvidia-cuda-runtime; no toolkit is needed.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pykittens.errors import BackendError, ResourceError

# Headers an emitted kernel may include; the first stands for the folder that has them all.
HEADERS = ("cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h")

# ptxas tells of spills and local memory only when asked, and each in an option of its own.
OPTIONS = (
    "-std=c++17",
    "-lineinfo",
    "--ptxas-options=-warn-spills",
    "--ptxas-options=-warn-lmem-usage",
)

# C7508 ignored setmaxnreg; C7514 to C7517 serialised products and waits that ptxas put in.
_FAULT = re.compile(r"\(C75\d\d\)|Registers are spilled|Local memory used")
# A matrix instruction with more accumulators than a thread has registers.
_TOO_WIDE = re.compile(r"\(C7602\) Insufficient registers \((\d+)\).* register target of (\d+)")


@dataclass(frozen=True)
class Binary:
    """What a compilation made: machine code, the PTX it came from and the compiler's remarks."""

    cubin: bytes
    ptx: str
    log: str


class CompileFailure(AssertionError):
    """NVRTC refused text that we emitted; `log` is what it said and `source` what it read."""

    def __init__(self, name: str, log: str, source: str) -> None:
        super().__init__(f"the CUDA C++ emitted for {name} does not compile:\n{log}")
        self.name = name
        self.log = log
        self.source = source


def available() -> str | None:
    """None when kernels can be compiled, else a sentence of what is missing and how to get it."""
    try:
        version()
    except BackendError as error:
        return f"{error.message}: {error.help}"
    if header_folder() is None:
        return f"{HEADERS[0]} was not found: pip install nvidia-cuda-runtime"
    return None


@functools.cache
def version() -> tuple[int, int]:
    """Major and minor version of the compiler."""
    nvrtc = _nvrtc()
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # the loader's own errors derive from it
        raise BackendError(
            "the NVRTC library was not found", help="pip install nvidia-cuda-nvrtc"
        ) from error
    _check(nvrtc, status)
    return int(major), int(minor)


@functools.cache
def architectures() -> tuple[str, ...]:
    """Every architecture this compiler knows, without the suffixes `a` and `f`: sm_75, sm_80, …"""
    version()
    nvrtc = _nvrtc()
    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    _check(nvrtc, status)
    return tuple(f"sm_{number}" for number in numbers)


def compile(
    source: str,
    arch: str,
    name: str,
    headers: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Binary:
    """Machine code of `source` for `arch` (such as sm_90a).

    `name` is the file the log speaks of, `headers` are texts `source` may include by name. Raises
    BackendError for an unknown architecture or a missing compiler, ResourceError for an instruction with
    more registers than there are, CompileFailure for bad source.
    """
    _require_architecture(arch)
    nvrtc = _nvrtc()
    texts = headers or {}
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        name.encode(),
        len(texts),
        [text.encode() for text in texts.values()],
        [path.encode() for path in texts],
    )
    _check(nvrtc, status)
    try:
        arguments = [option.encode() for option in command_line(arch, options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        log = _text(nvrtc, program, "ProgramLog")
        if int(status) != 0 and ("--gpu-architecture" in log or "--nv_arch" in log):
            raise _unknown_architecture(arch)
        if too_wide := _TOO_WIDE.search(log):
            raise ResourceError(
                f"{name}: one instruction takes {too_wide[2]} registers a thread, and a block of this "
                f"size starts with {too_wide[1]}",
                help="take fewer columns in one product, or fewer groups in the block",
            )
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            raise CompileFailure(name, log, source)
        if int(status) != 0:
            raise CompileFailure(name, f"{_error_text(nvrtc, status)}\n{log}", source)
        return Binary(_bytes(nvrtc, program, "CUBIN"), _text(nvrtc, program, "PTX"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def command_line(arch: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options a compilation for `arch` is given, include paths last."""
    folder = header_folder()
    include = () if folder is None else (f"--include-path={folder}",)
    return (f"--gpu-architecture={arch}", *OPTIONS, *options, *include)


def performance_faults(log: str) -> list[str]:
    """The lines of a log that cost speed: serialised products, ignored budgets, local memory."""
    return [line.strip() for line in log.splitlines() if _FAULT.search(line)]


@functools.cache
def header_folder() -> Path | None:
    """The folder with cuda_bf16.h and its companions, if one is on this machine."""
    try:
        # The public name is missing from releases of the path finder before 1.3.
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        found = pathfinder.find_nvidia_header_directory("cudart")
    except (ImportError, AttributeError):
        found = None
    folders = [] if found is None else [Path(found)]
    folders += [root / "include" for root in toolkit_folders()]
    return next((folder for folder in folders if (folder / HEADERS[0]).is_file()), None)


def toolkit_folders() -> list[Path]:
    """Folders that may hold a toolkit's `include` and `bin`: wheels first, then installed ones."""
    try:
        wheels = [Path(root) for root in importlib.import_module("nvidia").__path__]
    except ImportError:
        wheels = []
    # The wheels of CUDA 13 share one folder; those before have one each.
    folders = [folder for root in wheels for folder in sorted(root.glob("cu[1-9]*"), reverse=True)]
    folders += [folder for root in wheels for folder in sorted(root.glob("cuda_*"))]
    homes = [os.environ.get(variable, "") for variable in ("CUDA_HOME", "CUDA_PATH")]
    return folders + [Path(home) for home in (*homes, "/usr/local/cuda") if home]


def _nvrtc() -> ModuleType:
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise BackendError(
            "cuda-bindings is not installed", help="pip install cuda-bindings nvidia-cuda-nvrtc"
        ) from error


def _require_architecture(arch: str) -> None:
    if re.sub(r"[af]$", "", arch) not in architectures():
        raise _unknown_architecture(arch)


def _unknown_architecture(arch: str) -> BackendError:
    major, minor = version()
    return BackendError(
        f"NVRTC {major}.{minor} does not know the architecture {arch}",
        operands={"known": ", ".join(architectures())},
        help="sm_90 and above also have a form for one chip only, such as sm_90a",
    )


def _check(nvrtc: ModuleType, status: Any) -> None:
    if int(status) != 0:
        raise BackendError(f"NVRTC failed: {_error_text(nvrtc, status)}")


def _error_text(nvrtc: ModuleType, status: Any) -> str:
    _, text = nvrtc.nvrtcGetErrorString(status)
    return str(text.decode())


def _bytes(nvrtc: ModuleType, program: Any, what: str) -> bytes:
    """One of the program's outputs: "CUBIN", "PTX" or "ProgramLog"."""
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(nvrtc, status)
    # Not `b" " * size`: the call writes into it, and Python shares the one-byte bytes objects.
    buffer = bytearray(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _check(nvrtc, status)
    return bytes(buffer)


def _text(nvrtc: ModuleType, program: Any, what: str) -> str:
    return _bytes(nvrtc, program, what).rstrip(b"\0").decode(errors="replace").rstrip("\n")
