"""The emulator finds what a GPU would hang on, read too early or write wildly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate import machine
from pykittens.errors import AccessError, DeadlockError
from pykittens.ir.nodes import WaitProducts, walk
from tests.running import UNWRITTEN, first, put, recorded, stored

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
    assert set(told) == {"consumers 0", "consumers 1"}
    line = kernel.function.__code__.co_firstlineno + 10
    where = rf"ring.drain() at tests/emulate/test_machine.py:{line}"
    assert all(where in t and "stage 1 to be full, 0 of 1 arrived" in t for t in told.values())


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
    assert len(caught.value.operands) == 2
    assert all("warpgroups of tests/emulate/" in name for name in caught.value.operands)


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

    with pytest.raises(DeadlockError, match="every role that is left waits"):
        kernel(ONES)


@pytest.mark.parametrize("seed", range(3))
def test_a_stage_is_full_when_all_who_fill_it_have_left_and_all_copies_have_landed(monkeypatch, seed):
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


def test_a_tile_read_without_its_wait_is_a_fault_of_the_wait_pass():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, A[0])
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_AB(t, t)
            pk.store(C[0], c)

    C = nan(64, 64)
    made = recorded(kernel, ONES, C)
    for role in made.roles:
        role.body.nodes[:] = [n for n in role.body.nodes if not isinstance(n, WaitProducts)]
    assert not any(isinstance(n, WaitProducts) for n in walk(made.body))
    with pytest.raises(AssertionError, match="read before its wait"):
        machine.run(made, {"A": ONES, "C": C}, {})
    assert np.isnan(C).all()


def test_what_was_never_filled_reads_as_nan():
    @pk.kernel
    def kernel(C):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill():
            pass
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_AB(t, t)
            pk.store(C[0], c)

    C = np.zeros((64, 64), np.float32)
    kernel(C)
    assert np.isnan(C).all()


def test_a_leading_index_outside_its_axis_is_a_wild_access():
    @pk.kernel
    def kernel(x, i):
        pk.grid(1)
        t = pk.load(x[i, 0], cols=8)
        pk.store(x[0, 1], t)

    x = np.zeros((3, 2, 8), np.float32)
    kernel(x, 2)
    for i in (3, -1):
        with pytest.raises(AccessError, match=f"index {i} of axis 0 is outside `x`") as caught:
            kernel(x, i)
        assert "pk.load(x[i, 0], cols=8)" in str(caught.value)


def test_a_part_outside_its_tile_is_a_wild_access():
    @pk.kernel
    def kernel(A, i):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t.tiles(32, 64)[i], A[0])
        with pk.storer(), ring.drain() as t:
            pk.store_async(A[0], t)

    with pytest.raises(AccessError, match=r"part \(2, 0\) of 32x64 is outside a shared tile of 64x64"):
        kernel(ONES.copy(), 2)


@pytest.mark.parametrize("row", [-70, -1, 1, 4, 1000])
def test_the_last_two_axes_have_edges(row):
    @pk.kernel
    def kernel(x, y, row):
        pk.grid(1)
        pk.store(y[0], pk.load(x[row], rows=64, cols=32, fill=3))
        pk.store(x[row], pk.zeros(f32, 64, 32) + 7.0)

    x = np.arange(300 * 20, dtype=np.float32).reshape(300, 20)
    before, y = x.copy(), nan(64, 32)
    kernel(x, y, row)
    inside = np.zeros((300, 20), bool)
    inside[max(row * 64, 0) : max(row * 64 + 64, 0)] = True
    expected = np.full((64, 32), 3.0)
    for i in range(64):
        if 0 <= row * 64 + i < 300:
            expected[i, :20] = before[row * 64 + i]
    assert np.array_equal(y, expected)
    assert (x[inside] == 7).all()
    assert np.array_equal(x[~inside], before[~inside])


def test_coordinates_and_integers_that_overflow_are_refused():
    @pk.kernel
    def tile(x, i):
        pk.grid(1)
        pk.store(x[0], pk.load(x[i, 0], rows=64, cols=16))

    x = np.zeros((64, 16), np.float32)
    tile(x, 2**25 - 1)
    for i in (2**25, -(2**25) - 1):
        with pytest.raises(AccessError, match=r"the coordinate -?\d+ in `x` overflows an int32"):
            tile(x, i)

    @pk.kernel
    def number(out, n):
        pk.grid(1)
        put(out, 0, n * 2 - n * 2 + 1)

    assert first(number, 2**30 - 1) == 1
    with pytest.raises(AccessError, match="mul: 2147483648 overflows an int32"):
        first(number, 2**30)


def test_a_division_by_zero_is_refused_where_it_stands():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, 7 // n)

    assert first(kernel, -2) == -4
    with pytest.raises(AccessError, match="7 is divided by 0") as caught:
        first(kernel, 0)
    assert "7 // n" in str(caught.value)


def test_what_is_stored_outside_is_dropped():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, n, 1)

    out = np.full((2, 8), UNWRITTEN, np.int32)
    kernel(out, 2)
    assert (out == UNWRITTEN).all()
    assert stored(kernel, 1, rows=2) == [None, 1]
