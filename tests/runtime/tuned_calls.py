"""Kernels that are tuned, on tensors that say they were on a GPU.

Launches run in the emulator and take the milliseconds of a table.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.runtime import tuning_records
from pykittens.runtime.arguments import scalars
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch

CANDIDATES = [{"rows": 64, "cols": 64}, {"rows": 128, "cols": 64}, {"rows": 64, "cols": 32}]
FASTEST = CANDIDATES[1]


@pk.kernel
def doubled(x, y, *, rows, cols):
    """y = 2 x."""
    row, col = pk.grid(pk.cdiv(y.rows, rows), pk.cdiv(y.cols, cols))
    pk.store(y[row, col], pk.load(x[row, col], rows=rows, cols=cols) * 2.0)


@pk.kernel
def multiplied(x, y, *, factor, cols=64):
    """y = factor x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols) * factor)


@pk.kernel
def added(x, y, total, *, cols):
    """y += x, and total counts the blocks that have run."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
    before = pk.atomic_add(total[0], 1)
    pk.require(y.rows > 0, "y is empty")
    if before < 100:  # a second launch on the same counter does nothing
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols), op="add")


@pk.kernel(inplace=True)
def raised(x, y, *, cols):
    """y = x + 1, which may be x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols) + 1.0)


@pk.kernel
def scaled(x, y, factor, *, cols):
    """y = factor x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols) * factor)


@pk.kernel
def as_wide(x, y, count, *, rows):
    """y = x, in tiles of so many columns."""
    n = pk.static(count)
    row, col = pk.grid(pk.cdiv(y.rows, rows), pk.cdiv(y.cols, n))
    pk.store(y[row, col], pk.load(x[row, col], rows=rows, cols=n))


COLS = [{"cols": 64}, {"cols": 32}]


def twice(x: Any, y: Any) -> Any:
    return 2 * x


def tuned(kernel: KernelFunction = doubled, candidates: Any = CANDIDATES, **options: Any) -> Any:
    """The kernel as it is before its first call in a process."""
    return pk.autotune(candidates, **options)(kernel)


class TunedGpu:
    """A GPU whose launches run in the emulator. launched: how often each candidate was launched, by its constants.

    milliseconds: the time of a launch by its constants.
    """

    def __init__(self, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched: Counter[tuple[Any, ...]] = Counter()
        self.milliseconds = {(64, 64): 2.0, (128, 64): 1.0, (64, 32): 3.0}
        self._pass = ctypes.CDLL(str(fake)).fake_pass
        self._pass.argtypes, self._pass.restype = (ctypes.c_double,), None
        launch_once = Launch._launch_once
        gpu = self

        def emulated(launch: Launch, values: tuple[Any, ...]) -> None:
            launch_once(launch, values)
            gpu.run(launch, values)

        monkeypatch.setattr(Launch, "_launch_once", emulated)
        monkeypatch.setattr(Launch, "MOST_KEPT", 0)  # each launch is the first of its values

    def run(self, launch: Launch, values: tuple[Any, ...]) -> None:
        """Run a launch in the emulator, on the memory at the addresses of its values."""
        own = launch.arguments.at(values[:-1])
        constants = tuple(own.constants.values())
        self.launched[constants] += 1
        self._pass(self.milliseconds.get(constants, 5.0))
        arrays = {n: replace(a, device="cpu").numpy() for n, a in own.tensors.items()}
        machine.run(launch.loaded.kernel, arrays, scalars(own), 0)
        launch._kept.clear()


def matrices(rows: int = 70, cols: int = 100, dtype: Any = None) -> tuple[Any, Any]:
    """Random numbers, and zeros."""
    torch = pytest.importorskip("torch")
    x = torch.randn(rows, cols).to(dtype or torch.float32)
    return x, torch.zeros_like(x)


def launches(gpu: TunedGpu, call: Any) -> dict[Any, int]:
    """The launches of a call by their constants."""
    gpu.launched.clear()
    call()
    return dict(gpu.launched)


def forget() -> None:
    """Forget all choices."""
    tuning_records._found.clear()
    for file in tuning_records.folder().glob("*/*"):
        file.unlink()
