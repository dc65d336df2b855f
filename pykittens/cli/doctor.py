"""`pykittens doctor`: reports what is installed here, what is missing, and what would help."""

from __future__ import annotations

import argparse
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
from dataclasses import dataclass
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
from pykittens.errors import BackendError, KernelError
from pykittens.runtime import cache_folder, cubin, driver, least, nvrtc, releases
from pykittens.targets.architectures import TARGETS, target_for

# The compiler has wheels only for these systems.
HAS_COMPILER = sys.platform in ("linux", "win32")
# Linux has this file if its kernel has NVIDIA's driver.
_DEVICE_FILE = Path("/dev/nvidiactl")
# The last line of the report has each text if a check of its name is ok.
_WORKS = {"compile": "compiled", "launch": "run on a GPU"}


class Status(Enum):
    """The result of a check."""

    OK = "ok"
    OPTIONAL = "missing, optional"
    WRONG = "wrong"


OK, OPTIONAL, WRONG = Status


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report."""

    name: str
    status: Status
    text: str
    help: str = ""


Diagnoses = Iterator[Diagnosis]
Array = np.ndarray[Any, Any]
_SYMBOLS = {OK: ("✓", "green"), OPTIONAL: ("–", "yellow"), WRONG: ("✗", "bold red")}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="check that this machine has what kernels need, and suggest fixes"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if something that should work here does not; a missing GPU is no fault."""
    findings = list(examine())
    wrong = sum(f.status is WRONG for f in findings)
    if arguments.json:
        found = [
            {"name": f.name, "mark": f.status.value, "text": f.text, "help": f.help}
            for f in findings
        ]
        print(json.dumps({"version": pk.__version__, "ok": not wrong, "findings": found}, indent=2))
    else:
        _print(findings, wrong)
    return 1 if wrong else 0


def _print(findings: list[Diagnosis], wrong: int) -> None:
    console = screen.console()
    grid = Table.grid(padding=(0, 2))
    for style in ("", "bold", ""):
        grid.add_column(style=style, overflow="fold")
    for finding in findings:
        symbol, style = _SYMBOLS[finding.status]
        text = Text(finding.text)
        if finding.help:
            text.append(f"\nwhat would help: {finding.help}", style="cyan")
        grid.add_row(Text(symbol, style=style), finding.name, text)
    console.print(grid)
    legend = (f"[{style}]{symbol}[/] {s.value}" for s, (symbol, style) in _SYMBOLS.items())
    console.print(f"\n{'  '.join(legend)}")
    if wrong:
        console.print(f"[bold red]{wrong} of {len(findings)} checks found a fault.[/]")
        return
    works = {f.name.split()[0] for f in findings if f.status is OK}
    *most, last = ["emulated here", *(text for name, text in _WORKS.items() if name in works)]
    console.print(f"Kernels can be {', '.join(most)}{' and ' if most else ''}{last}.")


def examine() -> Diagnoses:
    """The findings of all checks; a check that raises an exception is a finding, too."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:
            name = check.__name__.replace("_", " ")
            yield Diagnosis(name, WRONG, f"{type(error).__name__}: {error}")


def _attempt(name: str, attempt: Callable[[], str], help: str = "") -> Diagnosis:
    """The text that `attempt` returns, or its error; `help` is for errors without a help text."""
    try:
        return Diagnosis(name, OK, attempt())
    except KernelError as error:
        return Diagnosis(name, WRONG, error.message, error.help or help)


# -- Python, packages and the emulator ---------------------------------------------------------


def python() -> Diagnoses:
    """The interpreter and the package itself."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    help = f"install Python {least.shown(least.PYTHON)} or newer"
    yield _at_least("Python", text, sys.version_info, least.PYTHON, help)
    yield Diagnosis("pykittens", OK, f"{pk.__version__} in {Path(pk.__file__).parent}")


def packages() -> Diagnoses:
    """The required packages."""
    for name, version in least.PACKAGES.items():
        yield _package(name, version)


def _package(name: str, oldest: tuple[int, ...]) -> Diagnosis:
    """A package, which must have at least the version `oldest`."""
    install = f"pip install '{name}>={least.shown(oldest)}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Diagnosis(name, WRONG, "not installed", install)
    return _at_least(name, version, _numbers(version), oldest, install)


def _at_least(
    name: str, text: str, version: tuple[Any, ...], oldest: tuple[int, ...], help: str
) -> Diagnosis:
    """Something whose version must be at least `oldest`."""
    if version < oldest:
        return Diagnosis(name, WRONG, f"{text} is older than {least.shown(oldest)}", help)
    return Diagnosis(name, OK, f"{text} ({least.shown(oldest)} or newer is needed)")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


