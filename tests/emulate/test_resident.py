"""Launches of which some blocks start only when others have ended, as on a GPU that other work occupies."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.errors import DeadlockError
from tests.running import recorded


@pk.kernel
def in_pairs(y, flags):
    """Block 2i waits for block 2i + 1."""
    (block,) = pk.grid(y.rows)
    if block % 2 == 0:
        pk.wait(flags[block + 1], 1)
    pk.store(y[block], pk.zeros(pk.int32, 8) + block)
    pk.signal(flags[block], 1)


@pk.kernel
def meet(y, count):
    """All blocks wait for one another by a loop, which no launch guarantees to end."""
    (block,) = pk.grid(y.rows)
    pk.atomic_add(count[0], 1)
    while pk.atomic_load(count[0]) < y.rows:
        pass
    pk.store(y[block], pk.zeros(pk.int32, 8) + block)


def run(kernel, resident, seed=0):
    arrays = {"y": np.zeros((6, 8), np.int32)}
    names = kernel.parameters.names(2)
    arrays[names[1]] = np.zeros(6, np.int32)
    machine.run(recorded(kernel, *arrays.values()), arrays, {}, seed, resident=resident)
    assert (arrays["y"] == np.arange(6)[:, np.newaxis]).all()


@pytest.mark.parametrize("resident", [2, 3, 6, None])
def test_blocks_that_find_room_with_those_they_wait_for_end(resident):
    run(in_pairs, resident)


def test_a_wait_for_a_block_that_cannot_start_is_a_deadlock():
    with pytest.raises(DeadlockError, match="every role that has not ended waits") as caught:
        run(in_pairs, 1)
    assert "flags[1] to be at least 1, it is 0" in str(caught.value)
    assert "5 more start only when one of the 1 that run has ended" in (caught.value.help or "")


def test_a_loop_that_waits_for_all_blocks_ends_only_if_all_run_at_once():
    run(meet, 6)
    for resident in (1, 5):
        with pytest.raises(DeadlockError, match="a loop never ends"):
            run(meet, resident)


def test_the_check_tries_few_blocks_at_once():
    y, count = np.zeros((6, 8), np.int32), np.zeros(1, np.int32)
    report = pk.check(meet, y, count)
    assert [f.kind for f in report.findings if "loop" in f.message], str(report)
