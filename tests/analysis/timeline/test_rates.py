"""The cycles of the work a multiprocessor does, against the figures of its vendor."""

from __future__ import annotations

import pytest

from pykittens.analysis.timeline.rates import HOPPER
from pykittens.types.dtypes import bf16, e4m3, f32, int8

MULTIPROCESSORS, CLOCK = 132, 1.83e9  # of an H100 SXM5 while its tensor cores work


@pytest.mark.parametrize(
    ("dtype", "teraflops"), [(bf16, 989.4), (e4m3, 1978.9), (int8, 1978.9), (f32, 494.7)], ids=str
)
def test_products_at_this_rate_give_the_speed_that_the_vendor_states(dtype, teraflops):
    cycles = HOPPER.product(256, 256, 1024, dtype)
    a_second = 2 * 256 * 256 * 1024 / cycles * MULTIPROCESSORS * CLOCK
    assert a_second / 1e12 == pytest.approx(teraflops, rel=1e-3)


def test_a_group_has_no_more_lanes_than_its_warps_and_the_multiprocessor():
    assert [HOPPER.elements(4096, warps) for warps in (1, 2, 4, 8)] == [128, 64, 32, 32]


def test_a_part_of_a_cycle_is_a_whole_one_and_nothing_takes_none():
    assert HOPPER.copy(64) == 1
    assert HOPPER.copy(65) == 2
    assert HOPPER.shared(129) == 2
    assert HOPPER.elements(0, 4) == 1


def test_a_copy_between_registers_and_shared_memory_is_faster_than_one_from_a_tensor():
    assert HOPPER.shared(64 * 1024) < HOPPER.copy(64 * 1024)
