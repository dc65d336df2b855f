"""Views of a ring: the memory of its stages, seen as different tiles."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, LanguageError
from pykittens.ir.text import text
from pykittens.targets.architectures import TARGETS
from pykittens.targets.cuda.program import emit
from tests.running import recorded


@pk.kernel
def sums(x, ids, factors, y):
    """Row i of y: the sums of the columns of a tile, plus numbers, plus the product of two rows of factors."""
    pk.grid(1)
    ring = pk.pipeline(2, pk.st(pk.f32, 16, 64))
    numbers = ring.view(pk.sv(pk.int32, 64))
    pair = ring.view(a=pk.sv(pk.f32, 64), b=pk.sv(pk.f32, 64))
    with pk.producer():
        for i in pk.range(3):
            with ring.fill() as t:
                pk.load_async(t, x[i, 0])
            with numbers.fill() as t:
                pk.load_async(t, ids[i, 0])
            with pair.fill() as t:
                pk.load_async(t.a, factors[0, 0])
                pk.load_async(t.b, factors[i, 0])
    with pk.warps(1):
        for i in pk.range(3):
            with ring.drain() as t:
                total = pk.col_sum(pk.load(t))
            with numbers.drain() as t:
                total = total + pk.load(t, spread=pk.per_column).to(pk.f32)
            with pair.drain() as t:
                a, b = (pk.load(v, spread=pk.per_column) for v in (t.a, t.b))
            pk.store(y[i, 0], total + a * b)


def arguments():
    rng = np.random.default_rng(0)
    x, factors = (rng.integers(-9, 10, (n, 64)).astype(np.float32) for n in (48, 3))
    ids = rng.integers(-9, 10, (3, 64)).astype(np.int32)
    return x, ids, factors, np.full((3, 64), np.nan, np.float32)


def test_a_stage_is_what_its_view_says():
    x, ids, factors, y = arguments()
    sums(x, ids, factors, y)
    assert (y == x.reshape(3, 16, 64).sum(axis=1) + ids + factors[0] * factors).all()
    assert pk.check(sums, x, ids, factors, y).ok


def test_views_share_the_memory_of_a_stage():
    made = recorded(sums, *arguments())
    assert "ring: 2 x (st<f32, 16x64> or sv<int32, 64> or a: sv<f32, 64>, b: sv<f32, 64>)" in (
        text(made)
    )
    assert made.pipelines[0].stage_bytes == 4096
    found = emit(made, TARGETS["sm_90a"])
    assert found.shared_bytes == 2 * 4096 + 32
    assert "b = ring + 4096 * ring_fill.stage + 1024;" in found.program


def test_what_is_filled_in_one_view_is_drained_in_the_same():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        ring = pk.pipeline(2, pk.st(pk.f32, 16, 64))
        halves = ring.view(pk.st(pk.f32, 64, 16))
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, x[0, 0])
        with pk.warps(1), halves.drain() as t:
            pk.store(y[0, 0], pk.load(t))

    message = "stage 0 of `ring` was filled as st<f32, 16x64> and is drained as st<f32, 64x16>"
    x, y = np.zeros((16, 64), np.float32), np.zeros((64, 16), np.float32)
    with pytest.raises(AccessError, match=message):
        kernel(x, y)
    (finding,) = pk.check(kernel, x, y).findings
    assert "was filled as st<f32, 16x64>" in finding.message


@pytest.mark.parametrize(
    ("tiles", "named", "message"),
    [
        ((), {}, "`tile` must be one tile, or left out for named tiles"),
        ((3,), {}, "`tile` must be a shared tile such as .*, not 3"),
        ((), {"a": pk.f32}, "`a` must be a shared tile such as .*, not"),
    ],
)
def test_wrong_tiles_are_refused(tiles, named, message):
    @pk.kernel
    def kernel(x):
        pk.grid(1)
        pk.pipeline(2, pk.st(pk.f32, 16, 64)).view(*tiles, **named)

    with pytest.raises(LanguageError, match=message):
        recorded(kernel, np.zeros(16, np.float32))


def test_a_view_is_made_before_the_roles():
    @pk.kernel
    def kernel(x):
        pk.grid(1)
        ring = pk.pipeline(2, pk.st(pk.f32, 16, 64))
        with pk.producer():
            ring.view(pk.sv(pk.int32, 64))

    with pytest.raises(LanguageError, match="view: must be before the roles"):
        recorded(kernel, np.zeros(16, np.float32))
