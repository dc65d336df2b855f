"""A grid of very many blocks takes no more memory than a small one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate.schedule import MOST_SHUFFLED, SeededSchedule
from pykittens.errors import ArgumentError, KernelError


@pk.kernel
def stops(x, count):
    """The first block ends the run."""
    (block,) = pk.grid(count)
    pk.assert_(block < 0, "stop")
    pk.store(x[block], pk.zeros(x.dtype, 8))


@pk.kernel
def neighbours(flags, count):
    (block,) = pk.grid(count)
    pk.signal(flags[block], 1)
    pk.wait(flags[0], 1)


@pytest.mark.parametrize("seed", ["0", "7"])
def test_blocks_are_made_when_they_run(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(KernelError, match="stop"):
        stops(x, 1)
    tracemalloc.start()
    with pytest.raises(KernelError, match="stop"):
        stops(x, 2**29)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


def test_all_blocks_have_a_turn() -> None:
    for count in (0, 5, MOST_SHUFFLED + 1):
        assert len(SeededSchedule(3).block_order(count)) == count


def test_too_many_blocks_that_wait_for_one_another_are_refused() -> None:
    with pytest.raises(ArgumentError, match="all 65537 are kept at once, and the emulator keeps"):
        neighbours(np.zeros(4, np.int32), 2**16 + 1)