@pk.kernel
def centred(x: Any, y: Any) -> None:
    """y = x minus the maximum of its row, 64 rows and columns per block."""
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    tile = pk.load(x[row, col], rows=64, cols=64, fill=-pk.inf)
    pk.store(y[row, col], tile - pk.row_max(tile))


def _arrays() -> tuple[Array, Array]:
    """A fixed input that one tile spans across, and an output of NaN."""
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


def emulator() -> Diagnoses:
    """A kernel run on NumPy and compared with NumPy."""
    start = time.perf_counter()
    run = functools.partial(_run, "", np.asarray, np.asarray)
    yield _attempt("emulator", lambda: f"{run()}, {_milliseconds(start)}")


# -- the compiler ------------------------------------------------------------------------------


def compiler() -> Diagnoses:
    """The NVRTC libraries, of which one is chosen, and a kernel compiled for each target."""
    try:
        chosen = releases.chosen()
    except BackendError as error:
        status, help = (WRONG, error.help or "") if HAS_COMPILER else (OPTIONAL, "")
        yield Diagnosis("NVRTC", status, error.message, help)
        return
    others = [_not_chosen(other, chosen) for other in releases.releases() if other is not chosen]
    text = f"{least.shown(chosen.version)} ({least.shown(least.NVRTC)} or newer is needed), {chosen.path}"
    reason = releases.refusal(chosen)
    lines = "\nnot used: ".join((text if reason is None else f"{text}: {reason}", *others))
    if reason is None:
        yield Diagnosis("NVRTC", OK, lines)
    else:
        yield Diagnosis("NVRTC", WRONG, lines, releases.remedy())
    for arch in TARGETS:
        yield _attempt(f"compile {arch}", functools.partial(_compile, arch))


def _not_chosen(other: releases.Release, chosen: releases.Release) -> str:
    """A library and why it is not the one that compiles."""
    if other.fault:
        return f"{other.path} {other.fault}"
    reason = releases.refusal(other)
    if reason is None:
        same = other.version == chosen.version
        reason = "it was found later" if same else f"{least.shown(chosen.version)} is newer"
    return f"{least.shown(other.version)}, {other.path}: {reason}"


def _compile(arch: str) -> str:
    """The time that a kernel takes to compile without the cache, and its registers."""
    start = time.perf_counter()
    source = centred.emitted(*_arrays(), arch=arch)
    binary = nvrtc.compile(source.text, arch, source.name)
    registers = cubin.resources(binary.cubin).registers
    return f"a kernel in {_milliseconds(start)}, {registers} registers a thread"


def disassembler() -> Diagnoses:
    """The program that prints machine code, from which the registers of each role are read."""
    if (found := cubin.disassembler()) is not None:
        yield Diagnosis("nvdisasm", OK, f"{cubin.release_of(found)}, {found}")
        return
    text = "none: no machine code in `pykittens show sass`, no registers of single roles"
    install = "pip install nvidia-cuda-nvdisasm" if HAS_COMPILER else ""
    yield Diagnosis("nvdisasm", OPTIONAL, text, install)


# -- the GPU -----------------------------------------------------------------------------------


def gpu() -> Diagnoses:
    """The driver and every GPU it sees."""
    found = _driver()
    yield found
    if found.status is OK:
        if not (count := driver.device_count()):
            yield Diagnosis("GPU", OPTIONAL, "none: kernels run in the emulator")
        yield from map(_device, range(count))


def _driver() -> Diagnosis:
    name = "CUDA driver"
    try:
        driver.library()
        version = driver.version()
    except KernelError as error:
        if "NO_DEVICE" in error.message:
            return Diagnosis(name, OPTIONAL, "it sees no GPU")
        if "not found" in error.message and not _DEVICE_FILE.exists():
            return Diagnosis(name, OPTIONAL, "none: kernels run in the emulator")
        help = "install or update NVIDIA's driver; in a container, make the host's driver visible"
        return Diagnosis(name, WRONG, error.message, help)
    text = ", ".join(filter(None, (driver.release(), f"for CUDA {least.shown(version)}")))
    help = f"update the driver to {least.DRIVERS[least.CUDA[0]]} or newer"
    return _at_least(name, text, version, least.CUDA, help)


