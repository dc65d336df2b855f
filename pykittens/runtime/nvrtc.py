"""Compiles CUDA C++ to a cubin with NVRTC, in a process of its own, and reads warnings about speed from its log."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pykittens import settings
from pykittens.errors import BackendError, ResourceError
from pykittens.runtime import compiler, releases

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
# The operands of matrix instructions that run at once: ptxas can keep nothing of them in memory.
_TOO_MANY = re.compile(r"\(C7600\) Register allocation failed with register count of '(\d+)'")

# The compilations that run.
_running: set[subprocess.Popen[bytes]] = set()


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
    return None


def version() -> tuple[int, int]:
    """Major and minor version of the compiler."""
    return releases.chosen().version


@functools.cache
def architectures() -> tuple[str, ...]:
    """Every architecture that this compiler supports, without the suffixes `a` and `f`: sm_75, sm_80, …"""
    with _told():
        return tuple(f"sm_{number}" for number in compiler.architectures(library()))


@functools.cache
def identity() -> str:
    """A text that differs for every build of the compiler: NVRTC reports no patch release.

    It has the version, and the sizes and times of the files: the content of 140 MB would take half a second to hash.
    """
    path = Path(library_path())
    parts = [".".join(map(str, version())), str(path)]
    for file in (path, *sorted(path.parent.glob("*nvrtc-builtins*"))):
        with suppress(OSError):
            found = file.stat()
            parts.append(f"{file.name} {found.st_size} {found.st_mtime_ns}")
    return "\n".join(parts)


def compile(
    source: str,
    arch: str,
    name: str,
    headers: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Binary:
    """Machine code of `source` for `arch` (such as sm_90a).

    `name` is the file name in the log, `headers` are texts that `source` may include by name. Raises BackendError for
    an unknown architecture, or a compiler that is missing or that crashed; ResourceError for an instruction that needs
    more registers than a thread has; CompileFailure for invalid source.
    """
    _require_architecture(arch)
    asked = compiler.request(source, name, list(command_line(arch, options)), dict(headers or {}))
    try:
        reply = _compiled_apart(asked, name)
    except OSError:
        reply = None  # no process can be started here
    if reply is None:
        with _told():
            reply = compiler.compile(library(), asked)
    status, log = int(reply["status"]), _text(reply["log"])
    if status != compiler.SUCCESS and ("--gpu-architecture" in log or "--nv_arch" in log):
        raise _unknown_architecture(arch)
    if too_wide := _TOO_WIDE.search(log):
        raise ResourceError(
            f"{name}: one instruction needs {too_wide[2]} registers per thread, but a block of this "
            f"size starts with {too_wide[1]}",
            help="use fewer columns per product, or fewer groups per block",
        )
    if too_many := _TOO_MANY.search(log):
        raise ResourceError(
            f"{name}: its products need more registers per thread than the {too_many[1]} of a block of this size",
            help="use fewer columns per product, or fewer groups per block; if all roles are whole warpgroups, those "
            "that multiply get registers of the others",
        )
    if status == compiler.ERROR_COMPILATION:
        raise CompileFailure(name, log, source)
    if status != compiler.SUCCESS:
        raise CompileFailure(name, f"{_text(reply['error'])}\n{log}", source)
    return Binary(reply["cubin"], _text(reply["ptx"]), log)


def command_line(arch: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options of a compilation for `arch`."""
    return (f"--gpu-architecture={arch}", *OPTIONS, *options)


def performance_faults(log: str) -> list[str]:
    """The lines of a log that report lost speed: serialised products, ignored budgets, local memory."""
    return [line.strip() for line in log.splitlines() if _FAULT.search(line)]


# -- the library -----------------------------------------------------------------------------------


def library() -> ctypes.CDLL:
    """The NVRTC library, with its signatures set."""
    library = releases.chosen().library
    assert library is not None, "a release that is chosen is loaded"
    return library


def library_path() -> str:
    """The file of the library."""
    return releases.chosen().path


# -- the process -----------------------------------------------------------------------------------


def stop() -> None:
    """Kill the compilations that run in other threads, which then raise."""
    for process in tuple(_running):
        process.kill()


def _compiled_apart(asked: compiler.Parts, name: str) -> compiler.Parts | None:
    """The reply of a process that compiles; None if this program cannot start Python, OSError if the system cannot."""
    program = _python()
    if program is None:
        return None
    request = compiler.encode({**asked, "library": library_path().encode()})
    pipe = subprocess.PIPE
    command = [program, "-I", "-S", compiler.__file__]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        _running.add(process)
        try:
            output, errors = process.communicate(request)
        except BaseException:  # such as Ctrl-C
            process.kill()
            process.wait()
            raise
        finally:
            _running.discard(process)
    with suppress(ValueError):
        reply = compiler.decode(output)
        if process.returncode == 0 and {"status", "error", "log"} <= set(reply):
            return reply
    raise _crash(process.returncode, errors, asked, name)


def _python() -> str | None:
    """The Python that runs this program; None in a program that embeds Python, whose executable is another."""
    program = sys.executable or ""
    named = os.path.basename(program).lower().startswith(("python", "pypy"))
    if not named or getattr(sys, "frozen", False) or not os.path.isfile(compiler.__file__):
        return None
    return program


def _crash(code: int, errors: bytes, asked: compiler.Parts, name: str) -> BackendError:
    """What to say of a compiler that ended without a reply."""
    how = f"ended with code {code} and without a result"
    if code < 0:
        how = f"was ended by signal {-code}"
        with suppress(ValueError):
            how = f"was ended by {signal.Signals(-code).name}"
    help = f"take another release: {releases.install()} --upgrade, or set {settings.NVRTC.variable}"
    if code == -getattr(signal, "SIGKILL", sys.maxsize):
        help = "the system ends processes with SIGKILL if memory runs out: compile fewer kernels at once"
    printed = errors.decode(errors="replace").strip().splitlines()
    return BackendError(
        f"{name}: NVRTC {'.'.join(map(str, version()))} {how} while it compiled the kernel",
        operands={
            "library": library_path(),
            "source": _saved(asked, name),
            "options": asked["options"].decode().replace("\0", " "),
            **({"output": printed[-1]} if printed else {}),
        },
        help=help,
    )


def _saved(asked: compiler.Parts, name: str) -> str:
    """The file to which the source of a crash is written, or why it cannot be written."""
    try:
        with tempfile.NamedTemporaryFile(
            prefix=f"pykittens-{re.sub(r'[^0-9A-Za-z_]', '_', name)[:40]}-",
            suffix=".cu",
            delete=False,
        ) as file:
            file.write(asked["source"])
    except OSError as error:
        return f"cannot be written: {error}"
    return file.name


# -- faults ----------------------------------------------------------------------------------------


@contextmanager
def _told() -> Iterator[None]:
    """Turn a failed call of NVRTC into a BackendError."""
    try:
        yield
    except compiler.Failure as failure:
        raise BackendError(f"NVRTC failed: {failure}") from None


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


def _text(data: bytes) -> str:
    # Logs of ptxas have NULs between them.
    return data.decode(errors="replace").replace("\0", "").rstrip("\n")
