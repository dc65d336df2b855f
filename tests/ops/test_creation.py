"""Tiles that are made from numbers: their limits."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk


def test_a_tile_far_beyond_the_registers_is_refused_at_its_line():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        pk.store(out, pk.zeros(pk.f32, 512, 1024))

    with pytest.raises(pk.KernelError, match="4096 elements per thread of its 4 warps") as caught:
        kernel(np.zeros((512, 1024), np.float32))
    assert "^^^" in str(caught.value)
    assert "smaller tiles" in str(caught.value)


def refused(make, message, warps=4):
    @pk.kernel(warps=warps)
    def kernel(out):
        pk.grid(1)
        pk.store(out, make())

    with pytest.raises(pk.KernelError, match=message) as caught:
        kernel(np.zeros(64, np.float32))
    return str(caught.value)


def test_a_tile_has_no_spread():
    text = refused(
        lambda: pk.zeros(pk.f32, 64, 64, spread=pk.per_row),
        "zeros: `spread` must be left out for a tile, not per row",
    )
    assert "help: leave out `cols` to make a vector" in text


@pytest.mark.parametrize(
    ("length", "spread", "message"),
    [
        (48, pk.per_row, "`rows` must be a multiple of 64 for a group of 4 warps, not 48"),
        (40, pk.per_column, "`rows` must be a multiple of 16 for a tile, not 40"),
        (784, pk.per_column, "`rows` must be at most 768 for a vector that is per column"),
        (0, pk.per_row, "`rows` must be a positive compile-time int, not 0"),
        (64, "per_row", "`spread` must be pk.plain, pk.per_row, pk.per_column or"),
    ],
)
def test_a_vector_that_a_group_cannot_hold_with_its_spread_is_refused(length, spread, message):
    refused(lambda: pk.full(pk.f32, 1, length, spread=spread), message)
