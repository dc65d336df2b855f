"""`pykittens doctor`: reports what is installed here, what is missing, and what would help."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

import pykittens as pk
from pykittens import settings
from pykittens.cli import screen
from pykittens.errors import KernelError
from pykittens.runtime import cubin, driver, nvrtc, toolkit
from pykittens.targets.architectures import TARGETS, target_for

# Least versions, as in pyproject.toml.
PYTHON = (3, 11)
PACKAGES = {"numpy": "2", "ml_dtypes": "0.5", "rich": "13"}
COMPILER_PACKAGES = {"nvidia-cuda-nvrtc": "13", "nvidia-cuda-runtime": "13"}
# The compiler has no wheels for other systems.
HAS_COMPILER = sys.platform in ("linux", "win32")
# Linux has this file if its kernel has NVIDIA's driver.
_DEVICE_FILE = Path("/dev/nvidiactl")
# The last line of the report names these if a check of this name is fine.
_WORKS = {"compile": "compiled", "launch": "run on a GPU"}


class Mark(Enum):
    """The result of a check."""

    OK = "ok"
    OPTIONAL = "missing, optional"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    mark: Mark
    text: str
    help: str = ""


Findings = Iterator[Finding]
Array = np.ndarray[Any, Any]
_MARKS = {Mark.OK: ("✓", "green"), Mark.OPTIONAL: ("–", "yellow"), Mark.WRONG: ("✗", "bold red")}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="check what kernels need here, and say what would help"
    )
    parser.add_argument("--json", action="store_true", help="print the findings for a program")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if something that should work here does not; a missing GPU is no fault."""
    findings = list(examine())
    wrong = sum(f.mark is Mark.WRONG for f in findings)
    if arguments.json:
        found = [vars(f) | {"mark": f.mark.value} for f in findings]
        print(json.dumps({"version": pk.__version__, "ok": not wrong, "findings": found}, indent=2))
    else:
        _print(findings, wrong)
    return 1 if wrong else 0


def _print(findings: list[Finding], wrong: int) -> None:
    console = screen.console()
    grid = Table.grid(padding=(0, 2))
    for style in ("", "bold", ""):
        grid.add_column(style=style, overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.mark]
        text = Text(finding.text)
        if finding.help:
            text.append(f"\nwhat would help: {finding.help}", style="cyan")
        grid.add_row(Text(mark, style=style), finding.name, text)
    console.print(grid)
    legend = "  ".join(f"[{style}]{mark}[/] {m.value}" for m, (mark, style) in _MARKS.items())
    console.print(f"\n{legend}")
    if wrong:
        console.print(f"[bold red]{wrong} of {len(findings)} checks found a fault.[/]")
        return
    fine = {f.name.split()[0] for f in findings if f.mark is Mark.OK}
    *most, last = ["emulated here", *(text for name, text in _WORKS.items() if name in fine)]
    console.print(f"Kernels can be {', '.join(most)}{' and ' if most else ''}{last}.")


def examine() -> Findings:
    """What every check finds; a check that raises an exception is a finding, too."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:
            name = check.__name__.replace("_", " ")
            yield Finding(name, Mark.WRONG, f"{type(error).__name__}: {error}")


def _attempt(name: str, attempt: Callable[[], str], help: str = "") -> Finding:
    """The text that `attempt` returns, or what is wrong if it raises; `help` is for errors without."""
    try:
        return Finding(name, Mark.OK, attempt())
    except KernelError as error:
        return Finding(name, Mark.WRONG, error.message, error.help or help)


# -- Python, packages and the emulator ---------------------------------------------------------


def python() -> Findings:
    """The interpreter and the package itself."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    found = Finding("Python", Mark.OK, text)
    if sys.version_info < PYTHON:
        help = f"install Python {'.'.join(map(str, PYTHON))} or newer"
        found = replace(found, mark=Mark.WRONG, help=help)
    yield found
    yield Finding("pykittens", Mark.OK, f"{pk.__version__} in {Path(pk.__file__).parent}")


def packages() -> Findings:
    """The packages that everything needs."""
    for name, least in PACKAGES.items():
        yield _package(name, _installed(name), least, f"pip install '{name}>={least}'")


