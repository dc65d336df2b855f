"""Copies between tensors and stages: bytes that are expected come, and views narrower than a panel are copied."""

import re

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import nvrtc
from tests.targets.compiling import matrix

BF16 = np.dtype(ml_dtypes.bfloat16)


@pk.kernel
def strips(x, y):
    """Tiles of 64 columns filled and emptied in strips."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent(y.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                for j in range(4):
                    pk.load_async(t.tiles(64, 16)[0, j], x[row, col * 4 + j])
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as t:
                for j in range(2):
                    pk.store_async(y[row, col * 2 + j], t.tiles(64, 32)[0, j])


@pytest.mark.parametrize("aligned", [True, False])
def test_a_view_narrower_than_a_panel_is_copied_by_the_lanes(aligned):
    x, y = matrix(128, 128, aligned=aligned), matrix(128, 128, aligned=aligned)
    text = strips.source(x, y)
    kernel = text[text.index('extern "C"') :]
    assert kernel.count("copy_in<64, 16,") == 4
    assert kernel.count("copy_out<64, 32,") == 2
    assert "expect" not in kernel
    # The part of a row is swizzled with its place in the panel.
    assert "(32) % 128" in kernel
    if nvrtc.available() is None:
        assert strips.compile(x, y).resources.spills == ()


def test_strips_are_right_in_the_emulator():
    x = np.random.default_rng(0).standard_normal((100, 200)).astype(BF16)
    y = np.full_like(x, np.nan)
    strips(x, y)
    assert (x == y).all()


@pk.kernel
def tasks_inside(x, y):
    """A stage that the copies of all tasks of the block go to."""
    ring = pk.pipeline(1, pk.st(f32, 64, 32))
    tasks = pk.persistent((2,))
    with pk.producer(), ring.fill() as t:
        for (i,) in tasks:
            pk.load_async(t.tiles(32, 32)[i], x[i, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[0, 0], t)


def test_copies_in_a_loop_over_tasks_expect_their_own_bytes():
    args = [matrix(64, 32, dtype=np.dtype(np.float32)) for _ in range(2)]
    text = tasks_inside.source(*args)
    loop = text.index("for (int task")
    assert re.search(r"barrier_expect\(t_full, 4096\);\s+copy_box", text[loop:])
    assert "barrier_arrive_expect(t_full" not in text
