"""Products of warpgroups read their operands through the async proxy, those of single warps through their lanes."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from pykittens.runtime.arguments import check
from tests.races import faults, tile


def squared(warps):
    @pk.kernel(warps=warps)
    def kernel(x, y, *, meets=True, fences=False):
        a = pk.shared(pk.st(bf16, 64, 64))
        pk.grid(1)
        if warps == 4:
            pk.store(a, pk.load(x, rows=64, cols=64))
        else:
            rows = 16 * warps
            for i in range(64 // rows):
                pk.store(a.tiles(rows, 64)[i], pk.load(x[i], rows=rows, cols=64))
        if fences:
            pk.fence_async()
        if meets:
            pk.sync()
        pk.store(y, pk.mma_ABt(a.tiles(16 * warps, 64)[0], a))

    return kernel


def arguments(rows):
    return tile(64, 64, dtype=bf16), np.full((rows, 64), np.nan, np.float32)


@pytest.mark.parametrize("warps", [1, 2])
def test_a_product_of_single_warps_needs_no_fence(warps):
    assert faults(squared(warps), *arguments(16 * warps)) == set()


def test_a_product_of_a_warpgroup_needs_a_fence():
    assert faults(squared(4), *arguments(64)) == {Kind.MISSING_FENCE}
    assert faults(squared(4), *arguments(64), fences=True) == set()


@pytest.mark.parametrize("warps", [1, 2])
def test_a_product_of_single_warps_reads_what_other_lanes_stored_after_a_sync(warps):
    assert faults(squared(warps), *arguments(16 * warps), meets=False) == {Kind.RACE}


def refilled(warps):
    @pk.kernel(warps=warps)
    def kernel(x, y, *, meets=True, waits=False):
        """The operand is stored again before the product is waited for."""
        rows = 16 * warps
        a = pk.shared(pk.st(bf16, rows, 64))
        b = pk.shared(pk.st(bf16, 16, 64))
        pk.grid(1)
        pk.store(a, pk.load(x, rows=rows, cols=64))
        if warps == 1:
            pk.store(b, pk.load(x, rows=16, cols=64))
        pk.fence_async()
        pk.sync()
        acc = pk.mma_ABt(a, b if warps == 1 else a, managed=False)
        if waits:
            pk.mma_wait()
        if meets:
            pk.sync()
        pk.store(a, pk.load(x, rows=rows, cols=64) * 2)
        pk.mma_wait()
        pk.store(y, acc)

    return kernel


def given(warps):
    rows = 16 * warps
    return tile(rows, 64, dtype=bf16), np.full(
        (rows, 16 if warps == 1 else rows), np.nan, np.float32
    )


def test_the_operand_of_a_product_of_single_warps_is_free_after_a_sync():
    assert faults(refilled(1), *given(1)) == set()
    assert faults(refilled(1), *given(1), meets=False) == {Kind.RACE}


def test_the_operand_of_a_product_of_a_warpgroup_is_free_after_its_wait():
    assert faults(refilled(4), *given(4)) == {Kind.OVERWRITTEN_IN_USE}
    assert faults(refilled(4), *given(4), waits=True) == set()


@pytest.mark.parametrize("seed", range(4))
def test_a_product_of_single_warps_has_read_its_operands_when_it_returns(seed):
    x, y = given(1)
    kernel = refilled(1)
    kernel.emulate(check(kernel.parameters, (x, y), {}), seed=seed)
    assert (y == 64).all()


@pk.kernel(warps=1)
def with_its_registers_changed(x, y):
    b = pk.shared(pk.st(bf16, 16, 64))
    pk.grid(1)
    t = pk.load(x, rows=16, cols=64)
    pk.store(b, t)
    pk.sync()
    acc = pk.zeros(f32, 16, 16)
    for _ in pk.range(3):
        acc = pk.mma_ABt(t, b, acc, managed=False)
        t = t + t
    pk.mma_wait()
    pk.store(y, acc)


def test_the_registers_of_a_product_of_single_warps_are_free_when_it_returns():
    x, y = given(1)
    assert faults(with_its_registers_changed, x, y) == set()
    with_its_registers_changed(x, y)
    assert (y == 64 * 7).all()