def _device(ordinal: int) -> Diagnosis:
    device = driver.device(ordinal)
    memory = driver.memory_bytes(ordinal) / 2**30
    text = f"{device.name}, {device.arch}, {memory:.0f} GiB"
    try:
        target = target_for(device.arch, settings.target())
    except KernelError as error:
        return Diagnosis(f"GPU {ordinal}", OPTIONAL, f"{text}: {error.message}")
    # The target made for this card shares its lowerings with one in TARGETS.
    served = next(n for n, t in TARGETS.items() if t.lowerings is target.lowerings)
    return Diagnosis(f"GPU {ordinal}", OK, f"{text}, served by the target {served}")


def torch() -> Diagnoses:
    """PyTorch, which holds the arrays on a GPU."""
    has_gpu = driver.available() is None
    try:
        module: Any = importlib.import_module("torch")
    except ImportError as error:
        mark, text = WRONG, str(error)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            mark, text = OPTIONAL, "not installed; on a GPU its tensors are the arguments"
        yield Diagnosis("PyTorch", mark, text, "pip install torch" if has_gpu else "")
        return
    version, built = str(module.__version__), module.version.cuda
    if module.cuda.is_available():
        text = f"{version} with CUDA {built}"
    elif has_gpu:
        cuda = least.shown(driver.version())
        text = f"{version}, built for {'CUDA ' + built if built else 'the CPU'}, cannot use the GPU"
        help = f"install a build for CUDA {cuda} or older: https://pytorch.org"
        yield Diagnosis("PyTorch", WRONG, text, help)
        return
    else:
        text = f"{version}, on the CPU"
    help = f"pip install 'torch>={least.shown(least.TORCH)}'"
    yield _at_least("PyTorch", text, _numbers(version), least.TORCH, help)


def launch() -> Diagnoses:
    """A kernel run on the first GPU, if there is a GPU that PyTorch can use."""
    module: Any = sys.modules.get("torch")
    if driver.available() or nvrtc.available() or module is None or not module.cuda.is_available():
        return

    to, back = (lambda a: module.from_numpy(a).cuda()), (lambda t: t.cpu().numpy())
    yield _attempt("launch", functools.partial(_run, " on GPU 0", to, back))


# -- settings ----------------------------------------------------------------------------------


def cache() -> Diagnoses:
    """The folder of compiled kernels."""
    if settings.NO_CACHE.read():
        yield Diagnosis("cache", OPTIONAL, f"off: {settings.NO_CACHE.variable} is set")
        return
    help = f"export {settings.CACHE_DIR.variable}=FOLDER, a folder that you can write to"
    try:
        folder = settings.cache_dir()
    except KernelError as error:
        yield Diagnosis("cache", WRONG, error.message, help)
        return
    if (reason := cache_folder.distrust(folder)) is not None:
        text = f"{folder} is not used: it {reason}"
        yield Diagnosis("cache", WRONG, text, f"chmod 700 {folder}, or {help}")
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}; kernels are compiled again each time"
        yield Diagnosis("cache", WRONG, text, help)
        return
    sizes = [entry.bytes for entry in cache_folder.entries()]
    count = f"{len(sizes)} kernel{'s' * (len(sizes) != 1)}"
    yield Diagnosis("cache", OK, f"{folder}, {count}, {sum(sizes) / 2**20:.1f} MiB")


def variables() -> Diagnoses:
    """The environment variables that the package reads, and unknown ones."""
    known = {s.variable for s in settings.SETTINGS}
    given = {n: v for n, v in os.environ.items() if n.startswith("PYKITTENS_")}
    shown: str | None = ", ".join(f"{n}={v}" for n, v in sorted(given.items()) if n in known)
    for setting, read in (
        (settings.SEED, settings.seed),
        (settings.DEBUG_SECONDS, settings.debug_seconds),
        (settings.CACHE_LIMIT, settings.cache_limit),
    ):
        try:
            read()
        except KernelError as error:
            shown = None
            yield Diagnosis("variables", WRONG, error.message, f"unset {setting.variable}")
    if shown is not None:
        yield Diagnosis("variables", OK, shown or "none set")
    for name in sorted(set(given) - known):
        text = f"{name} is set, and nothing reads it; the known ones are {', '.join(sorted(known))}"
        yield Diagnosis("variables", OPTIONAL, text, f"unset {name}")


# In the order of the report. `launch` follows `torch`, which imports PyTorch.
CHECKS: tuple[Callable[[], Diagnoses], ...] = (
    *(python, packages, emulator, compiler, disassembler),
    *(gpu, torch, launch, cache, variables),
)
