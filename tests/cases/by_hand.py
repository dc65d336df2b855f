"""Synchronisation by hand: semaphores, turns, flags between blocks, unmanaged copies and products, inline CUDA.

Numbers are small integers, so that every sum is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, bool_, e4m3, f16, f32, int8, int32
from tests.cases.core import Array, Case


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Integers from -4 to 4."""
    return rng.integers(-4, 5, shape).astype(dtype.numpy)


def _ring(dtype: DType, rows: int, cols: int) -> Case:
    """Tensor to tensor through two shared tiles and a pair of semaphores for each."""

    @pk.kernel
    def ring(x, y):
        tiles = pk.shared(pk.st(dtype, 64, 64), count=2)
        full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
        (col,) = pk.grid(pk.cdiv(x.cols, 64))
        steps = pk.cdiv(x.rows, 64)
        with pk.producer():
            for i in pk.range(steps):
                empty[i % 2].wait(i // 2 + 1)
                full[i % 2].expect(tiles[i % 2])
                pk.load_async(tiles[i % 2], x[i, col], signal=full[i % 2])
        with pk.warpgroups(1):
            for i in pk.range(steps):
                full[i % 2].wait(i // 2)
                pk.store(y[i, col], pk.load(tiles[i % 2]))
                empty[i % 2].arrive()

    return Case(
        f"by_hand-ring-{dtype}-{rows}x{cols}",
        ("item", "expect", "arrive", "wait_phase", "load_async"),
        ring,
        lambda rng: [whole(rng, (rows, cols), dtype)],
        (((rows, cols), dtype),),
        lambda x: (x,),
    )


def _there_and_back(dtype: DType, warps: int, rows: int, cols: int) -> Case:
    """One group: a copy in, registers, and a copy out of two tiles by turns."""

    @pk.kernel(warps=warps)
    def twice(x, y):
        before, full = pk.shared(pk.st(dtype, 128, 64)), pk.semaphore(1)
        after = pk.shared(pk.st(dtype, 128, 64), count=2)
        (col,) = pk.grid(pk.cdiv(x.cols, 64))
        for i in pk.range(pk.cdiv(x.rows, 128)):
            full.expect(before)
            pk.load_async(before, x[i, col], signal=full)
            pk.store_wait(1, read=True)
            full.wait(i)
            t = pk.load(before)
            pk.publish(after[i % 2], t + t)
            pk.store_async(y[i, col], after[i % 2])

    return Case(
        f"by_hand-twice-{dtype}-{warps}-{rows}x{cols}",
        ("sync", "fence_async", "store_wait", "store_async"),
        twice,
        lambda rng: [whole(rng, (rows, cols), dtype)],
        (((rows, cols), dtype),),
        lambda x: (x + x,),
    )


def _product(rows: int, cols: int, depth: int) -> Case:
    """A ring whose tiles are given back when the product after the one that read them is queued."""

    @pk.kernel
    def product(A, B, C):
        a, b = pk.shared(pk.st(bf16, 64, 64), count=2), pk.shared(pk.st(bf16, 128, 64), count=2)
        full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
        row, col = pk.grid(pk.cdiv(C.rows, 64), pk.cdiv(C.cols, 128))
        steps = pk.cdiv(A.cols, 64)
        with pk.producer():
            for i in pk.range(steps):
                empty[i % 2].wait(i // 2 + 1)
                full[i % 2].expect(a[i % 2], b[i % 2])
                pk.load_async(a[i % 2], A[row, i], signal=full[i % 2])
                pk.load_async(b[i % 2], B[col, i], signal=full[i % 2])
        with pk.consumers(1):
            acc = pk.zeros(f32, 64, 128)
            for i in pk.range(steps):
                full[i % 2].wait(i // 2)
                acc = pk.mma_ABt(a[i % 2], b[i % 2], acc, managed=False)
                pk.mma_wait(1)
                if i > 0:
                    empty[(i + 1) % 2].arrive()
            pk.mma_wait()
            pk.store(C[row, col], acc)

    return Case(
        f"by_hand-product-bf16-{rows}x{cols}x{depth}",
        ("mma_ABt", "mma_wait"),
        product,
        lambda rng: [whole(rng, (rows, depth), bf16), whole(rng, (cols, depth), bf16)],
        (((rows, cols), f32),),
        lambda a, b: (a.astype(np.float64) @ b.astype(np.float64).T,),
    )


def _two_in_flight() -> Case:
    """Two products are started; the first is read while the second runs."""

    @pk.kernel
    def two(A, B, C):
        a, b = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64))
        full = pk.semaphore(1)
        pk.grid(1)
        full.expect(a, b)
        pk.load_async(a, A[0], signal=full)
        pk.load_async(b, B[0], signal=full)
        full.wait(0)
        first = pk.mma_AB(a, b, managed=False)
        second = pk.mma_AB(b, a, managed=False)
        pk.mma_wait(1)
        pk.store(C[0], first)
        pk.mma_wait()
        pk.store(C[1], second)

    def reference(a: Array, b: Array) -> tuple[Array]:
        a, b = a.astype(np.float64), b.astype(np.float64)
        return (np.concatenate([a @ b, b @ a]),)

    return Case(
        "by_hand-two-bf16-64x64",
        ("mma_AB", "mma_wait"),
        two,
        lambda rng: [whole(rng, (64, 64), bf16), whole(rng, (64, 64), bf16)],
        (((128, 64), f32),),
        reference,
    )


def _joined(groups: int) -> Case:
    """Warps that each bring a part of a tile and one arrival; who waits sees all of it."""

    @pk.kernel
    def joined(x, y):
        tile = pk.shared(pk.st(f32, 16 * groups, 64))
        full, done = pk.semaphore(groups), pk.semaphore(1)
        pk.grid(1)
        with pk.warps(groups) as w:
            for i in pk.range(3):
                done.wait(i + 1)
                t = pk.load(x[i * groups + w, 0], rows=16, cols=64)
                pk.store(tile.tiles(16, 64)[w], t)
                full.arrive()
        with pk.warpgroups(1):
            for i in pk.range(3):
                full.wait(i)
                pk.store(y[i], pk.load(tile))
                done.arrive()

    rows = 16 * groups * 3
    return Case(
        f"by_hand-joined-f32-{groups}",
        ("arrive", "wait_phase"),
        joined,
        lambda rng: [whole(rng, (rows, 64), f32)],
        (((rows, 64), f32),),
        lambda x: (x,),
    )


def _turns(role: str, groups: int, passes: int) -> Case:
    """Groups that write down one after another whose turn it is."""

    @pk.kernel
    def turns(state, order):
        pk.grid(1)
        with getattr(pk, role)(groups) as w:
            for i in pk.range(passes):
                with pk.in_turn():
                    place = pk.load(state[0])
                    pk.store(order[place], w * 100 + i)
                    pk.sync()
                    pk.store(state[0], place + 1)

    count = groups * passes
    sequence = [group * 100 + i for i in range(passes) for group in range(groups)]
    return Case(
        f"by_hand-turns-{role}-{groups}-{passes}",
        ("take_turn", "pass_turn"),
        turns,
        lambda rng: [],
        (((1,), int32), ((count,), int32)),
        lambda: (np.array([count]), np.array(sequence)),
        before=0,
    )


def _chain(blocks: int, cols: int) -> Case:
    """Block i adds its rows to what block i - 1 stored with the copy engine, and tells it by a flag."""

    @pk.kernel
    def chain(x, y, flags):
        tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
        (block,) = pk.grid(x.rows // 64)
        t = pk.load(x[block, 0], rows=64, cols=64)
        if block > 0:
            pk.wait(flags[0], block)
            full.expect(tile)
            pk.load_async(tile, y[block - 1, 0], signal=full)
            full.wait(0)
            t = t + pk.load(tile)
            pk.sync()
        pk.publish(tile, t)
        pk.store_async(y[block, 0], tile)
        pk.store_wait()
        pk.signal(flags[0], 1, op="add")

    def reference(x: Array) -> tuple[Array, Array]:
        sums = np.cumsum(x.reshape(blocks, 64, cols), 0).reshape(x.shape)
        return sums, np.array([blocks])

    return Case(
        f"by_hand-chain-f32-{blocks}x{cols}",
        ("signal", "wait"),
        chain,
        lambda rng: [whole(rng, (64 * blocks, cols), f32)],
        (((64 * blocks, cols), f32), ((1,), int32)),
        reference,
        before=0,
    )


def _exchange(length: int) -> Case:
    """Two blocks, each of which reads what the other has stored with ordinary stores."""

    @pk.kernel
    def exchange(x, between, y, flags):
        (block,) = pk.grid(2)
        pk.store(between[block], pk.load(x[block], cols=length) * 2)
        pk.signal(flags[block, 1], 7)
        pk.wait(flags[1 - block, 1], 7)
        pk.store(y[block], pk.load(between[1 - block], cols=length))

    flags = np.array([[-77, 7], [-77, 7]])
    return Case(
        f"by_hand-exchange-int32-{length}",
        ("signal", "wait"),
        exchange,
        lambda rng: [whole(rng, (2, length), int32)],
        (((2, length), int32), ((2, length), int32), ((2, 2), int32)),
        lambda x: (2 * x, 2 * x[::-1], flags),
    )


def _inline(dtype: DType, to: DType) -> Case:
    """An expression of an element, a per-row vector and a scalar."""

    @pk.kernel
    def inline(x, y, n):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=48)
        highest = pk.row_max(t)
        number = pk.inline_cuda("{0} + 1", n, like=n, numpy=lambda n: n + 1)
        pk.inline_cuda("if ({0} < 0) __trap();", number, numpy=lambda n: None)
        pk.assert_(t <= highest, "nothing is above the maximum of its row")
        made = pk.inline_cuda(
            "{0} == {1} ? {2} : 0",
            t,
            highest,
            number,
            like=t,
            dtype=to,
            numpy=lambda t, highest, n: np.where(t == highest, n, 0),
        )
        pk.store(y[0], made)

    def reference(x: Array, n: int) -> tuple[Array]:
        wide = np.zeros((64, 48))  # outside the matrix a load reads zero
        wide[: x.shape[0], : x.shape[1]] = x.astype(np.float64)
        return (np.where(wide == wide.max(1, keepdims=True), n + 1, 0)[: x.shape[0], : x.shape[1]],)

    return Case(
        f"by_hand-inline-{dtype}-{to}-50x37",
        ("inline_cuda", "inline_cuda_statement", "assert"),
        inline,
        lambda rng: [whole(rng, (50, 37), dtype)],
        (((50, 37), to),),
        reference,
        scalars=(4,),
    )


def _inline_vector(length: int) -> Case:
    @pk.kernel
    def inline(x, y):
        pk.grid(1)
        v = pk.load(x, cols=length)
        pk.store(y, pk.inline_cuda("__brev({0})", v, like=v, numpy=_reversed))

    return Case(
        f"by_hand-inline-int32-{length}",
        ("inline_cuda",),
        inline,
        lambda rng: [rng.integers(-(2**31), 2**31, (length,), dtype=np.int32)],
        (((length,), int32),),
        lambda x: (_reversed(x),),
    )


def _reversed(x: Any) -> Any:
    """The bits of each int32 in the opposite order."""
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8).reshape(-1, 4), axis=1)
    return np.packbits(bits[:, ::-1], axis=1).copy().view(np.int32).reshape(x.shape)


SHAPES = {bf16: (320, 64), f32: (150, 37), int8: (200, 128), f16: (64, 200)}

CASES = [_ring(dtype, *shape) for dtype, shape in SHAPES.items()]
CASES += [_ring(bf16, 150, 37), _ring(f32, 256, 128)]
CASES += [
    _there_and_back(bf16, 4, 384, 64),
    _there_and_back(f32, 8, 300, 100),
    _there_and_back(int32, 4, 130, 37),
    _there_and_back(f16, 1, 256, 64),
]
CASES += [_product(64, 128, 64), _product(128, 256, 448), _product(100, 200, 333)]
CASES += [_two_in_flight(), _joined(4), _joined(8)]
CASES += [_turns("consumers", 2, 5), _turns("warps", 3, 4), _turns("consumers", 1, 3)]
CASES += [_chain(2, 64), _chain(7, 64), _chain(4, 37), _exchange(64), _exchange(1001)]
CASES += [_inline(a, b) for a, b in ((f32, f32), (bf16, bf16), (bf16, int32), (int32, f32))]
CASES += [_inline(int8, int8), _inline(e4m3, bool_), _inline_vector(40), _inline_vector(333)]
