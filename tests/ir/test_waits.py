"""The waits of a kernel: golden texts, and what holds of every placement."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.nodes import Call, WaitProducts, WaitStores, walk
from pykittens.ir.stages import Acquire, GiveBack
from pykittens.ir.text import text
from tests import tolerance
from tests.ir.kernels import nested, one_stage, prefetched, same_stage, two_products
from tests.running import recorded
from tests.tolerance import assert_within

BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def empty(*shape, dtype=np.float32):
    return np.full(shape, np.nan, dtype)


def nodes(kernel, kind, *args, **constants):
    return [n for n in walk(recorded(kernel, *args, **constants).body) if isinstance(n, kind)]


def test_the_waits_of_matmul(example, golden):
    A, B, C = (np.empty(s, BF16) for s in ((8, 16), (24, 16), (8, 24)))
    golden("ir/matmul.txt", text(recorded(example("06_matmul").matmul, A, B, C)))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_the_waits_of_attention(example, golden, causal):
    args = [np.empty((1, 1, 8, 64), BF16) for _ in range(4)]
    kernel = recorded(example("07_attention").attention, *args, causal=causal)
    golden(f"ir/attention_{'causal' if causal else 'full'}.txt", text(kernel))


# -- kernels whose placement is delicate: each is held against float64 ----------------------------


def squares(A):
    tiles = np.zeros((-(-A.shape[0] // 64) * 64, 64))
    tiles[: A.shape[0]] = A
    return tiles.reshape(-1, 64, 64)


def check_sum(C, left, right, times=1):
    """C is the sum of the products of tiles of bf16, within the bound of a sum that long."""
    exact = times * (left @ right).sum(axis=0)
    magnitude = times * (np.abs(left) @ np.abs(right)).sum(axis=0)
    assert_within(C, exact, tolerance.product(np.float32, exact, magnitude, 64 * len(left) * times))


SEEDS = pytest.mark.parametrize("seed", range(4))


@SEEDS
@pytest.mark.parametrize("n", [1, 64, 65, 300])
def test_attention_with_one_stage_is_right(monkeypatch, n, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    Q, K, V = (normal(i, n, 64) for i in range(3))
    O = empty(n, 64)
    one_stage(Q, K, V, O)
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    s = q @ k.T / 8
    p = np.exp(s - s.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    scores = float((np.abs(q) @ np.abs(k).T).max()) / 8
    assert_within(O, p @ v, tolerance.attention(BF16, p @ v, p @ np.abs(v), scores, n, 64))


@SEEDS
@pytest.mark.parametrize("rows", [1, 64, 129, 640])
def test_two_products_of_one_stage_are_right(monkeypatch, rows, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, C, D = normal(0, rows, 64), empty(64, 64), empty(64, 64)
    two_products(A, C, D)
    tiles = squares(A)
    check_sum(C, tiles, tiles.swapaxes(1, 2))
    check_sum(D, tiles, tiles)


@SEEDS
@pytest.mark.parametrize(("m", "n"), [(64, 64), (130, 300), (200, 0), (0, 64)])
def test_products_of_stages_held_inside_one_another_are_right(monkeypatch, m, n, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, B, C = normal(0, m, 64), normal(1, n, 64), empty(64, 64)
    nested(A, B, C)
    left, right = squares(A), squares(B)
    pairs = np.array([[a, b] for a in left for b in right]).reshape(-1, 2, 64, 64)
    check_sum(C, pairs[:, 0], pairs[:, 1])


@pytest.mark.parametrize("n", [0, 1, 20])
def test_products_of_a_stage_that_stays_held_are_right(n):
    A, C = normal(0, 64, 64), empty(64, 64)
    same_stage(A, C, n)
    tiles = squares(A)
    check_sum(C, tiles, tiles.swapaxes(1, 2), times=n)


@SEEDS
@pytest.mark.parametrize("rows", [64, 300])
def test_stages_are_given_back_early_where_the_producer_runs_ahead(monkeypatch, rows, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, C = normal(0, rows, 64), empty(64, 64)
    prefetched(A, C)
    tiles = squares(A)
    steps = len(tiles)
    fetched = [*range(steps), *[i for i in range(2 * steps + 2) if i < steps]]
    check_sum(C, tiles[fetched], tiles[fetched].swapaxes(1, 2))


# -- what holds of the placement ------------------------------------------------------------------


def test_a_product_stays_queued_while_the_stage_before_it_is_given_back():
    A, C = normal(0, 64, 64), empty(64, 64)

    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(3, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(A.rows):
                with ring.fill() as t:
                    pk.load_async(t, A[i])
        with pk.consumers(1):
            c = pk.zeros(f32, 64, 64)
            for _ in pk.range(A.rows):
                with ring.drain() as t:
                    c = pk.mma_ABt(t, t, c)
            pk.store(C[0], c)

    in_loop, behind = nodes(kernel, WaitProducts, A, C)
    assert (in_loop.pending, behind.pending) == (1, 0)
    late, last = nodes(kernel, GiveBack, A, C)
    assert (late.keep, late.exact, last.keep) == (1, False, 0)


def test_with_one_stage_nothing_is_deferred():
    args = (*(normal(i, 64, 64) for i in range(3)), empty(64, 64))
    assert all(g.keep == 0 and g.exact for g in nodes(one_stage, GiveBack, *args))


def test_a_run_time_if_completes_products_in_flight():
    @pk.kernel
    def kernel(A, C, n):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, A[0])
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_ABt(t, t)
            if n > 0:
                c = c * 2.0
            pk.store(C[0], c)

    A, C = normal(0, 64, 64), empty(64, 64)
    (wait,) = nodes(kernel, WaitProducts, A, C, 1)
    assert wait.pending == 0
    for n in (0, 1):
        kernel(A, C, n)
        tiles = squares(A)
        check_sum(C / (n + 1), tiles, tiles.swapaxes(1, 2))


def test_a_stage_is_kept_until_its_stores_have_read_it():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        tasks = pk.persistent((pk.cdiv(A.rows, 64),))
        with pk.producer():
            for (i,) in tasks:
                with ring.fill() as t:
                    pk.load_async(t, A[i])
        with pk.storer():
            for (i,) in tasks:
                with ring.drain() as t:
                    for half in pk.range(2):
                        pk.store_async(C[2 * i + half], t.tiles(32, 64)[half])

    A, C = normal(0, 1000, 64), empty(1000, 64, dtype=BF16)
    kernel(A, C)
    assert np.array_equal(C, A)
    assert [w.read for w in nodes(kernel, WaitStores, A, C)] == [True, False]


def test_every_stage_that_is_drained_is_given_back(example):
    A, B, C = (np.empty(s, BF16) for s in ((8, 16), (24, 16), (8, 24)))
    matmul = example("06_matmul").matmul
    drained = {a.pipeline.name for a in nodes(matmul, Acquire, A, B, C) if a.side == "drain"}
    assert {g.pipeline.name for g in nodes(matmul, GiveBack, A, B, C)} == drained


def test_placing_waits_twice_changes_nothing(example):
    from pykittens.ir.passes.order import find_stalls

    args = [np.empty((1, 1, 8, 64), BF16) for _ in range(4)]
    one, two = (
        text(recorded(example("07_attention").attention, *args, causal=True)) for _ in range(2)
    )
    assert one == two
    assert not find_stalls(recorded(example("07_attention").attention, *args, causal=True))


def test_a_product_of_shared_memory_by_hand_is_complete_before_that_is_written_again():
    @pk.kernel
    def kernel(A, B, C):
        pk.grid(1)
        a, b = pk.shared(pk.st(pk.bf16, 64, 64)), pk.shared(pk.st(pk.bf16, 64, 64))
        acc = pk.zeros(pk.f32, 64, 64)
        for k in pk.range(pk.cdiv(A.cols, 64)):
            pk.store(a, pk.load(A[0, k], rows=64, cols=64))
            pk.store(b, pk.load(B[0, k], rows=64, cols=64))
            pk.fence_async()
            pk.sync()
            acc = pk.mma_ABt(a, b, acc)
        pk.store(C[0], acc)

    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((64, 256)).astype(ml_dtypes.bfloat16) for _ in range(2))
    C = np.full((64, 64), np.nan, np.float32)
    kernel(A, B, C)
    exact = A.astype(np.float64) @ B.astype(np.float64).T
    assert np.abs(C - exact).max() < 1e-3


def turns(select):
    """C = A @ B.T by two groups in turn; `select` is the part of the memory that a group multiplies."""

    @pk.kernel
    def kernel(A, B, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        several, rows = pk.shared(pk.st(bf16, 64, 64), count=2), pk.shared(pk.st(bf16, 128, 64))
        pk.grid(1)
        with pk.producer():
            for k in pk.range(pk.cdiv(A.cols, 64)):
                with ring.fill() as s:
                    pk.load_async(s, B[0, k])
        with pk.consumers(2) as w:
            acc = pk.zeros(f32, 64, 64)
            for k in pk.range(pk.cdiv(A.cols, 64)):
                mine = select(several, rows, w, k)
                pk.sync()  # every warp is done with the product before
                pk.publish(mine, pk.load(A[w, k], rows=64, cols=64))
                with ring.drain() as s, pk.in_turn():
                    acc = pk.mma_ABt(mine, s, acc)
            pk.store(C[w], acc)

    return kernel


SELECTIONS = {
    "one of several": (True, lambda several, rows, w, k: several[w]),
    "rows": (True, lambda several, rows, w, k: rows.tiles(64, 64)[w, 0]),
    "one that changes": (False, lambda several, rows, w, k: several[(w + k) % 2]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_turn_is_handed_over_while_a_product_reads_memory_of_its_own_group(name):
    is_own, select = SELECTIONS[name]
    A, B = normal(0, 128, 256), normal(1, 64, 256)
    C, kernel = empty(128, 64), turns(select)
    role = recorded(kernel, A, B, C).roles[1]
    inside = [n for n in walk(role.body) if isinstance(n, WaitProducts | Call)]
    taken, passed = (
        next(i for i, n in enumerate(inside) if isinstance(n, Call) and n.op.name == op)
        for op in ("take_turn", "pass_turn")
    )
    waits = [n for n in inside[taken:passed] if isinstance(n, WaitProducts)]
    assert bool(waits) is not is_own
    if is_own:
        kernel(A, B, C)
        exact = A.astype(np.float64) @ B.astype(np.float64).T
        assert np.abs(C - exact).max() < 1e-3
        assert pk.check(kernel, A, B, C, schedules=3, costs=False, compile=False).ok


@pk.kernel
def taken_over(A, B, C):
    inputs = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 256, 64))
    outputs = pk.pipeline(1, pk.st(f32, 64, 256), reuse=inputs)
    pk.grid(1)
    with pk.producer():
        for k in pk.range(2):
            with inputs.fill() as s:
                pk.load_async(s.a, A[0, k])
                pk.load_async(s.b, B[0, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 256)
        for _ in pk.range(2):
            with inputs.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        with outputs.fill() as t:
            pk.store(t, acc)
    with pk.storer(), outputs.drain() as t:
        pk.store_async(C[0, 0], t)


def test_products_are_complete_before_memory_is_taken_over_that_they_read():
    A, B = (np.ones((rows, 128), bf16.numpy) for rows in (64, 256))
    C = np.full((64, 256), np.nan, np.float32)
    nodes = list(walk(recorded(taken_over, A, B, C).roles[1].body))
    take = next(i for i, n in enumerate(nodes) if isinstance(n, Acquire) and n.side == "fill")
    assert any(isinstance(n, WaitProducts) and n.pending == 0 for n in nodes[:take])
    assert not pk.check(taken_over, A, B, C, costs=False).findings
