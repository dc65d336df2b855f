"""The detector is silent where all is in order: idioms of kernels by hand, each in a kernel as small as it can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from pykittens.emulate.finding import Finding, Kind, Level
from tests.races import findings, tile


def told(kernel: Any, *args: Any, **constants: Any) -> list[Finding]:
    """What is found but for notes."""
    found = findings(kernel, *args, **constants)
    return [f for f in found if f.level is not Level.NOTE]


def nothing(*shape: int) -> Any:
    """An output before the launch."""
    return np.full(shape, np.nan, np.float32)


# -- one group that meets ------------------------------------------------------------------------------


@pk.kernel
def met_at_a_semaphore(x, y, *, meets: bool):
    made, met = pk.shared(pk.st(f32, 128, 64)), pk.semaphore(1)
    pk.grid(1)
    pk.store(made, pk.load(x, rows=128, cols=64))
    if meets:
        met.arrive()
        met.wait(0)
    lower = pk.load(made.tiles(64, 64)[1])
    pk.store(y, lower)


@pytest.mark.parametrize("meets", [True, False])
def test_warps_that_wait_for_the_arrival_of_their_group_have_met(meets):
    found = findings(met_at_a_semaphore, tile(128, 64), tile(), meets=meets)
    assert [f.kind for f in found] == ([] if meets else [Kind.RACE])


@pk.kernel
def met_twice_a_pass(x, y):
    made, met = pk.shared(pk.st(f32, 64, 64), count=2), pk.semaphore(2)
    pk.grid(1)
    with pk.consumers(2) as w:
        for i in pk.range(pk.cdiv(x.rows, 128)):
            pk.store(made[w], pk.load(x[2 * i + w], rows=64, cols=64))
            met.arrive()
            met.wait(2 * i)
            t = pk.load(made[1 - w])
            met.arrive()
            met.wait(2 * i + 1)
            pk.store(y[2 * i + w], t)


def test_groups_that_meet_at_one_semaphore_twice_a_pass_are_in_order():
    assert told(met_twice_a_pass, tile(384, 64), nothing(384, 64)) == []


# -- memory that engines write -------------------------------------------------------------------------


@pk.kernel
def read_back(x, between, y, *, read: bool):
    made = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.publish(made, pk.load(x, rows=64, cols=64))
    pk.store_async(between, made)
    pk.store_wait(read=read)
    pk.sync()
    pk.store(y, pk.load(between, rows=64, cols=64))


@pytest.mark.parametrize("read", [False, True])
def test_lanes_may_read_what_a_store_has_written_behind_its_wait(read):
    found = findings(read_back, tile(), nothing(64, 64), nothing(64, 64), read=read)
    assert [f.kind for f in found] == ([Kind.RACE] if read else [])


@pk.kernel
def overwritten_by_a_copy(x, y, *, fenced: bool):
    made, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    pk.store(made, pk.zeros(f32, 64, 64))
    if fenced:
        pk.fence_async()
    t = pk.load(made)
    full.expect(made)
    pk.load_async(made, x, signal=full)
    full.wait(0)
    pk.store(y, pk.load(made) + t)


def test_a_copy_may_overwrite_what_lanes_have_stored_and_fenced():
    assert told(overwritten_by_a_copy, tile(), nothing(64, 64), fenced=True) == []


def test_a_copy_over_an_unfenced_store_is_told_as_two_writes():
    (found,) = told(overwritten_by_a_copy, tile(), nothing(64, 64), fenced=False)
    assert found.kind is Kind.MISSING_FENCE
    assert found.message.endswith("then written by an engine, and either write may come last")


# -- blocks --------------------------------------------------------------------------------------------


@pk.kernel
def fetched_behind_a_flag(x, between, y, flags):
    made, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(between, pk.load(x, rows=64, cols=64))
        pk.signal(flags[0], 1)
    else:
        pk.wait(flags[0], 1)
        full.expect(made)
        pk.load_async(made, between, signal=full)
        full.wait(0)
        pk.store(y, pk.load(made))


def test_a_signal_fences_what_the_copy_engine_of_another_block_fetches():
    args = tile(), nothing(64, 64), nothing(64, 64), np.zeros(1, np.int32)
    assert told(fetched_behind_a_flag, *args) == []


@pk.kernel
def handed_through_memory(x, between, y, flags, *, back: int):
    (block,) = pk.grid(2)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        if block == 0:
            pk.wait(flags[1], i - back)
            pk.store(between[i % 2], pk.load(x[i], rows=64, cols=64))
            pk.signal(flags[0], i + 1)
        else:
            pk.wait(flags[0], i + 1)
            t = pk.load(between[i % 2], rows=64, cols=64)
            pk.signal(flags[1], i + 1)
            pk.store(y[i], t)


@pytest.mark.parametrize("back", [1, 2])
def test_blocks_hand_tiles_on_in_a_ring_of_two_by_flags_that_count_both_ways(back):
    args = tile(320, 64), nothing(128, 64), nothing(320, 64), np.zeros(2, np.int32)
    kinds = {f.kind for f in told(handed_through_memory, *args, back=back)}
    assert kinds == (set() if back == 1 else {Kind.BLOCK_CONFLICT})


@pk.kernel
def a_barrier_of_all_blocks(x, y, flags, *, sweeps: int):
    blocks = pk.cdiv(x.rows, 64)
    (block,) = pk.grid(blocks)
    for i in range(sweeps):
        here, there = (x, y) if i % 2 == 0 else (y, x)
        t = pk.load(here[block], rows=64, cols=64) + pk.load(here[block - 1], rows=64, cols=64)
        pk.store(there[block], t)
        pk.signal(flags[0], 1, op="add")
        pk.wait(flags[0], (i + 1) * blocks)


def test_a_flag_that_all_blocks_add_to_is_a_barrier_of_them():
    args = tile(256, 64), nothing(256, 64), np.zeros(1, np.int32)
    assert told(a_barrier_of_all_blocks, *args, sweeps=3) == []


# -- outputs of which a part is meant to stay ----------------------------------------------------------


@pk.kernel(warps=1)
def one_row_of_a_cache(x, cache, places, place, *, how: str):
    (row,) = pk.grid(x.rows)
    t = pk.load(x[row], cols=64)
    match how:
        case "argument":
            pk.store(cache[place + row], t)
        case "loaded":
            pk.store(cache[pk.load(places[row])], t)
        case "window":
            pk.store(cache.window(0, place, place + 2)[row], t)
        case "fixed":
            pk.store(cache[row + 3], t)
        case "grown":
            pk.store(cache[pk.load(places[row])], t, op="max")


@pytest.mark.parametrize(
    ("how", "levels"),
    [
        ("argument", []),
        ("loaded", []),
        ("window", []),
        ("fixed", [Level.ERROR]),
        ("grown", []),  # combined with what the cache holds
    ],
)
def test_an_output_that_held_values_keeps_those_that_data_do_not_choose(how, levels):
    args = tile(2, 64), tile(40, 64), np.array([7, 3], np.int32), 5
    assert [f.level for f in findings(one_row_of_a_cache, *args, how=how)] == levels


@pytest.mark.parametrize("how", ["argument", "loaded", "window"])
def test_an_output_that_held_nothing_is_reported_as_left_unwritten(how):
    args = tile(2, 64), nothing(40, 64), np.array([7, 3], np.int32), 5
    assert [f.level for f in findings(one_row_of_a_cache, *args, how=how)] == [Level.WARNING]


@pk.kernel(warps=1)
def kept_where_a_mask_is_off(x, active, y):
    (row,) = pk.grid(x.rows)
    if pk.load(active[row]) > 0:
        pk.store(y[row], pk.load(x[row], cols=64))


def test_a_mask_in_memory_may_leave_rows_as_they_are():
    args = tile(4, 64), np.array([0, 1, 0, 1], np.int32), tile(4, 64)
    assert told(kept_where_a_mask_is_off, *args) == []


@pk.kernel(inplace=True)
def left_half_in_place(x, y, *, rows: int):
    (row,) = pk.grid(rows)
    pk.store(y[row, 0], pk.load(x[row, 0], rows=64, cols=64) * 2)


def test_a_kernel_in_place_may_change_a_part_of_its_tensor():
    x = tile(128, 128)
    assert told(left_half_in_place, x, x, rows=2) == []
    assert told(left_half_in_place, x, x, rows=1) == []


def test_a_kernel_in_place_that_drops_the_last_rows_is_a_warning():
    x = tile(150, 128)
    assert [f.level for f in told(left_half_in_place, x, x, rows=2)] == [Level.WARNING]


def test_half_an_output_that_is_not_read_is_an_error():
    found = told(left_half_in_place, tile(128, 128), tile(128, 128), rows=2)
    assert [f.level for f in found] == [Level.ERROR]
    assert 'kept="y"' in found[0].help


def test_a_share_that_is_not_all_is_not_told_as_all():
    args = tile(2, 64), nothing(999, 64), np.array([7, 3], np.int32), 5
    (found,) = findings(one_row_of_a_cache, *args, how="loaded")
    assert found.message.startswith("more than 99% of `cache` is never written")


@pk.kernel
def workspace_for_the_first(x, work, y):
    (block,) = pk.grid(1)
    t = pk.load(x, rows=64, cols=64)
    if x.rows > 64:
        pk.store(work[block], t)
        pk.sync()
        t = pk.load(work[block], rows=64, cols=64)
    pk.store(y, t)


def test_a_workspace_that_a_launch_does_without_is_no_error():
    found = told(workspace_for_the_first, tile(), nothing(64, 64), nothing(64, 64))
    assert [f.level for f in found] == [Level.WARNING]


# -- numbers whose order plays no part -----------------------------------------------------------------


@pk.kernel
def combined(x, y, *, op: str):
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(y, pk.load(x[block], rows=64, cols=64), op=op)


@pytest.mark.parametrize(
    ("op", "dtype"), [("add", int32), ("max", int32), ("max", f32), ("min", f32)]
)
def test_what_blocks_combine_exactly_needs_no_order(op, dtype):
    assert told(combined, tile(256, 64, dtype=dtype), tile(dtype=dtype), op=op) == []


@pk.kernel
def summed_in_one_group(x, y):
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        pk.store(y, pk.load(x[i], rows=64, cols=64), op="add")


def test_a_group_that_adds_tile_after_tile_adds_in_its_own_order():
    assert told(summed_in_one_group, tile(256, 64), tile()) == []
