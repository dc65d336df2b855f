"""Tiles in the order of lanes, through memory and back, and what is computed with them in this order."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, f32, int32
from tests import tolerance
from tests.cases.convert import numbers
from tests.cases.core import Array, Case

SIDES = ((64, 64, 4), (16, 48, 1), (128, 16, 8), (128, 32, 4))


def _case(
    name: str, dtype: DType, rows: int, cols: int, kernel: Any, inputs: Any = numbers, **more: Any
) -> Case:
    return Case(
        f"lane_order-{name}-{dtype}-{rows}x{cols}",
        ("in_lane_order", "from_lane_order"),
        kernel,
        lambda rng: [inputs(rng, (rows, cols), dtype)],
        **more,
    )


def _through_memory(dtype: DType, rows: int, cols: int, warps: int) -> Case:
    """Through shared memory, then through a tensor."""
    n = rows * cols

    @pk.kernel(warps=warps)
    def through(x, y, flat):
        pk.grid(1)
        held = pk.shared(pk.sv(dtype, n))
        t = pk.load(x[0], rows=rows, cols=cols)
        pk.store(held, pk.in_lane_order(t))
        pk.sync()
        found = pk.load(held, spread=pk.lane_order)
        pk.store(flat, found)
        again = pk.load(flat[0], cols=n, spread=pk.lane_order)
        pk.store(y[0], pk.from_lane_order(again, rows, cols))

    return _case(
        "memory", dtype, rows, cols, through,
        outputs=(((rows, cols), dtype), ((n,), dtype)),
        reference=lambda x: [x, _flat(x, warps)],
    )  # fmt: skip


def _flat(x: Array, warps: int) -> Array:
    """The elements in the order of lanes, by hand: 4 registers of each thread, then the next 4."""
    rows, cols = x.shape
    flat, threads = np.empty(x.size, x.dtype), 32 * warps
    for row in range(rows):
        for col in range(cols):
            block, warp = row // 16 // warps, row // 16 % warps
            lane = row % 8 * 4 + col % 8 // 2
            register = block * cols // 2 + col // 8 * 4 + row % 16 // 8 * 2 + col % 2
            place = (register // 4 * threads + warp * 32 + lane) * 4 + register % 4
            flat[place] = x[row, col]
    return flat


def _added(rows: int, cols: int, warps: int) -> Case:
    """Sums of parts in the order of lanes, and their sum, largest and first place."""

    @pk.kernel(warps=warps)
    def added(x, y, totals, places):
        pk.grid(1)
        v = pk.in_lane_order(pk.load(x[0], rows=rows, cols=cols))
        v = v + v * pk.full(f32, 0.5, rows * cols, spread=pk.lane_order)
        pk.store(totals[0], pk.sum(v))
        pk.store(totals[1], pk.max(v))
        pk.store(places[0], pk.argmax(pk.spread(v, pk.plain)))
        pk.store(y[0], pk.from_lane_order(v, rows, cols))

    def reference(x: Array) -> list[Array]:
        wide = x.astype(np.float64) * 1.5
        place = np.argmax(_flat(x, warps))
        return [wide, np.array([wide.sum(), wide.max()]), np.array([place], np.int32)]

    def bound(exact: list[Array], x: Array) -> list[Array]:
        magnitude = np.array([np.abs(exact[0]).sum(), np.abs(exact[0]).max()])
        totals = tolerance.product(np.float32, exact[1], magnitude, x.size)
        return [tolerance.rounding(np.float32, exact[0], 2), totals, np.zeros(1)]

    return _case(
        "added", f32, rows, cols, added,
        inputs=lambda rng, shape, dtype: rng.standard_normal(shape).astype(dtype.numpy),
        outputs=(((rows, cols), f32), ((2,), f32), ((1,), int32)),
        reference=reference,
        bound=bound,
    )  # fmt: skip


def _combined(op: str, dtype: DType) -> Case:
    """An engine combines tiles of several blocks, each a run of 32 KiB or less, the last one cut by the end."""
    rows, cols, blocks = 64, 128, 3
    n, kept = rows * cols, blocks * rows * cols - 4096

    @pk.kernel(warps=4)
    def combined(x, y):
        ring = pk.pipeline(1, pk.sv(dtype, n))
        (i,) = pk.grid(blocks)
        with pk.warpgroups(1), ring.fill() as s:
            pk.store(s, pk.in_lane_order(pk.load(x[0], rows=rows, cols=cols)))
        with pk.storer(), ring.drain() as s:
            pk.store_async(y[0, i], s, op=op)
            pk.store_async(y[1, i], s, op=op)

    def reference(x: Array) -> list[Array]:
        flat = np.tile(_flat(x, 4), blocks)[:kept].astype(np.float64)
        with_before = {"add": flat + 1, "max": np.maximum(flat, 1), "min": np.minimum(flat, 1)}
        return [np.stack([with_before[op]] * 2)]

    return _case(
        f"combined-{op}", dtype, rows, cols, combined,
        outputs=(((2, kept), dtype),),
        reference=reference,
        inputs=lambda rng, shape, dtype: rng.integers(-9, 9, shape).astype(dtype.numpy),
        before=1,
    )  # fmt: skip


CASES = [_through_memory(d, *SIDES[0]) for d in DTYPES.values() if d is not bool_]
CASES += [_through_memory(d, *s) for d in (bf16, f32) for s in SIDES[1:]]
CASES += [_added(*s) for s in SIDES]
CASES += [_combined("add", d) for d in (f32, bf16, int32)]
CASES += [_combined(op, int32) for op in ("max", "min")]
