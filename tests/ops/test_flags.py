"""Flags: blocks that wait for one another run at once and see what was written before."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.ir.nodes import waits_for_flags
from tests.running import recorded


@pk.kernel
def backwards(x, y, flags):
    """Block i waits for block i + 1."""
    (block,) = pk.grid(x.rows)
    if block + 1 < x.rows:
        pk.wait(flags[block + 1], 1)
        pk.store(y[block], pk.load(x[block], cols=8) + pk.load(y[block + 1], cols=8))
    else:
        pk.store(y[block], pk.load(x[block], cols=8))
    pk.signal(flags[block], 1)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_wait_for_later_ones_run_at_once(monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    x = np.arange(48, dtype=np.int32).reshape(6, 8)
    y, flags = np.zeros_like(x), np.zeros(6, np.int32)
    backwards(x, y, flags)
    assert np.array_equal(y, np.cumsum(x[::-1], 0)[::-1])
    assert (flags == 1).all()
    assert waits_for_flags(recorded(backwards, x, y, flags))


def test_blocks_of_a_persistent_kernel_meet_at_a_counter():
    @pk.kernel
    def kernel(y, counter):
        tasks = pk.persistent((4,))
        with pk.warps(1):
            for (task,) in tasks:
                pk.store(y[0, task], pk.zeros(f32, 8) + 1)
                pk.signal(counter[0], 2, op="add")
                pk.wait(counter[0], 8)
                pk.store(y[1, task], pk.load(y[0, 3 - task], cols=8))

    y, counter = np.zeros((2, 32), np.float32), np.zeros(1, np.int32)
    kernel(y, counter)
    assert (y == 1).all()
    assert counter[0] == 8


def test_an_asynchronous_store_is_not_seen_by_others_before_the_wait_for_all_of_it():
    @pk.kernel
    def kernel(y, z, flags, *, read: bool):
        tile = pk.shared(pk.st(f32, 64, 16))
        (block,) = pk.grid(2)
        if block == 0:
            pk.publish(tile, pk.zeros(f32, 64, 16) + 1)
            pk.store_async(y[0], tile)
            pk.store_wait(read=read)
            pk.signal(flags[0], 1)
        else:
            pk.wait(flags[0], 1)
            pk.store(z[0], pk.load(y[0], rows=64, cols=16))

    def run(read: bool) -> np.ndarray:
        y, z = np.zeros((64, 16), np.float32), np.zeros((64, 16), np.float32)
        kernel(y, z, np.zeros(1, np.int32), read=read)
        assert (y == 1).all()
        return z

    assert (run(read=False) == 1).all()
    assert (run(read=True) == 0).all()


def test_an_asynchronous_store_reads_its_tile_when_it_is_waited_for():
    @pk.kernel
    def kernel(y, *, waits: bool):
        tile = pk.shared(pk.st(f32, 64, 16))
        pk.grid(1)
        for i in range(2):
            pk.store(tile, pk.zeros(f32, 64, 16) + float(i))
            pk.store_async(y[i], tile)
            if waits:
                pk.store_wait(read=True)

    right, wrong = np.zeros((2, 64, 16), np.float32), np.zeros((2, 64, 16), np.float32)
    kernel(right.reshape(128, 16), waits=True)
    kernel(wrong.reshape(128, 16), waits=False)
    assert [a.mean() for a in right] == [0, 1]
    assert [a.mean() for a in wrong] == [1, 1]
