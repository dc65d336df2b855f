"""The emulator finds what a GPU would hang on, and runs roles side by side."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate import machine
from pykittens.emulate.watch import Watcher
from pykittens.errors import DeadlockError
from tests.running import recorded

BF16 = np.dtype(ml_dtypes.bfloat16)
ONES = np.ones((64, 64), BF16)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def test_a_consumer_that_drains_more_than_is_filled_deadlocks():
    @pk.kernel
    def kernel(A, C, n):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for _ in pk.range(n):
                with ring.fill() as t:
                    pk.load_async(t, A[0])
        with pk.consumers(2):
            for _ in pk.range(n + 1):
                with ring.drain() as t:
                    pk.mma_ABt(t, t)

    with pytest.raises(DeadlockError) as caught:
        kernel(ONES, nan(64, 64), 3)
    told = caught.value.operands
    assert told.pop("ended") == "producer after 3 fills of `ring`"
    assert set(told) == {"consumers 0", "consumers 1"}
    line = kernel.function.__code__.co_firstlineno + 10
    where = rf"ring.drain() at tests/emulate/test_machine.py:{line}"
    assert all(where in t and "stage 1 to be full, 0 of 1 arrived" in t for t in told.values())


def history(kernel, *args):
    with pytest.raises(DeadlockError) as caught:
        kernel(*args)
    return [(who, what, loc and loc.text.strip()) for who, what, loc in caught.value.history]


def test_a_deadlock_says_who_has_ended_and_what_each_group_has_done():
    @pk.kernel
    def kernel(A, C, n):
        full = pk.semaphore(1)
        pk.grid(1)
        with pk.producer():
            for _ in pk.range(n):
                full.arrive()
        with pk.warpgroups(2):
            for i in pk.range(n + 1):
                full.wait(i)

    assert history(kernel, ONES, nan(64, 64), 1) == [
        ("producer", "has signalled full once, the last time here", "full.arrive()"),
        ("producer", "ended after 1 signal of full", None),
        ("warpgroups 0, warpgroups 1", "stopped without a fill, drain or signal", None),
    ]


def test_a_deadlock_of_many_blocks_is_short():
    @pk.kernel
    def kernel(flags):
        (block,) = pk.grid(flags.shape[0])
        pk.wait(flags[block], 1)

    with pytest.raises(DeadlockError) as caught:
        kernel(np.zeros(50, np.int32))
    assert len(caught.value.waits) == 4
    assert [f"{who} {what}" for who, what, _ in caught.value.history] == [
        "no group has signalled flags[0], flags[1], flags[2], flags[3] and 46 more",
        "block 0, block 1, block 2, block 3 and 46 more stopped without a fill, drain or signal",
    ]


def test_a_block_of_a_grid_of_two_axes_is_named_by_its_coordinates():
    @pk.kernel
    def kernel(flags):
        row, col = pk.grid(2, 3)
        if row * 3 + col == 4:
            pk.wait(flags[0], 1)

    with pytest.raises(DeadlockError) as caught:
        kernel(np.zeros(1, np.int32))
    assert [who for who, _, _ in caught.value.waits] == ["block (1, 1)"]


def test_pipelines_taken_in_crossed_order_deadlock():
    @pk.kernel
    def kernel(A, n):
        a, b = pk.pipeline(1, pk.st(bf16, 64, 64)), pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for _ in pk.range(n):
                with a.fill() as t:
                    pk.load_async(t, A[0])
                with b.fill() as t:
                    pk.load_async(t, A[0])
        with pk.storer():
            for _ in pk.range(n):
                with b.drain(), b.drain(), a.drain():
                    pass

    with pytest.raises(DeadlockError) as caught:
        kernel(ONES, 4)
    told = caught.value.operands
    assert "a.fill() at" in told["producer"]
    assert "stage 0 to be free, 0 of 1 arrived" in told["producer"]
    assert "b.drain() at" in told["storer"]


def test_roles_of_one_kind_are_told_apart_by_their_lines():
    @pk.kernel
    def kernel(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, A[0])
        with pk.warpgroups(1):
            for _ in range(2):
                with ring.drain():
                    pass
        with pk.warpgroups(1):
            for _ in range(2):
                with ring.drain():
                    pass

    with pytest.raises(DeadlockError) as caught:
        kernel(ONES)
    waiting = [name for name, _, _ in caught.value.waits]
    assert len(waiting) == 2
    assert all("warpgroups of tests/emulate/" in name for name in waiting)


def test_a_stage_taken_twice_from_a_pipeline_of_one_deadlocks():
    @pk.kernel
    def kernel(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for _ in range(2):
                with ring.fill() as t:
                    pk.load_async(t, A[0])
        with pk.consumers(1), ring.drain(), ring.drain():
            pass

    with pytest.raises(DeadlockError, match="every role that has not ended waits"):
        kernel(ONES)


@pytest.mark.parametrize("seed", range(3))
def test_a_stage_is_full_when_all_who_fill_it_have_left_and_all_copies_have_landed(
    monkeypatch, seed
):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))

    @pk.kernel
    def kernel(A, C, n):
        ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(f32, 64, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(n):
                with ring.fill() as t:
                    pk.load_async(t.a, A[i])
        with pk.warps(2) as w:
            for i in pk.range(n):
                with ring.fill() as t:
                    pk.store(t.b.tiles(32, 64)[w], pk.zeros(f32, 32, 64) + 1.0)
        with pk.consumers(1):
            for i in pk.range(n):
                with ring.drain() as t:
                    c = pk.mma_AB(t.a, t.a)
                pk.store(C[i], c)
        with pk.storer():
            for i in pk.range(n):
                with ring.drain() as t:
                    pk.store_async(C[i + n], t.b)

    A, C = np.ones((4 * 64, 64), BF16), nan(8 * 64, 64)
    kernel(A, C, 4)
    assert (C[:256] == 64).all()
    assert (C[256:] == 1).all()


def test_a_cluster_takes_neighbouring_points_of_a_grid_once():
    @pk.kernel(cluster=2, inplace=True)
    def increment(x, y):
        (block,) = pk.grid(x.rows)
        with pk.warps(1):
            pk.store(y[block], pk.load(x[block], cols=8) + 1)

    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    expected = x + 1
    increment(x, x)
    assert np.array_equal(x, expected)
    with pytest.raises(
        pk.KernelError, match="a grid of 3 blocks cannot be divided into clusters of 2"
    ):
        increment(x[:3], x[:3])


def test_a_stage_that_nobody_drains_is_told():
    @pk.kernel
    def wasteful(x, out):
        ring = pk.pipeline(3, pk.st(bf16, 16, 16))
        (row,) = pk.grid(1)
        with pk.producer():
            for i in range(3):
                with ring.fill() as t:
                    pk.load_async(t, x[i, 0])
        with pk.storer(), ring.drain() as t:
            pk.store_async(out[row, 0], t)

    x = np.zeros((48, 16), ml_dtypes.bfloat16)
    with pytest.raises(pk.KernelError, match="`ring` was filled 3 times and drained 1 times"):
        wasteful(x, np.zeros_like(x))


@pk.kernel
def polls(y, flag):
    (block,) = pk.grid(2)
    if block == 0:
        found = pk.load(flag[0])
        while found < 1:
            found = pk.load(flag[0])
        pk.store(y[0], found)
    else:
        pk.signal(flag[0], 1)


@pk.kernel
def halves(y):
    pk.grid(1)
    pk.store(y[0], 2**20)
    while pk.load(y[0]) > 1:
        pk.sync()
        half = pk.load(y[0]) // 2
        pk.sync()
        pk.store(y[0], half)
        pk.sync()


def test_a_loop_that_only_another_block_can_end_is_a_deadlock():
    with pytest.raises(DeadlockError, match="a loop never ends"):
        polls(np.zeros(1, np.int32), np.zeros(1, np.int32))


def test_a_loop_that_changes_what_it_reads_ends():
    y = np.zeros(1, np.int32)
    halves(y)
    assert y[0] == 1


def test_blocks_that_have_ended_keep_no_memory_for_who_remembers_them():
    kept = []

    class Keeper(Watcher):
        def together(self, blocks, groups):
            kept.extend(blocks)

    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(f32, 64, 64))
        (row,) = pk.grid(y.rows // 64)
        pk.store(tile, pk.load(x[row], rows=64, cols=64))
        pk.sync()
        pk.store(y[row], pk.load(tile))

    x, y = np.ones((256, 64), np.float32), nan(256, 64)
    made = recorded(kernel, x, y)
    machine.run(made, {"x": x, "y": y}, {}, watch=Keeper())
    assert len(kept) == 4
    assert not any(block.rings or block.shared or block.copies for block in kept)
    assert np.array_equal(x, y)
