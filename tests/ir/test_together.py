"""Loads that wait for tags stand side by side, as far as nothing between them needs the first or may not move."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.ir.nodes import all_blocks
from pykittens.ir.passes.together import MOST, runs
from tests.running import recorded

TAG = 5
AT_ONCE = MOST // 2  # a lane of a warp has two of 64 elements
BITS = np.arange(1024, dtype=np.float32).view(np.int32) & ~15 | TAG
X = BITS.view(np.float32)
EXACT = (BITS & ~15).view(np.float32)


def apart(x, out, n, w):
    """Numbers between two loads do not depend on the first."""
    a = pk.load_tagged(x[n], TAG, cols=64)
    at = n * 2 + 1
    b = pk.load_tagged(x[at], TAG, cols=64)
    pk.store(out[0], a + b)


def in_turn(x, out, n, w):
    """The second load needs the first."""
    a = pk.load_tagged(x[n], TAG, cols=64)
    b = pk.load_tagged(x[pk.minimum(pk.max(a).to(pk.int32), 3)], TAG, cols=64)
    pk.store(out[0], a + b)


def around_a_store(x, out, n, w):
    """A store between them stays there."""
    a = pk.load_tagged(x[n], TAG, cols=64)
    pk.store(out[1], a)
    b = pk.load_tagged(x[2 * n + 1], TAG, cols=64)
    pk.store(out[0], a + b)


def after_the_first(x, out, n, w):
    """A number that depends on the first load stays between them."""
    a = pk.load_tagged(x[n], TAG, cols=64)
    top = pk.max(a)
    b = pk.load_tagged(x[2 * n + 1], TAG, cols=64)
    pk.store(out[0], a + b + (top - top))


def many(x, out, n, w):
    """More than wait together."""
    total = pk.zeros(f32, 64)
    for v in [pk.load_tagged(x[n + i], TAG, cols=64) for i in range(AT_ONCE + 2)]:
        total = total + v
    pk.store(out[0], total)


@pk.function
def in_a_loop(x, out, n, w):
    """Both loads of each pass."""
    total = pk.zeros(f32, 64)
    for i in pk.range(n + 2):
        a = pk.load_tagged(x[i], TAG, cols=64)
        b = pk.load_tagged(x[i + 1], TAG, cols=64)
        total = total + a + b
    pk.store(out[0], total)


def sum_of(*places):
    return sum(EXACT.reshape(-1, 64)[i] for i in places)


@pytest.mark.parametrize(
    ("body", "lengths", "wanted"),
    [
        (apart, [2], sum_of(1, 3)),
        (in_turn, [1, 1], sum_of(1, 3)),
        (around_a_store, [1, 1], sum_of(1, 3)),
        (after_the_first, [1, 1], sum_of(1, 3)),
        (many, [AT_ONCE, 2], sum_of(*range(1, AT_ONCE + 3))),
        (in_a_loop, [2], sum_of(0, 1, 1, 2, 2, 3)),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_loads_wait_together_and_give_the_same(body, lengths, wanted):
    @pk.kernel
    def kernel(x, out, n):
        pk.grid(1)
        with pk.warps(1) as w:
            body(x, out, n, w)

    out = np.full(128, np.nan, np.float32)
    kernel(X, out, 1)
    np.testing.assert_array_equal(out[:64], wanted)
    found = [
        run
        for r in recorded(kernel, X, out, 1).roles
        for b in all_blocks(r.body)
        for run in runs(b, lambda v: v.type.length // 32)
    ]
    assert [len(run) for run in found] == lengths
    text = kernel.source(X, out, 1)
    assert text[text.index('extern "C"') :].count("for (bool waits = true; waits;)") >= len(lengths)
