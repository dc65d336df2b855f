"""Shared memory outside pipelines: names, scope and indices."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.ir.text import text
from tests.running import recorded


def test_shared_vectors_and_tiles_named_outside_roles_are_seen_in_all():
    @pk.kernel
    def kernel(x, y):
        rows = pk.shared(pk.sv(f32, 64), count=2)
        full = pk.semaphore(1)
        pk.grid(1)
        second = rows[1]
        with pk.warps(1):
            pk.store(second, pk.load(x[0], cols=64) + 1)
            full.arrive()
        with pk.warps(1):
            full.wait(0)
            pk.store(y[0], pk.load(second))

    x, y = np.ones((1, 64), np.float32), np.full((1, 64), np.nan, np.float32)
    kernel(x, y)
    assert (y == 2).all()


def test_shared_memory_takes_the_name_it_is_given_and_stands_in_the_text():
    @pk.kernel
    def kernel(x):
        tiles, full = pk.shared(pk.st(f32, 64, 16), count=3), pk.semaphore(2)
        pk.grid(1)
        assert len(tiles) == 3
        full.arrive()
        pk.store(x[0], pk.load(tiles[2]))

    shown = text(recorded(kernel, np.zeros((64, 16), np.float32)))
    assert "  shared tiles: 3 x st<f32, 64x16>\n  shared full: semaphore<2>\n" in shown
    assert "arrive(semaphore=full)" in shown


def test_shared_memory_holds_no_number_before_it_is_written():
    @pk.kernel
    def kernel(y):
        tile = pk.shared(pk.st(f32, 64, 16))
        pk.grid(1)
        pk.store(y[0], pk.load(tile))

    y = np.zeros((64, 16), np.float32)
    kernel(y)
    assert np.isnan(y).all()


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_a_count_is_a_positive_int(count):
    @pk.kernel
    def kernel(y):
        pk.semaphore(1, count=count)
        pk.grid(1)

    with pytest.raises(pk.KernelError, match="`count` must be a positive compile-time int"):
        kernel(np.zeros(8, np.float32))
