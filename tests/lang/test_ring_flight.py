"""`flight=` of a pipeline: at most so many of its stages wait for their copies."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.emulate.watch import Watcher
from pykittens.errors import DeadlockError, LanguageError
from pykittens.runtime.arguments import check, scalars

LENGTH = 64


def copying(stages, flight, held=1):
    @pk.kernel
    def copies(x, y):
        """y = x, a row a stage."""
        (block,) = pk.grid(1)
        ring = pk.pipeline(stages, pk.sv(pk.f32, LENGTH), flight=flight)
        with pk.producer():
            for i in pk.range(x.rows // held):
                with ring.fill() as a:
                    pk.load_async(a, x[i * held, 0])
                    if held == 2:
                        with ring.fill() as b:
                            pk.load_async(b, x[i * held + 1, 0])
        with pk.warps(1):
            for i in pk.range(x.rows):
                with ring.drain() as a:
                    pk.store(y[i, 0], pk.load(a))

    return copies


class Landing(Watcher):
    """The most stages whose copies have not landed."""

    def __init__(self):
        self.now = self.most = 0

    def starts_copy(self, group, call, copy):
        self.now += 1
        self.most = max(self.most, self.now)

    def lands(self, copy):
        self.now -= 1


def most_in_flight(kernel, rows, seed):
    x = np.random.default_rng(0).standard_normal((rows, LENGTH), np.float32)
    y = np.full_like(x, np.nan)
    arguments, watch = check(kernel.parameters, (x, y), {}), Landing()
    machine.run(kernel.record(arguments), {"x": x, "y": y}, scalars(arguments), seed, watch)
    np.testing.assert_array_equal(y, x)
    return watch.most


RINGS = [(s, f) for s in (1, 2, 3, 5) for f in (1, 2, 3, 5, None) if f is None or f <= s]


@pytest.mark.parametrize(("stages", "flight"), RINGS)
def test_so_many_stages_are_on_their_way(stages, flight):
    kernel = copying(stages, flight)
    for seed in range(6):
        most = most_in_flight(kernel, 13, seed)
        assert most <= (flight or stages)
        if seed == 0:  # copies land as late as they can
            assert most == (flight or stages)


def test_a_ring_with_a_flight_is_checked_and_compiled():
    x = np.ones((7, LENGTH), np.float32)
    kernel = copying(4, 3)
    assert pk.check(kernel, x, x.copy(), schedules=8).ok
    for arch in ("sm_80", "sm_90a"):
        assert "before<3>()" in kernel.source(x, x, arch=arch)
        assert kernel.compile(x, x, arch=arch).resources.spills == ()


@pytest.mark.parametrize("flight", [0, 4, 1.5, "2"])
def test_a_flight_is_from_1_to_the_stages(flight):
    x = np.ones((3, LENGTH), np.float32)
    with pytest.raises(LanguageError, match="`flight` must be a compile-time int from 1 to 3"):
        copying(3, flight)(x, x.copy())


def test_a_stage_that_waits_for_one_that_is_still_filled_is_a_deadlock():
    x = np.ones((4, LENGTH), np.float32)
    with pytest.raises(DeadlockError, match=r"ring.fill\(\) at .* to be full"):
        copying(3, 1, held=2)(x, x.copy())
