"""Arguments, pipelines and tiles that a kernel has and does not use, as a forgotten operand does."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind, Level
from tests.planted.core import Array, empty, planted, product, whole


def _rows(rng: np.random.Generator) -> tuple[Array, ...]:
    """Rows, a bias for their columns, and an output."""
    return whole(rng, (128, 64), f32), whole(rng, (64,), f32), empty((128, 64), f32)


@planted(
    Kind.UNUSED,
    "def bias_never_added(",
    arguments=_rows,
    expected=lambda x, bias, y: {"y": x + bias},
    level=Level.NOTE,
)
@pk.kernel
def bias_never_added(x, bias, y, *, broken: bool):
    """Broken: the bias is an argument, but nothing loads it."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    if not broken:
        t = t + pk.load(bias, cols=64, spread=pk.per_column)
    pk.store(y[row], t)


@planted(
    Kind.UNUSED,
    "def scale_of_another_name(",
    arguments=lambda rng: (whole(rng, (128, 64), f32), 3.0, 2.0, empty((128, 64), f32)),
    expected=lambda x, scale, shift, y: {"y": x * scale + shift},
    level=Level.NOTE,
)
@pk.kernel
def scale_of_another_name(x, scale, shift, y, *, broken: bool):
    """Broken: the rows are scaled by the shift, and nothing uses the scale."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(y[row], t * (shift if broken else scale) + shift)


@planted(
    Kind.UNUSED,
    "ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))",
    arguments=lambda rng: (
        whole(rng, (64, 128), bf16),
        whole(rng, (64, 128), bf16),
        empty((64, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    level=Level.NOTE,
)
@pk.kernel
def operand_multiplied_by_itself(A, B, C, *, broken: bool):
    """Broken: both operands are read from the first tile of the stage, and no operation uses the second."""
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    row, col = pk.grid(*C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.a, A[row, k])
                if not broken:
                    pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a, s.a if broken else s.b, acc)
        pk.store(C[row, col], acc)


@planted(
    Kind.UNUSED,
    "tile = pk.shared(pk.st(f32, 64, 64))",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((128, 64), f32)),
    expected=lambda x, y: {"y": 2 * x},
    level=Level.NOTE,
)
@pk.kernel
def tile_of_an_earlier_version(x, y, *, broken: bool):
    """Broken: the result is stored from registers, and its shared tile only takes memory."""
    tile = pk.shared(pk.st(f32, 64, 64))
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = 2 * pk.load(x[row], rows=64, cols=64)
    if broken:
        pk.store(y[row], t)
    else:
        pk.publish(tile, t)
        pk.store_async(y[row], tile)


@planted(
    Kind.UNUSED,
    "spare = pk.pipeline(2, pk.st(f32, 64, 64))",
    arguments=lambda rng: (whole(rng, (64, 192), f32), empty((64,), f32)),
    expected=lambda x, y: {"y": x.sum(1)},
    level=Level.NOTE,
)
@pk.kernel
def pipeline_of_an_earlier_version(x, y, *, broken: bool):
    """Broken: the tiles go through another pipeline, and the first one only takes memory."""
    spare = pk.pipeline(2, pk.st(f32, 64, 64))
    ring = pk.pipeline(2, pk.st(f32, 64, 64)) if broken else spare
    pk.grid(1)
    steps = pk.cdiv(x.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t, x[0, k])
    with pk.consumers(1):
        total = pk.row_sum(pk.zeros(f32, 64, 64))
        for _ in pk.range(steps):
            with ring.drain() as t:
                total = total + pk.row_sum(pk.load(t))
        pk.store(y[0], total)


@planted(
    Kind.UNUSED,
    "done = pk.semaphore(1)",
    arguments=lambda rng: (whole(rng, (64, 64), f32), empty((64, 64), f32)),
    expected=lambda x, y: {"y": x},
    level=Level.NOTE,
)
@pk.kernel
def semaphore_that_nobody_uses(x, y, *, broken: bool):
    """Broken: a semaphore should say that the tile is stored, but no group uses it."""
    tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    done = pk.semaphore(1)
    pk.grid(1)
    full.expect(tile)
    pk.load_async(tile, x[0], signal=full)
    full.wait(0)
    pk.store(y[0], pk.load(tile))
    if not broken:
        done.arrive()
        done.wait(0)
