"""Stores that combine with the values of a tensor, and atomics with a result."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, f16, f32, int32, int64
from tests import tolerance
from tests.cases.core import Array, Case, columns

DTYPES = (f32, f16, bf16, int32, int64)
COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum}
BLOCKS = 5  # that meet at one tile
BEFORE = 1.0


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype.is_int:
        return rng.integers(-1000, 1000, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)


def combined(parts: Array, op: str) -> Array:
    """All parts and what was there before, along the first axis."""
    wide = parts.astype(np.int64 if parts.dtype.kind == "i" else np.float64)
    return COMBINE[op].reduce(np.concatenate([np.full_like(wide[:1], BEFORE), wide]), axis=0)


def bound(dtype: DType, op: str) -> Any:
    """Sums in any order: a rounding each, of sums no larger than those of the magnitudes."""
    if op != "add" or dtype.is_int:
        return None

    def most(exact: list[Array], x: Array) -> list[Array]:
        total = np.abs(x.astype(np.float64)).reshape(BLOCKS, -1).sum(0) + BEFORE
        return [tolerance.rounding(dtype.numpy, total.reshape(exact[0].shape), BLOCKS + 1)]

    return most


@pk.kernel
def tiles(x, y, *, op):
    (i,) = pk.grid(x.shape[0])
    cols = pk.cdiv(pk.static(y.cols), 16) * 16
    pk.store(y, pk.load(x[i, 0, 0], rows=64, cols=cols), op=op)


@pk.kernel
def vectors(x, y, *, op, spread):
    (i,) = pk.grid(x.rows)
    pk.store(y, pk.load(x[i], cols=64, spread=spread), op=op)


@pk.kernel
def elements(x, y, *, op):
    (i,) = pk.grid(x.rows)
    pk.store(y[3], pk.load(x[i, 0]), op=op)
    pk.store(y[9], pk.load(x[i, 0]), op=op)  # outside


def _tile(dtype: DType, op: str, rows: int, cols: int) -> Case:
    return Case(
        f"atomic-{op}-{dtype}-{rows}x{cols}",
        ("store",),
        tiles,
        lambda rng: [values(rng, (BLOCKS, rows, cols), dtype)],
        (((rows, cols), dtype),),
        lambda x, op: (combined(x, op),),
        bound(dtype, op),
        {"op": op},
        before=BEFORE,
    )


def _vector(dtype: DType, op: str, spread: Any, length: int) -> Case:
    return Case(
        f"atomic-{op}-{dtype}-{str(spread).replace(' ', '_')}-{length}",
        ("store",),
        vectors,
        lambda rng: [values(rng, (BLOCKS, length), dtype)],
        (((length,), dtype),),
        lambda x, op, spread: (combined(x, op),),
        bound(dtype, op),
        {"op": op, "spread": spread},
        before=BEFORE,
    )


def _element(dtype: DType, op: str) -> Case:
    def reference(x: Array, op: str) -> tuple[Array]:
        y = np.full((5,), BEFORE)
        y[3] = combined(x, op)[0]
        return (y,)

    def most(exact: list[Array], x: Array) -> list[Array]:
        limits = bound(dtype, op)
        return [np.where(np.arange(5) == 3, limits([exact[0][3:4]], x)[0], 0)]

    return Case(
        f"atomic-{op}-{dtype}-element",
        ("store",),
        elements,
        lambda rng: [values(rng, (BLOCKS, 1), dtype)],
        (((5,), dtype),),
        reference,
        None if bound(dtype, op) is None else most,
        {"op": op},
        before=BEFORE,
    )


def _async(dtype: DType, op: str, width: int) -> Case:
    """From a stage, a block each."""

    @pk.kernel
    def stores(x, y, *, op):
        ring = pk.pipeline(1, t=pk.st(dtype, 64, 64), v=pk.sv(dtype, 64))
        (i,) = pk.grid(x.shape[0])
        with pk.producer(), ring.fill() as s:
            pk.load_async(s.t, x[i, 0, 0])
            pk.load_async(s.v, x[i, 65, 0])
        with pk.storer(), ring.drain() as s:
            pk.store_async(y, s.t, op=op)
            pk.store_async(y[65], s.v, op=op)

    def reference(x: Array, op: str) -> tuple[Array]:
        y = combined(x, op)
        y[64] = BEFORE  # neither the tile's nor the vector's
        return (y,)

    return Case(
        f"atomic-{op}-{dtype}-async-{width}",
        ("store_async",),
        stores,
        lambda rng: [values(rng, (BLOCKS, 66, width), dtype)],
        (((66, width), dtype),),
        reference,
        bound(dtype, op),
        {"op": op},
        before=BEFORE,
    )


# -- with a result ---------------------------------------------------------------------------------

RETURNING = {
    "add": lambda old, value: (old + value).astype(np.int32),
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exchange": lambda old, value: value,
    "cas": lambda old, value: np.where(old == 7, value, old),
}


def _returning(name: str, groups: int) -> Case:
    """Each element is changed once; every lane of the group has the value before."""
    change = getattr(pk, f"atomic_{name}")
    expected = (7,) if name == "cas" else ()

    @pk.kernel
    def returning(x, values, y, before):
        (block,) = pk.grid(x.rows)
        with pk.warpgroups(1) if groups == 1 else pk.warps(groups) as w:
            at = block * groups + w
            pk.atomic_exchange(y[at], pk.load(x[0, at]))
            old = change(y[at], *expected, pk.load(values[at]))
            pk.store(before[at], pk.zeros(int32, 40) + old)

    def inputs(rng: np.random.Generator) -> list[Array]:
        x = rng.integers(-(2**31), 2**31, (3, 3 * groups), np.int32)
        x[0, ::2] = 7
        return [x, rng.integers(-(2**31), 2**31, 3 * groups, np.int32)]

    def reference(x: Array, values: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):
            return RETURNING[name](x[0], values), np.repeat(x[0][:, np.newaxis], 40, 1)

    return Case(
        f"atomic-{name}-returning-{groups}",
        (f"atomic_{name}", "atomic_exchange"),
        returning,
        inputs,
        (((3 * groups,), int32), ((3 * groups, 40), int32)),
        reference,
        before=0,
    )


def _in_shared(name: str, groups: int) -> Case:
    """Each element of a shared vector is changed once by each group, which has the value before."""
    change = getattr(pk, f"atomic_{name}")
    expected = (7,) if name == "cas" else ()

    @pk.kernel
    def in_shared(x, values, y, before):
        kept = pk.shared(pk.sv(int32, 48))
        pk.grid(1)
        with pk.warpgroups(1) if groups == 1 else pk.warps(groups) as w:
            pk.store(kept.parts(16)[w], pk.zeros(int32, 16))
            pk.atomic_exchange(kept.parts(1)[w * 16], pk.load(x[0, w]))
            old = change(kept.parts(1)[w * 16], *expected, pk.load(values[w]))
            pk.store(before[w], pk.zeros(int32, 40) + old)
            pk.store(y[w], pk.atomic_load(kept.parts(1)[w * 16]))

    def inputs(rng: np.random.Generator) -> list[Array]:
        x = rng.integers(-(2**31), 2**31, (1, groups), np.int32)
        x[0, ::2] = 7
        return [x, rng.integers(-(2**31), 2**31, groups, np.int32)]

    def reference(x: Array, values: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):
            return RETURNING[name](x[0], values), np.repeat(x[0][:, np.newaxis], 40, 1)

    return Case(
        f"atomic-{name}-shared-{groups}",
        (f"atomic_{name}", "atomic_exchange", "atomic_load"),
        in_shared,
        inputs,
        (((groups,), int32), ((groups, 40), int32)),
        reference,
        before=0,
    )


def _total() -> Case:
    """The warps of a block add the positive elements of a column to one element of shared memory."""

    @pk.kernel
    def total(x, y):
        kept = pk.shared(pk.sv(int32, 16))
        ready = pk.semaphore(4)
        pk.grid(1)
        with pk.warps(4) as w:
            if w == 0:
                pk.store(kept, pk.zeros(int32, 16))
            ready.arrive()
            ready.wait(0)
            for i in pk.range(x.rows // 4):
                value = pk.load(x[i * 4 + w, 0])
                if value > 0:
                    pk.atomic_add(kept.parts(1)[3], value)
            ready.arrive()
            ready.wait(1)
            pk.store(y[w], pk.atomic_load(kept.parts(1)[3]))

    return Case(
        "atomic-add-block_total",
        ("atomic_add", "atomic_load"),
        total,
        lambda rng: [rng.integers(-5, 5, (32, 1)).astype(np.int32)],
        (((4,), int32),),
        lambda x: (np.full(4, x[x > 0].sum()),),
        before=0,
    )


def _last_adds_up(blocks: int, cols: int) -> Case:
    """The last of the blocks of a row adds up what all of them have stored, in order, and leaves the counter 0."""

    @pk.kernel
    def last_adds_up(x, parts, y, counters):
        block, row = pk.grid(blocks, x.rows)
        pk.store(parts[block, row, 0], pk.load(x[row, block], cols=cols) * 2.0)
        if pk.atomic_add(counters[row], 1) == blocks - 1:
            total = pk.zeros(f32, cols)
            for i in pk.range(blocks):
                total = total + pk.load(parts[i, row, 0], cols=cols)
            pk.store(y[row], total)
            pk.signal(counters[row], 0)

    def reference(x: Array) -> tuple[Array, Array, Array]:
        parts = 2 * x.reshape(3, blocks, cols).swapaxes(0, 1)
        return parts, np.add.accumulate(parts, 0, np.float32)[-1], np.zeros(3)

    return Case(
        f"atomic-last_adds_up-{blocks}x{cols}",
        ("atomic_add", "signal"),
        last_adds_up,
        lambda rng: [values(rng, (3, blocks * cols), f32)],
        (((blocks, 3, cols), f32), ((3, cols), f32), ((3,), int32)),
        reference,
        before=0,
    )


def _counted(blocks: int) -> Case:
    """The block that finds the final count reports it; the others find a smaller one, or it, too."""

    @pk.kernel
    def counted(counter, y, z):
        (block,) = pk.grid(blocks)
        pk.atomic_add(counter[0], 1)
        pk.atomic_max(y[0], pk.atomic_load(counter[0]))
        pk.store(z[block], block)

    return Case(
        f"atomic-load-{blocks}",
        ("atomic_load", "atomic_max"),
        counted,
        lambda rng: [],
        (((1,), int32), ((1,), int32), ((blocks,), int32)),
        lambda: (np.array([blocks]), np.array([blocks]), np.arange(blocks)),
        before=0,
    )


CASES = [_tile(d, op, 64, columns(d)) for d in DTYPES for op in COMBINE]
CASES += [_tile(d, op, 50, columns(d) - 11) for d in DTYPES for op in COMBINE]
CASES += [
    _vector(d, "add", s, n)
    for d in DTYPES
    for s, n in ((pk.plain, 64), (pk.per_row, 53), (pk.per_column, 48))
]
CASES += [_element(d, op) for d in DTYPES for op in ("add", "max")]
CASES += [_async(d, op, 64) for d in DTYPES for op in COMBINE]
CASES += [_async(d, "add", 53) for d in (f32, bf16, int32)]
CASES += [_returning(name, groups) for name in RETURNING for groups in (1, 3)]
CASES += [_in_shared(name, groups) for name in RETURNING for groups in (1, 3)] + [_total()]
CASES += [_last_adds_up(5, 48), _last_adds_up(2, 200), _counted(7)]
