"""Kernels in place that fetch tiles ahead: right if each task writes the tile that it fetched, and a race otherwise."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.emulate.finding import Kind
from tests.races import faults


@pk.kernel(inplace=True)
def doubled_ahead(x, y, *, of: int, by: str):
    """Each task doubles a tile of x into y, while the producer fetches those of the next tasks."""
    pk.overlap()
    ring = pk.pipeline(3, pk.st(f32, 64, 64))
    made = pk.pipeline(1, pk.st(f32, 64, 64))
    tasks = pk.persistent((pk.cdiv(y.rows, 64),))
    with pk.producer():
        for (row,) in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[row + of])
    with pk.warpgroups(1):
        for (row,) in tasks:
            with ring.drain() as t:
                doubled = 2 * pk.load(t)
            if by == "lanes":
                pk.store(y[row], doubled)
            else:
                with made.fill() as t:
                    pk.store(t, doubled)
    if by == "engine":
        with pk.storer():
            for (row,) in tasks:
                with made.drain() as t:
                    pk.store_async(y[row], t)


WAYS = pytest.mark.parametrize("by", ["lanes", "engine"])


def numbers() -> np.ndarray:
    return np.arange(500 * 64, dtype=np.float32).reshape(500, 64)


@WAYS
def test_tiles_that_are_fetched_ahead_may_be_written_in_place(by):
    x, y = numbers(), np.zeros((500, 64), np.float32)
    assert faults(doubled_ahead, x, x, of=0, by=by) == set()
    doubled_ahead(x, x, of=0, by=by)
    assert np.array_equal(x, 2 * numbers())
    doubled_ahead(x, y, of=0, by=by)
    assert np.array_equal(y, 4 * numbers())


@WAYS
@pytest.mark.parametrize("of", [-1, 1])
def test_a_tile_that_is_fetched_ahead_and_that_another_task_writes_is_found(of, by):
    x, y = numbers(), np.zeros((500, 64), np.float32)
    assert Kind.BLOCK_CONFLICT in faults(doubled_ahead, x, x, of=of, by=by)
    assert faults(doubled_ahead, x, y, of=of, by=by) == set()
