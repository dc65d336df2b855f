"""The stand-in for libcuda of `fake_cuda.c`: built, put in place of the driver, launched on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pykittens.runtime import driver
from pykittens.runtime.arguments import check, known_values
from pykittens.runtime.compiled import Compiled, compile_kernel
from pykittens.runtime.launch import Loaded, launch_of

FAKE = Path(__file__).with_name("fake_cuda.c")
ARCH = "sm_90a"


needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


def build(*arguments: str | Path, compiler: str = "gcc") -> None:
    """Run a C compiler; what it says is the test's failure."""
    done = subprocess.run([compiler, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def compiled(kernel: Any, *args: Any, **constants: Any) -> Compiled:
    """A kernel compiled for arguments like these."""
    recorded = kernel.record(check(kernel.parameters, args, constants))
    return compile_kernel(recorded, ARCH)


@contextmanager
def fake_driver(monkeypatch: pytest.MonkeyPatch, fake: Path) -> Iterator[None]:
    """The package itself on the stand-in for libcuda."""
    monkeypatch.setattr(driver, "_LIBRARY", str(fake))
    driver.library.cache_clear()
    driver.device.cache_clear()
    try:
        yield
    finally:
        driver.library.cache_clear()
        driver.device.cache_clear()


def python_launch(
    kernel: Any, made: Compiled, *args: Any, stream: int = 0, **constants: Any
) -> None:
    """Launch as a call from Python does: check, prepare, launch."""
    arguments = check(kernel.parameters, args, constants)
    loaded = Loaded(made.kernel, made, 0)
    launch = launch_of(loaded, arguments, known_values(made.kernel, arguments))
    launch.launch((*arguments.values, stream))


def parameter_sizes(made: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the stand-in how many bytes each parameter of a launch has."""
    sizes = [128] * len(made.source.maps)
    for slot in made.source.slots:
        if slot.kind == "scalar":
            assert slot.dtype is not None
            sizes.append({"float": 4, "int": 4, "bool": 1}[slot.dtype.kind])
        else:
            sizes.append({"pointer": 8, "stride": 8, "extent": 4}[slot.kind])
    monkeypatch.setenv("FAKE_CUDA_SIZES", ",".join(map(str, sizes)))


class Log:
    """What the stand-in was asked to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, word: str = "") -> list[str]:
        """The lines that begin with a word, since the last time."""
        text = self.path.read_text() if self.path.exists() else ""
        self.path.write_text("")
        return [line for line in text.splitlines() if line.startswith(word)]


def fake_library(folder: Path) -> Path:
    """The stand-in, built."""
    library = folder / "libcuda.so.1"
    build("-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, FAKE)
    return library
