"""What `pykittens doctor` looks at, a function a check: each gives what it found and what would help."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pykittens as pk
from pykittens import settings
from pykittens.cli import checks_gpu, trial
from pykittens.cli.findings import Finding, Findings, Mark
from pykittens.errors import KernelError
from pykittens.runtime import cubin, nvrtc
from pykittens.runtime.arguments import check as check_arguments
from pykittens.targets.architectures import TARGETS
from pykittens.targets.emit import emit

# Least versions, as in pyproject.toml.
PYTHON = (3, 11)
PACKAGES = {"numpy": "2", "ml_dtypes": "0.5", "rich": "13"}
COMPILER_PACKAGES = {"cuda-bindings": "13", "nvidia-cuda-nvrtc": "13", "nvidia-cuda-runtime": "13"}
# The compiler has no wheels elsewhere.
HAS_COMPILER = sys.platform in ("linux", "win32")


def python() -> Findings:
    """The interpreter and the package itself."""
    right = sys.version_info >= PYTHON
    yield Finding(
        "Python",
        Mark.OK if right else Mark.WRONG,
        f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "" if right else f"install Python {'.'.join(map(str, PYTHON))} or newer",
    )
    yield Finding("pykittens", Mark.OK, f"{pk.__version__} in {Path(pk.__file__).parent}")


def packages() -> Findings:
    """What the package needs everywhere."""
    for name, least in PACKAGES.items():
        yield _package(name, least, Mark.WRONG)


def compiler_packages() -> Findings:
    """What compiling needs."""
    for name, least in COMPILER_PACKAGES.items():
        yield _package(name, least, Mark.WRONG if HAS_COMPILER else Mark.OPTIONAL)


def _package(name: str, least: str, mark: Mark) -> Finding:
    top = f",<{int(least) + 1}" if name in COMPILER_PACKAGES else ""
    install = f"pip install '{name}>={least}{top}'"
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        # A toolkit of the system serves as well as the wheels; what is compiled below shows it.
        if name.startswith("nvidia-") and nvrtc.available() is None:
            return Finding(name, Mark.OPTIONAL, "no wheel; the toolkit of this machine serves")
        if not HAS_COMPILER and name in COMPILER_PACKAGES:
            return Finding(name, mark, f"there is none for {platform.system()}")
        return Finding(name, mark, "not installed", install)
    if _numbers(found) < _numbers(least):
        return Finding(name, Mark.WRONG, f"{found} is older than {least}", install)
    if top and _numbers(found)[0] > int(least):
        return Finding(name, Mark.WRONG, f"{found} is newer than {least}.x", install)
    return Finding(name, Mark.OK, found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


def compiler() -> Findings:
    """NVRTC, its headers, and a kernel compiled for each target."""
    missing = Mark.WRONG if HAS_COMPILER else Mark.OPTIONAL
    install = "pip install " + " ".join(COMPILER_PACKAGES) if HAS_COMPILER else ""
    try:
        version = nvrtc.version()
    except KernelError as error:
        yield Finding("NVRTC", missing, error.message, install and error.help or install)
        return
    yield Finding("NVRTC", Mark.OK, ".".join(map(str, version)))
    folder = nvrtc.header_folder()
    if folder is None:
        yield Finding(
            "CUDA headers",
            missing,
            f"{nvrtc.HEADERS[0]} was not found",
            "pip install nvidia-cuda-runtime",
        )
        return
    yield Finding("CUDA headers", Mark.OK, str(folder))
    for name in TARGETS:
        yield _compiled(name)


def _compiled(arch: str) -> Finding:
    """A kernel compiled for one target, past the cache."""
    centred = trial.centred
    start = time.perf_counter()
    try:
        kernel = centred.record(check_arguments(centred.parameters, trial.arrays(), {}))
        source = emit(kernel, arch)
        binary = nvrtc.compile(source.text, arch, source.name)
        registers = cubin.resources(binary.cubin).registers
    except KernelError as error:
        return Finding(f"compile {arch}", Mark.WRONG, error.message, error.help or "")
    seconds = time.perf_counter() - start
    return Finding(
        f"compile {arch}",
        Mark.OK,
        f"a kernel in {seconds * 1e3:.0f} ms, {registers} registers a thread",
    )


def disassembler() -> Findings:
    """What shows machine code and the registers of each role."""
    found = cubin.disassembler()
    if found is not None:
        yield Finding("nvdisasm", Mark.OK, found)
        return
    yield Finding(
        "nvdisasm",
        Mark.OPTIONAL,
        "none: no machine code in `pykittens show sass`, no registers of single roles",
        "pip install nvidia-cuda-nvdisasm" if HAS_COMPILER else "",
    )


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
        yield Finding(
            "cache",
            Mark.WRONG,
            f"{folder} cannot be written: {error.strerror}; kernels are compiled anew each time",
            f"export {settings.CACHE_DIR.variable}=FOLDER with one of your own",
        )
        return
    count = f"{len(sizes)} kernel{'s' * (len(sizes) != 1)}"
    yield Finding("cache", Mark.OK, f"{folder}, {count}, {sum(sizes) / 2**20:.1f} MiB")


def variables() -> Findings:
    """The environment variables the package reads, and those it does not know."""
    known = {s.variable for s in settings.SETTINGS}
    given = {n: v for n, v in os.environ.items() if n.startswith("PYKITTENS_")}
    shown = ", ".join(f"{n}={v}" for n, v in sorted(given.items()) if n in known)
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
        yield Finding("variables", Mark.OK, shown or "none set")
    for name in sorted(set(given) - known):
        text = f"{name} is set and read by nothing; there are {', '.join(sorted(known))}"
        yield Finding("variables", Mark.OPTIONAL, text, f"unset {name}")


def emulator() -> Findings:
    """A kernel run on NumPy, held against NumPy."""
    x, y = trial.arrays()
    start = time.perf_counter()
    try:
        trial.centred(x, y)
    except KernelError as error:
        yield Finding("emulator", Mark.WRONG, error.message, error.help or "")
        return
    seconds = time.perf_counter() - start
    if not trial.is_right(x, y):
        yield Finding("emulator", Mark.WRONG, "a kernel ran, and its result is wrong")
        return
    yield Finding("emulator", Mark.OK, f"a kernel ran right, {seconds * 1e3:.0f} ms")


CHECKS: tuple[Callable[[], Findings], ...] = (
    python,
    packages,
    emulator,
    compiler_packages,
    compiler,
    disassembler,
    checks_gpu.gpu,
    checks_gpu.torch,
    checks_gpu.launch,
    cache,
    variables,
)


def examine() -> Findings:
    """What every check finds; one that stumbles is a finding, too."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:
            name = check.__name__.replace("_", " ")
            yield Finding(name, Mark.WRONG, f"{type(error).__name__}: {error}")
