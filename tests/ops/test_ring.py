"""Questions whether a ring is full: what they answer, and who may ask."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import LanguageError, TypeMismatch
from pykittens.runtime import nvrtc
from tests.running import recorded

STAGES, COUNT = 3, 5
X = np.arange(COUNT * 64, dtype=np.float32).reshape(COUNT, 64)


@pk.kernel
def asked_at_each_fill(x, y, answers):
    """The consumer takes the first stage when the producer has asked for the one behind all."""
    ring, asked = pk.pipeline(STAGES, pk.sv(pk.f32, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        for i in pk.range(COUNT):
            pk.store(answers[i], ring.is_full().to(pk.int32))
            if i == STAGES:
                asked.arrive()
            with ring.fill() as t:
                pk.load_async(t, x[i])
    with pk.consumers(1):
        asked.wait(0)
        for i in pk.range(COUNT):
            with ring.drain() as t:
                pk.store(y[i], pk.load(t))


def test_a_ring_is_full_when_no_stage_is_free():
    y, answers = np.zeros_like(X), np.full(COUNT, -1, np.int32)
    asked_at_each_fill(X, y, answers)
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(answers[: STAGES + 1], [0] * STAGES + [1])


@pk.kernel
def asked_by_others(x, y):
    ring = pk.pipeline(2, pk.sv(pk.f32, 64))
    pk.grid(1)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[0])
    with pk.warps(1):
        if ring.is_full():
            pk.store(y[0], pk.zeros(pk.f32, 64))
    with pk.consumers(1), ring.drain() as t:
        pk.store(y[1], pk.load(t))


def test_the_role_that_fills_asks():
    with pytest.raises(LanguageError, match="is_full: the role does not fill `ring`"):
        recorded(asked_by_others, X, X.copy())


@pk.kernel
def asked_by_many(x, y):
    ring = pk.pipeline(2, pk.sv(pk.f32, 64))
    pk.grid(1)
    with pk.consumers(1):
        if not ring.is_full(after=10):
            pk.store(y[0], pk.zeros(pk.f32, 64))
        with ring.fill() as t:
            pk.load_async(t, x[0])
    with pk.warps(1), ring.drain() as t:
        pk.store(y[1], pk.load(t))


def test_one_warp_asks():
    with pytest.raises(TypeMismatch, match="of 1 warp, not of 4"):
        recorded(asked_by_many, X, X.copy())


@pk.kernel
def two_rings(x, y):
    """The producer asks for a ring between its fills of it and of another."""
    a, b = (pk.pipeline(2, pk.sv(pk.f32, 64)) for _ in range(2))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(x.rows):
            with a.fill() as t:
                pk.load_async(t, x[i])
            if a.is_full():
                pk.prefetch(x[i], cols=64)
            with b.fill() as t:
                pk.load_async(t, x[i])
    with pk.consumers(1):
        for i in pk.range(x.rows):
            with a.drain() as s, b.drain() as t:
                pk.store(y[i], pk.load(s) + pk.load(t))


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
def test_a_question_finds_the_position_of_its_own_ring():
    """A role that fills two rings in turn has one position for both, unless it asks in between."""
    y = np.zeros_like(X)
    two_rings(X, y)
    np.testing.assert_array_equal(y, 2 * X)
    text = str(two_rings.compile(X, y, arch="sm_90a").source.text)
    (asked,) = (
        line for line in text.splitlines() if "barrier_goes_on(" in line and "DEVICE" not in line
    )
    assert "barrier_goes_on(a_empty + 8 * a_fill.stage, a_fill.phase ^ 1, 0)" in asked
    assert "a_fill.next();" in text
    assert "b_fill.next();" in text
