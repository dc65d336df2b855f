"""Functions composed of operations."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.text import text
from tests.ops.kernels import normal, poisoned
from tests.running import recorded


def softmax_by_parts(parts, o_of):
    """The kernel's online softmax over parts of a row, in one launch: m, l and the sum of p as columns."""

    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        m, l, total = None, None, pk.zeros(f32, 64, 16)
        for i in range(parts):
            s = pk.load(x[0, i], rows=64, cols=16)
            p, m, l, alpha = pk.online_softmax(s, pk.log2e, m, l, to=f32)
            total = p if alpha is None else total * alpha + p
        pk.store(y[0], pk.normalize(total, l))

    x = o_of(normal(0, (64, 16 * parts)))
    y = poisoned((64, 16), np.float32)
    kernel(x, y)
    return x.astype(np.float64), y


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_softmax_seen_in_parts_is_that_of_the_whole_row(parts):
    x, y = softmax_by_parts(parts, lambda x: x)
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True)).reshape(64, parts, 16).sum(axis=1)
    assert np.allclose(y, p, rtol=1e-5 * parts, atol=0)


def test_a_row_that_saw_nothing_gives_zero_and_one_that_saw_it_late_is_right():
    def holes(x):
        x[3] = -np.inf
        x[4, :16] = -np.inf
        return x

    x, y = softmax_by_parts(2, holes)
    assert (y[3] == 0).all()
    p = np.exp(x[4] - x[4].max())
    assert np.allclose(y[4], (p / p.sum()).reshape(2, 16).sum(axis=0), rtol=1e-5)
    assert np.isfinite(y).all()


def test_p_is_rounded_and_its_sum_is_not():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        p, m, l, alpha = pk.online_softmax(pk.load(x[0], rows=64, cols=16), 1.0, to=bf16)
        assert (str(p.type), str(l.type), alpha) == (
            "rt<bf16, 64x16>",
            "rv<f32, 64, per row>",
            None,
        )
        pk.store(y[0, 0], p.to(f32))
        pk.store(y[0, 1], pk.zeros(f32, 64, 16) + l)

    x, y = normal(0, (64, 16)), poisoned((64, 32), np.float32)
    kernel(x, y)
    p = np.exp2(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.array_equal(y[:, :16], y[:, :16].astype(bf16.numpy))
    assert np.allclose(y[:, 16], p.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_publish_is_a_store_a_fence_and_a_sync(transposed):
    @pk.kernel
    def kernel(x, y, *, at_once):
        tile = pk.shared(pk.st(f32, 16, 64) if transposed else pk.st(f32, 64, 16))
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=16)
        if at_once:
            pk.publish(tile, t, transposed=transposed)
        else:
            pk.store(tile, t, transposed=transposed)
            pk.fence_async()
            pk.sync()
        pk.store_async(y[0], tile)

    x = normal(0, (64, 16))
    y = poisoned((16, 64) if transposed else (64, 16), np.float32)
    texts = [text(recorded(kernel, x, y, at_once=at_once)) for at_once in (True, False)]
    assert texts[0] == texts[1]
    kernel(x, y, at_once=True)
    assert (y == (x.T if transposed else x)).all()
    assert pk.check(kernel, x, y, at_once=True).ok


def test_a_vector_and_a_tile_of_a_stage_are_published():
    @pk.kernel
    def kernel(x, w, y, z):
        ring, weights = pk.pipeline(2, pk.st(f32, 64, 16)), pk.shared(pk.sv(f32, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(4):
                with ring.fill() as s:
                    pk.load_async(s, x[i])
        with pk.consumers(1):
            pk.publish(weights, pk.load(w, cols=64))
            pk.store_async(z, weights)
            for i in pk.range(4):
                with ring.drain() as s:
                    t = pk.load(s)
                    pk.sync()
                    pk.publish(s, 2 * t)
                    pk.store_async(y[i], s)

    x, w = normal(0, (256, 16)), normal(1, (1, 64))
    y, z = poisoned(x.shape, np.float32), poisoned(w.shape, np.float32)
    assert pk.check(kernel, x, w, y, z).ok
    kernel(x, w, y, z)
    assert (y == 2 * x).all()
    assert (z == w).all()
