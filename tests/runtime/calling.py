"""Kernels to call with tensors that say they were on a GPU, and the launches that reach its driver."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime.kernel import KernelFunction
from tests.runtime.c_programs import Log, parameter_sizes

WIDTH = 64
FACTOR = 2.5


@pk.kernel
def scaled(x, y, factor):
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


@pk.kernel
def filled(y, value):
    """y = value, of any kind."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.zeros(pk.f32, 64, 64) + value.to(pk.f32))


@pk.kernel(inplace=True)
def doubled(x, y):
    """y = 2 x, which may be x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * 2.0)


@pk.kernel
def some_rows(x, y, count):
    """The first rows of x, a block each."""
    pk.require(count <= x.rows, "x has not so many rows")
    (row,) = pk.grid(count)
    pk.store(y[row], pk.load(x[row], cols=64))


@pk.kernel
def some_tiles(x, y, count, per_block):
    """Copies a row per block; the grid is a quotient of numbers."""
    pk.require(count % per_block == 0, "not whole blocks")
    (row,) = pk.grid(count // per_block)
    pk.store(y[row], pk.load(x[row], cols=64))


@pk.kernel
def so_many_columns(x, y, count):
    """The first columns of x; how many is part of the program."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, pk.static(count)))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=pk.static(count)))


@pk.kernel
def as_wide_as_outside(x, y):
    """As many columns of x as a number outside the kernel says."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, WIDTH))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=WIDTH))


@pk.kernel
def multiplied(x, y):
    """y = x * FACTOR."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * FACTOR)


def fresh(kernel: KernelFunction) -> KernelFunction:
    """The kernel as it was before its first call."""
    return KernelFunction(kernel.function, kernel.options)


def launches(log: Log, call: Callable[[], object]) -> list[str]:
    """The launches of a call that reach the driver, with their parameters."""
    log.take()
    call()
    return log.take("launch")


def matrix(rows: int = 100, cols: int = 72, dtype: Any = None) -> Any:
    """A tensor of zeros."""
    torch = pytest.importorskip("torch")
    return torch.zeros(rows, cols, dtype=dtype)


def shifted(like: Any) -> Any:
    """A tensor of the same form that does not start at a multiple of 16 bytes."""
    torch = pytest.importorskip("torch")
    return torch.zeros(like.numel() + 1, dtype=like.dtype)[1:].view(like.shape)


def counts_of_threads(
    launched: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[int, int], object],
    times: int,
) -> Counter[tuple[str, str]]:
    """The launches by grid and stream, if threads 1 to 3 each call `call(number, i)` on stream `number`."""
    streams, faults = threading.local(), []
    current = "_cuda_getCurrentRawStream"
    monkeypatch.setattr(sys.modules["torch"]._C, current, lambda i: streams.own)

    def work(number: int) -> None:
        streams.own = number
        try:
            for i in range(times):
                call(number, i)
        except BaseException as fault:
            faults.append(fault)

    def run() -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    lines = launched(run)
    assert faults == []
    return Counter(
        (line.split("grid ")[1].split()[0], line.split("stream 0x")[1][0]) for line in lines
    )


def show_parameters(
    kernel: KernelFunction, args: Any, monkeypatch: pytest.MonkeyPatch, **constants: Any
) -> None:
    """Let the driver write down the parameters of launches with arguments like these."""
    arrays = [np.zeros(tuple(a.shape), np.float32) if hasattr(a, "shape") else a for a in args]
    parameter_sizes(kernel.compile(*arrays, **constants), monkeypatch)
