"""Semaphores in the emulator: a wait makes earlier writes visible, and a read without a wait gives NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from tests.running import put, stored

BF16 = np.dtype(ml_dtypes.bfloat16)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def test_a_copy_is_not_seen_before_its_semaphore_has_been_waited_for():
    @pk.kernel
    def kernel(x, y):
        tile, full = pk.shared(pk.st(f32, 64, 16)), pk.semaphore(1)
        pk.grid(1)
        pk.store(tile, pk.zeros(f32, 64, 16))
        full.expect(tile)
        pk.load_async(tile, x[0], signal=full)
        pk.store(y[0], pk.load(tile))
        full.wait(0)
        pk.store(y[1], pk.load(tile))

    x, y = np.ones((64, 16), np.float32), np.zeros((128, 16), np.float32)
    kernel(x, y)
    assert np.isnan(y[:64]).all()
    assert (y[64:] == 1).all()


def test_a_tile_that_is_filled_again_too_early_is_found():
    @pk.kernel
    def kernel(x, y, *, waits: bool):
        tile, full, empty = pk.shared(pk.st(f32, 64, 16)), pk.semaphore(1), pk.semaphore(1)
        pk.grid(1)
        with pk.producer():
            for i in pk.range(4):
                if waits:
                    empty.wait(i + 1)
                full.expect(tile)
                pk.load_async(tile, x[i, 0], signal=full)
        with pk.warpgroups(1):
            for i in pk.range(4):
                full.wait(i)
                pk.store(y[i, 0], pk.load(tile))
                empty.arrive()

    x, y = np.arange(4096, dtype=np.float32).reshape(256, 16), nan(256, 16)
    kernel(x, y, waits=True)
    assert np.array_equal(x, y)
    with pytest.raises(
        pk.KernelError, match="full: one arrival more than the 1 that complete a phase"
    ):
        kernel(x, nan(256, 16), waits=False)


def test_bytes_of_several_copies_complete_one_phase_with_a_run_time_count_of_them():
    @pk.kernel
    def kernel(x, y, n):
        tile, full = pk.shared(pk.st(bf16, 128, 32)), pk.semaphore(2)
        pk.grid(1)
        with pk.producer():
            full.expect(n * 2048)
            for i in pk.range(n):
                pk.load_async(tile.tiles(32, 32)[i], x[i, 0], signal=full)
        with pk.warpgroups(1):
            full.arrive()
            full.wait(False)
            pk.store(y[0], pk.load(tile))

    x, y = np.ones((128, 32), BF16), np.zeros((128, 32), BF16)
    kernel(x, y, 3)
    assert (y[:96] == 1).all()
    assert np.isnan(y[96:].astype(np.float32)).all()


def test_the_phase_before_the_first_counts_as_complete():
    @pk.kernel
    def kernel(out):
        full = pk.semaphore(1)
        pk.grid(1)
        full.wait(1)
        full.wait(True)
        put(out, 0, 1)
        full.arrive()
        full.wait(0)
        full.wait(2)
        put(out, 1, 2)

    assert stored(kernel)[:3] == [1, 2, None]


def test_an_index_outside_several_semaphores_is_told_when_it_is_used():
    @pk.kernel
    def kernel(out, i):
        full = pk.semaphore(1, count=3)
        pk.grid(1)
        full[i].arrive()

    assert stored(kernel, 2)[0] is None
    with pytest.raises(pk.KernelError, match="index 3 is outside the 3 of `full`"):
        stored(kernel, 3)