def compiler_packages() -> Findings:
    """The packages that compiling needs; a toolkit of the system serves as well as the wheels."""
    for name, major in COMPILER_PACKAGES.items():
        found = _installed(name)
        if found is None and nvrtc.available() is None:
            yield Finding(name, Mark.OPTIONAL, "no wheel; the toolkit of this machine serves")
        elif found is None and not HAS_COMPILER:
            yield Finding(name, Mark.OPTIONAL, f"there is none for {platform.system()}")
        else:
            install = f"pip install '{name}>={major},<{int(major) + 1}'"
            if found is not None and _numbers(found)[0] > int(major):
                yield Finding(name, Mark.WRONG, f"{found} is newer than {major}.x", install)
            else:
                yield _package(name, found, major, install)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, found: str | None, least: str, install: str) -> Finding:
    if found is None:
        return Finding(name, Mark.WRONG, "not installed", install)
    if _numbers(found) < _numbers(least):
        return Finding(name, Mark.WRONG, f"{found} is older than {least}", install)
    return Finding(name, Mark.OK, found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


@pk.kernel
def centred(x: Any, y: Any) -> None:
    """y = x minus the largest of its row, 64 rows and columns a block."""
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    tile = pk.load(x[row, col], rows=64, cols=64, fill=-pk.inf)
    pk.store(y[row, col], tile - pk.row_max(tile))


def _arrays() -> tuple[Array, Array]:
    """An input of one tile's columns, always the same, and an output of NaN."""
    x = np.random.default_rng(0).standard_normal((100, 50)).astype(np.float32)
    return x, np.full_like(x, np.nan)


def _run(where: str, to: Callable[[Array], Any], back: Callable[[Any], Array]) -> str:
    """Run the kernel on `to` of the arrays; its result is exact, as it is one subtraction in f32."""
    x, y = _arrays()
    result = to(y)
    centred(to(x), result)
    if not np.array_equal(back(result), x - x.max(axis=1, keepdims=True)):
        raise KernelError(f"a kernel ran{where}, and its result is wrong")
    return f"a kernel ran right{where}"


def _milliseconds(start: float) -> str:
    return f"{(time.perf_counter() - start) * 1e3:.0f} ms"


def emulator() -> Findings:
    """A kernel run on NumPy and compared with NumPy."""
    start = time.perf_counter()
    yield _attempt(
        "emulator", lambda: f"{_run('', np.asarray, np.asarray)}, {_milliseconds(start)}"
    )


# -- the compiler ------------------------------------------------------------------------------


def compiler() -> Findings:
    """NVRTC, its headers, and a kernel compiled for each target."""
    missing = Mark.WRONG if HAS_COMPILER else Mark.OPTIONAL
    install = f"pip install {' '.join(COMPILER_PACKAGES)}"
    found = _attempt("NVRTC", lambda: ".".join(map(str, nvrtc.version())), install)
    if found.mark is not Mark.OK:
        yield replace(found, mark=missing, help=found.help if HAS_COMPILER else "")
        return
    yield found
    if (folder := toolkit.header_folder()) is None:
        text, install = f"{toolkit.HEADERS[0]} was not found", "pip install nvidia-cuda-runtime"
        yield Finding("CUDA headers", missing, text, install)
        return
    yield Finding("CUDA headers", Mark.OK, str(folder))
    for arch in TARGETS:
        yield _attempt(f"compile {arch}", functools.partial(_compile, arch))


def _compile(arch: str) -> str:
    """What compiling a kernel without the cache shows."""
    start = time.perf_counter()
    source = centred.emitted(*_arrays(), arch=arch)
    binary = nvrtc.compile(source.text, arch, source.name)
    registers = cubin.resources(binary.cubin).registers
    return f"a kernel in {_milliseconds(start)}, {registers} registers a thread"


def disassembler() -> Findings:
    """The program that shows machine code and the registers of each role."""
    if (found := cubin.disassembler()) is not None:
        yield Finding("nvdisasm", Mark.OK, found)
        return
    text = "none: no machine code in `pykittens show sass`, no registers of single roles"
    install = "pip install nvidia-cuda-nvdisasm" if HAS_COMPILER else ""
    yield Finding("nvdisasm", Mark.OPTIONAL, text, install)


# -- the GPU -----------------------------------------------------------------------------------


def gpu() -> Findings:
    """The driver and every GPU it sees."""
    found = _driver()
    yield found
    if found.mark is not Mark.OK:
        return
    count = driver.device_count()
    if count == 0:
        yield Finding("GPU", Mark.OPTIONAL, "none: kernels run in the emulator")
    for ordinal in range(count):
        yield _device(ordinal)


def _driver() -> Finding:
    name = "CUDA driver"
    try:
        version = driver.version()
    except KernelError as error:
        if "NO_DEVICE" in error.message:
            return Finding(name, Mark.OPTIONAL, "it sees no GPU")
        if "not found" in error.message and not _DEVICE_FILE.exists():
            return Finding(name, Mark.OPTIONAL, "none: kernels run in the emulator")
        help = "install or update NVIDIA's driver; in a container, let it see the host's"
        return Finding(name, Mark.WRONG, error.message, help)
    text = f"for CUDA {version[0]}.{version[1]} and older"
    with contextlib.suppress(KernelError):  # another check reports a missing compiler
        if (needed := nvrtc.version()[0]) > version[0]:
            text += f"; it does not load what NVRTC {needed} compiles"
            return Finding(name, Mark.WRONG, text, f"update the driver to one for CUDA {needed}")
    return Finding(name, Mark.OK, text)


def _device(ordinal: int) -> Finding:
    device = driver.device(ordinal)
    memory = driver.memory_bytes(ordinal) / 2**30
    text = f"{device.name}, {device.arch}, {memory:.0f} GiB"
    try:
        target = target_for(device.arch, settings.target())
    except KernelError as error:
        return Finding(f"GPU {ordinal}", Mark.OPTIONAL, f"{text}: {error.message}")
    # A target made for this card shares the lowerings of the one it comes from.
    served = next(n for n, t in TARGETS.items() if t.lowerings is target.lowerings)
    return Finding(f"GPU {ordinal}", Mark.OK, f"{text}, served by the target {served}")


def torch() -> Findings:
    """PyTorch, which holds the arrays on a GPU."""
    has_gpu = driver.available() is None
    try:
        module: Any = importlib.import_module("torch")
    except ImportError as error:
        mark, text = Mark.WRONG, str(error)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            mark, text = Mark.OPTIONAL, "not installed; on a GPU its tensors are the arguments"
        yield Finding("PyTorch", mark, text, "pip install torch" if has_gpu else "")
        return
    version = str(module.__version__)
    if module.cuda.is_available():
        yield Finding("PyTorch", Mark.OK, f"{version} with CUDA {module.version.cuda}")
    elif has_gpu:
        help = "pip install --force-reinstall torch, from an index with CUDA: https://pytorch.org"
        yield Finding("PyTorch", Mark.WRONG, f"{version} cannot use the GPU", help)
    else:
        yield Finding("PyTorch", Mark.OK, f"{version}, on the CPU")


def launch() -> Findings:
    """A kernel run on the first GPU, if there is one and PyTorch can use it."""
    module: Any = sys.modules.get("torch")
    if driver.available() or nvrtc.available() or module is None or not module.cuda.is_available():
        return

    def run() -> str:
        return _run(" on GPU 0", lambda a: module.from_numpy(a).cuda(), lambda t: t.cpu().numpy())

    yield _attempt("launch", run)


# -- settings ----------------------------------------------------------------------------------


def cache() -> Findings:
    """The folder of compiled kernels."""
    if settings.NO_CACHE.read():
        yield Finding("cache", Mark.OPTIONAL, f"off: {settings.NO_CACHE.variable} is set")
        return
    folder = settings.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        sizes = [f.stat().st_size for f in folder.glob("*.kernel")]
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}; kernels are compiled anew each time"
        help = f"export {settings.CACHE_DIR.variable}=FOLDER with one of your own"
        yield Finding("cache", Mark.WRONG, text, help)
        return
    count = f"{len(sizes)} kernel{'s' * (len(sizes) != 1)}"
    yield Finding("cache", Mark.OK, f"{folder}, {count}, {sum(sizes) / 2**20:.1f} MiB")


def variables() -> Findings:
    """The environment variables the package reads, and those it does not know."""
    known = {s.variable for s in settings.SETTINGS}
    given = {n: v for n, v in os.environ.items() if n.startswith("PYKITTENS_")}
    wrong = False
    for setting, read in (
        (settings.SEED, settings.seed),
        (settings.DEBUG_SECONDS, settings.debug_seconds),
    ):
        try:
            read()
        except KernelError as error:
            wrong = True
            yield Finding("variables", Mark.WRONG, error.message, f"unset {setting.variable}")
    if not wrong:
        shown = ", ".join(f"{n}={v}" for n, v in sorted(given.items()) if n in known)
        yield Finding("variables", Mark.OK, shown or "none set")
    for name in sorted(set(given) - known):
        text = f"{name} is set and read by nothing; there are {', '.join(sorted(known))}"
        yield Finding("variables", Mark.OPTIONAL, text, f"unset {name}")


# In the order of the report. `launch` follows `torch`, which imports PyTorch.
CHECKS: tuple[Callable[[], Findings], ...] = (
    *(python, packages, emulator, compiler_packages, compiler, disassembler),
    *(gpu, torch, launch, cache, variables),
)
