"""The groups of a role one after another."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from tests.running import put, stored


@pytest.mark.parametrize("seed", range(3))
def test_groups_take_turns_in_a_ring_whatever_the_schedule(monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))

    @pk.kernel
    def kernel(order, state, *, orderly: bool):
        pk.grid(1)
        hold = pk.semaphore(1, count=3)
        with pk.warps(3) as w:
            for i in pk.range(4):
                if orderly:
                    with pk.in_turn():
                        place = pk.load(state[0])
                        pk.store(order[place], w)
                        pk.store(state[0], place + 1)
                hold[w].arrive()
                hold[w].wait(i)

    order, state = np.full(12, -1, np.int32), np.zeros(1, np.int32)
    kernel(order, state, orderly=True)
    assert order.tolist() == [0, 1, 2] * 4


def test_two_blocks_in_turn_have_nothing_to_do_with_one_another():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        with pk.warps(2) as w:
            with pk.in_turn():
                put(out, w, 1)
            with pk.in_turn():
                put(out, w + 2, 2)
        with pk.producer(), pk.in_turn():
            put(out, 4, 3)

    assert stored(kernel) == [1, 1, 2, 2, 3, None, None, None]
