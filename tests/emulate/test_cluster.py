"""Clusters in the emulator: multicast into views, and tasks that a cluster cannot share."""

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16


@pk.kernel(cluster=2)
def halves(x, out):
    """Copies tiles that both blocks of a cluster fetch together, in two views."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 128))
    tasks = pk.persistent(out.tiles(64, 128), cluster_axis=0)
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                for i in range(2):
                    pk.load_async(t.tiles(64, 64)[0, i], x[0, col * 2 + i], multicast=True)
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as t:
                pk.store_async(out[row, col], t)


@pk.kernel(cluster=2)
def planes(x, out):
    """Copies rank 3 tensors, a plane a block."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent(out.tiles(64, 64), cluster_axis=0)
    with pk.producer():
        for plane, row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[plane, row, col])
    with pk.storer():
        for plane, row, col in tasks:
            with ring.drain() as t:
                pk.store_async(out[plane, row, col], t)


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_multicast_into_views(seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    x = np.random.default_rng(0).standard_normal((64, 300)).astype(ml_dtypes.bfloat16)
    out = np.full((190, 300), np.nan, ml_dtypes.bfloat16)
    halves(x, out)
    for row in range(0, 190, 64):
        part = out[row : row + 64]
        assert np.array_equal(part, x[: len(part)])


def test_a_leading_axis_must_fill_its_clusters():
    x = np.ones((4, 70, 70), ml_dtypes.bfloat16)
    out = np.zeros_like(x)
    planes(x, out)
    assert np.array_equal(out, x)
    with pytest.raises(
        pk.KernelError, match="3 tasks along axis 0 cannot be shared by clusters of 2"
    ):
        planes(x[:3], out[:3])
