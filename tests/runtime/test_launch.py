"""What a launch is refused for before it starts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.runtime.arguments import check, known_values
from pykittens.runtime.launch import grid_size
from tests.running import recorded


@pk.kernel
def neighbours(y, flags):
    (block,) = pk.grid(y.rows)
    pk.signal(flags[block], 1)
    pk.wait(flags[0], 1)
    pk.store(y[block], pk.zeros(y.dtype, 8))


@pk.kernel
def alone(y, flags):
    (block,) = pk.grid(y.rows)
    pk.signal(flags[block], 1)
    pk.store(y[block], pk.zeros(y.dtype, 8))


@pk.kernel
def shared_out(y, flags):
    tasks = pk.persistent((y.rows,))
    with pk.warps(1):
        for (task,) in tasks:
            pk.wait(flags[0], 0)
            pk.store(y[task], pk.zeros(y.dtype, 8))


def size(kernel, rows, at_once):
    args = (np.zeros((rows, 8), np.float32), np.zeros(rows, np.int32))
    made = recorded(kernel, *args)
    known = known_values(made, check(kernel.parameters, args, {}))
    return grid_size(SimpleNamespace(kernel=made, blocks_at_once=at_once), known)


def test_blocks_that_wait_for_one_another_are_refused_where_they_cannot_run_at_once():
    assert size(neighbours, 264, 264) == 264
    with pytest.raises(ArgumentError, match="all 265 must run at once, and this GPU runs 264"):
        size(neighbours, 265, 264)


def test_blocks_that_wait_for_nobody_may_be_any_number():
    assert size(alone, 1000, 264) == 1000
    assert size(shared_out, 1000, 264) == 264
