"""Kernels that go wrong on a GPU, and reports as a GPU would write them."""

from __future__ import annotations

import struct
from typing import Any

import pykittens as pk
from pykittens import bf16, f32
from pykittens.errors import KernelError
from pykittens.runtime.arguments import check
from pykittens.runtime.report import BYTES, decoded, error_of
from pykittens.targets.emit import emit
from pykittens.targets.source import Source


@pk.kernel
def never_full(A, C):
    """The consumers drain more stages than the producer fills."""
    inputs = pk.pipeline(2, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 64, 64))
    pk.grid(2)
    with pk.producer():
        for k in pk.range(3):
            with inputs.fill() as s:
                pk.load_async(s.a, A[0, k])
                pk.load_async(s.b, A[0, k])
    with pk.consumers(2) as w:
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(4):
            with inputs.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
        pk.store(C[w], acc)


@pk.kernel
def wrong_phase(A, y):
    """Waits for the phase after the one that is complete."""
    tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1, count=2)
    pk.grid(1)
    full[1].expect(tile)
    pk.load_async(tile, A[0], signal=full[1])
    for phase in pk.range(2):
        full[1].wait(phase)
    pk.store(y[0], pk.load(tile).to(f32))


@pk.kernel
def turns_kept(order):
    """Group 1 takes one more turn than group 0, which passes none to it."""
    pk.grid(1)
    with pk.warps(2) as w:
        for i in pk.range(1 + w):
            with pk.in_turn():
                pk.store(order[w], i)


@pk.kernel
def never_signalled(flags):
    """Every block waits for a flag that is one too low."""
    pk.grid(3)
    pk.signal(flags[1, 2], 1, op="add")
    pk.wait(flags[1, 2], 4)


@pk.kernel
def flag_outside(flags, i):
    pk.grid(1)
    pk.signal(flags[0, i], 1)


@pk.kernel
def leading_index(x, y):
    """Reads the matrix past the last one, by the lanes."""
    (block,) = pk.grid(x.shape[0])
    pk.store(y.at(block)[0, 0], pk.load(x.at(block + 1)[0, 0], rows=64, cols=64))


@pk.kernel
def leading_index_of_a_copy(x, y):
    """Reads the matrix before the first one, by the copy engine."""
    ring = pk.pipeline(1, pk.st(f32, 64, 32))
    (block,) = pk.grid(x.shape[0])
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[block - 1, 0, 0])
    with pk.warpgroups(1), ring.drain() as t:
        pk.store(y[block, 0, 0], pk.load(t))


@pk.kernel
def leading_index_of_a_scalar(lengths, y):
    """Reads one number of a matrix that is not there."""
    pk.grid(1)
    pk.store(y[0, 0], pk.zeros(pk.int32, 64, 64) + pk.load(lengths[2, 0, 0]))


@pk.kernel
def leading_index_of_a_window(x, y, last):
    """Reads the matrix past a window."""
    pk.grid(1)
    part = x.window(0, 1, last)
    pk.store(y[0, 0], pk.load(part[last - 1, 0, 0], rows=64, cols=64))


@pk.kernel
def index_of_a_view(x, y):
    """Reads the head past the last one, and stores a column."""
    (h,) = pk.grid(x.shape[1])
    t = pk.load(x[:, h + 1][0, 0], rows=64, cols=32)
    pk.store(y[:, h][0], pk.row_sum(t))


@pk.kernel
def flag_outside_a_column(flags, i):
    pk.grid(1)
    pk.signal(flags[:, 1][i], 1)


@pk.kernel
def far_coordinate(x, y, row):
    pk.grid(1)
    pk.store(y[0, 0], pk.load(x[row, 0], rows=64, cols=64))


@pk.kernel
def view_outside(y, i):
    tile = pk.shared(pk.st(f32, 128, 64))
    pk.grid(1)
    pk.store(tile.tiles(64, 64)[i, 0], pk.zeros(f32, 64, 64))
    pk.sync()
    pk.store(y[0], pk.load(tile.tiles(64, 64)[0, 0]))


@pk.kernel
def row_outside(y, i):
    tile = pk.shared(pk.st(f32, 16, 64))
    pk.grid(1)
    pk.store(tile.row(i), pk.zeros(f32, 64))
    pk.sync()
    pk.store(y[0], pk.load(tile.row(0)))


@pk.kernel
def semaphore_outside(y, i):
    full = pk.semaphore(1, count=3)
    pk.grid(1)
    full[i].arrive()


@pk.kernel
def untrue_scalar(y, n):
    (block,) = pk.grid(4)
    pk.assert_(block + n < 5, "{n} is too large")
    pk.store(y[block], pk.zeros(f32, 8))


@pk.kernel
def untrue_tile(x, y):
    pk.grid(1)
    with pk.warpgroups(2) as w:
        t = pk.load(x[w, 0], rows=64, cols=64)
        pk.assert_(t < 3, "less than three")
        pk.store(y[w, 0], t)


def program(kernel: Any, *args: Any, **constants: Any) -> Source:
    """The program for debugging of a kernel."""
    made = kernel.record(check(kernel.parameters, args, constants))
    return emit(made, "sm_90a", debug=True)


def report(
    site: int, block: int, thread: int, numbers: tuple[int, ...], standing: list[tuple[int, ...]]
) -> bytes:
    """A report as the device writes it; `standing` has a site and its numbers for each group."""
    data = struct.pack("<4I7q", 1, site, block, thread, *numbers, *[0] * (7 - len(numbers)))
    for at in standing:
        data += struct.pack("<8i", *at, *[0] * (8 - len(at)))
    return data.ljust(BYTES, b"\0")


def site_of(source: Source, text: str) -> int:
    """The number of the one site whose text has this in it."""
    assert source.sites is not None
    (found,) = (i for i, site in enumerate(source.sites) if text in site.text)
    return found


def fault(
    source: Source,
    text: str,
    *numbers: int,
    block: int = 0,
    thread: int = 0,
    standing: tuple[tuple[int, ...], ...] = (),
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> KernelError:
    """The error for a stop at the site with this text."""
    stop = decoded(report(site_of(source, text), block, thread, numbers, [*standing]))
    assert stop is not None
    return error_of(stop, source, shapes or {})
