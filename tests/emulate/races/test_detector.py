"""The race detector: each way of ordering two accesses, with it and without it, in a kernel as small as it can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind, Level
from tests.races import faults, tile, told_of

# -- semaphores ----------------------------------------------------------------------------------------


@pk.kernel
def handed_on(x, y, *, arrives: bool, waits: bool):
    there, made = pk.semaphore(1), pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(made, pk.load(x, rows=64, cols=64))
        if arrives:
            there.arrive()
    with pk.warpgroups(1):
        if waits:
            there.wait(0)
        pk.store(y, pk.load(made))


@pytest.mark.parametrize(
    ("arrives", "waits", "kinds"), [(True, True, set()), (False, False, {Kind.RACE})]
)
def test_an_arrival_and_its_wait_order_two_groups(arrives, waits, kinds):
    assert faults(handed_on, tile(), tile(), arrives=arrives, waits=waits) == kinds


def test_an_arrival_that_nobody_waits_for_orders_nothing():
    assert Kind.RACE in faults(handed_on, tile(), tile(), arrives=True, waits=False)


@pk.kernel
def told_early(x, y, *, early: bool):
    there, made = pk.semaphore(1), pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.warpgroups(1):
        t = pk.load(x, rows=64, cols=64)
        if early:
            there.arrive()
        pk.store(made, t)
        if not early:
            there.arrive()
    with pk.warpgroups(1):
        there.wait(0)
        pk.store(y, pk.load(made))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_an_arrival_before_the_store_is_a_race_in_every_schedule(early, seed):
    kinds = {Kind.RACE} if early else set()
    assert faults(told_early, tile(), tile(), early=early, seeds=[seed]) == kinds


@pk.kernel
def through_a_third(x, y, *, passed_on: bool):
    first, second = pk.semaphore(1), pk.semaphore(1)
    made = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(made, pk.load(x, rows=64, cols=64))
        first.arrive()
    with pk.warps(1):
        if passed_on:
            first.wait(0)
        second.arrive()
    with pk.warpgroups(1):
        second.wait(0)
        pk.store(y, pk.load(made))


@pytest.mark.parametrize("passed_on", [True, False])
def test_what_a_group_has_waited_for_it_passes_on(passed_on):
    found = faults(through_a_third, tile(), tile(), passed_on=passed_on)
    assert found == (set() if passed_on else {Kind.RACE})


# -- within a group ------------------------------------------------------------------------------------


@pk.kernel
def through_shared_memory(x, y, *, columns: int, part: int):
    made = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(made, pk.load(x, rows=64, cols=64))
    pk.store(y, pk.load(made.tiles(64, columns)[0, part]))


@pytest.mark.parametrize(("columns", "part"), [(64, 0), (32, 1), (16, 0)])
def test_a_lane_reads_what_it_has_stored_without_a_sync(columns, part):
    found = faults(through_shared_memory, tile(), tile(), columns=columns, part=part)
    assert found == set()


@pk.kernel
def turned_in_shared_memory(x, y, *, back: bool, meets: bool, part: int):
    made = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(made, pk.load(x, rows=64, cols=64), transposed=True)
    if meets:
        pk.sync()
    pk.store(y, pk.load(made.tiles(32, 64)[part, 0] if back else made, transposed=back))


@pytest.mark.parametrize("part", [0, 1])
def test_a_lane_reads_what_it_has_stored_transposed_without_a_sync(part):
    found = faults(turned_in_shared_memory, tile(), tile(), back=True, meets=False, part=part)
    assert found == set()


@pytest.mark.parametrize("meets", [True, False])
def test_a_tile_that_is_stored_transposed_and_read_as_it_lies_needs_a_sync(meets):
    found = faults(turned_in_shared_memory, tile(), tile(), back=False, meets=meets, part=0)
    assert found == (set() if meets else {Kind.RACE})


@pk.kernel
def turned_by_two_blocks(x, y, *, alone: bool):
    (i,) = pk.grid(2)
    pk.store(x[i if alone else 0, 0], pk.load(y[i], rows=64, cols=32), transposed=True)


@pytest.mark.parametrize("alone", [True, False])
def test_blocks_that_store_transposed_meet_where_their_tiles_lie(alone):
    x, y = np.zeros((64, 64), np.float32), np.ones((128, 32), np.float32)
    found = faults(turned_by_two_blocks, x, y, alone=alone)
    assert found == (set() if alone else {Kind.BLOCK_CONFLICT})


@pk.kernel(warps=1)
def per_row(x, y, *, meets: bool):
    made = pk.shared(pk.sv(f32, 64))
    pk.grid(1)
    pk.store(made, pk.load(x[0], cols=64))
    if meets:
        pk.sync()
    pk.store(y[0], pk.load(made, spread=pk.per_row))


@pytest.mark.parametrize("meets", [True, False])
def test_a_vector_that_is_read_by_other_lanes_needs_a_sync(meets):
    found = faults(per_row, tile(), tile(), meets=meets)
    assert found == (set() if meets else {Kind.RACE})


@pk.kernel
def parts_of_a_vector(x, y, *, apart: bool, length: int):
    """Two groups write parts of one vector, and each reads what it has written."""
    made = pk.shared(pk.sv(f32, 64))
    pk.grid(1)
    with pk.warps(2) as w:
        part = made.parts(length)[w if apart else 1]
        pk.store(part, pk.full(f32, 1, length))
        pk.sync()
        pk.store(y[w, 0], pk.load(part.parts(1)[0]))


@pytest.mark.parametrize("length", [1, 4, 32])
@pytest.mark.parametrize("apart", [True, False])
def test_groups_meet_in_the_same_part_of_a_vector_only(apart, length):
    found = faults(parts_of_a_vector, tile(), tile(2, 1), apart=apart, length=length)
    assert found == (set() if apart else {Kind.RACE})


@pk.kernel(warps=1)
def element_by_element(x, y, *, meets: bool):
    made = pk.shared(pk.sv(f32, 64))
    pk.grid(1)
    pk.store(made, pk.load(x[0], cols=64))
    if meets:
        pk.sync()
    pk.store(y[0, 0], pk.load(made.parts(1)[5]))


@pytest.mark.parametrize("meets", [True, False])
def test_an_element_that_all_lanes_read_is_behind_the_sync_of_who_wrote_it(meets):
    found = faults(element_by_element, tile(), tile(1, 1), meets=meets)
    assert found == (set() if meets else {Kind.RACE})


@pk.kernel
def mirrored(x, y, *, between: str):
    made, full = pk.shared(pk.sv(f32, 256)), pk.semaphore(1)
    pk.grid(1)
    pk.store(made, pk.load(x[0], cols=256))
    match between:
        case "sync":
            pk.sync()
        case "arrive":
            full.arrive()
        case "expect":
            full.expect(0)
        case "store_wait":
            pk.store_wait()
        case "mma_wait":
            pk.mma_wait()
        case "fence":
            pk.fence_async()
    pk.store(y[0], pk.load(made, spread=pk.per_row))


@pytest.mark.parametrize("between", ["sync", "arrive", "expect", "store_wait"])
def test_what_meets_is_as_good_as_a_sync(between):
    found = faults(mirrored, tile(1, 256), tile(1, 256), between=between)
    assert Kind.RACE not in found


@pytest.mark.parametrize("between", ["", "mma_wait", "fence"])
def test_neither_a_fence_nor_the_wait_for_products_is_a_sync(between):
    assert Kind.RACE in faults(mirrored, tile(1, 256), tile(1, 256), between=between)


@pk.kernel(inplace=True)
def counted(x, *, meets: bool):
    pk.grid(1)
    n = pk.load(x[0, 0])
    if meets:
        pk.sync()
    pk.store(x[0, 0], n + 1.0)


@pk.kernel(inplace=True, warps=1)
def counted_by_a_warp(x):
    pk.grid(1)
    pk.store(x[0, 0], pk.load(x[0, 0]) + 1.0)


def test_a_number_that_all_warps_load_is_overwritten_by_one_of_them():
    assert faults(counted, tile(1, 1), meets=False) == {Kind.RACE}
    assert faults(counted, tile(1, 1), meets=True) == set()
    assert faults(counted_by_a_warp, tile(1, 1)) == set()


@pk.kernel(inplace=True)
def vector_in_place(x, *, spread: Any):
    pk.grid(1)
    pk.store(x[0], pk.load(x[0], cols=64, spread=spread) + 1.0)


def test_a_vector_per_column_that_all_warps_load_is_overwritten_by_one_of_them():
    assert faults(vector_in_place, tile(1, 64), spread=pk.per_column) == {Kind.RACE}
    assert faults(vector_in_place, tile(1, 64), spread=pk.per_row) == set()
    assert faults(vector_in_place, tile(1, 64), spread=pk.plain) == set()


@pk.kernel(inplace=True)
def halves_in_place(x):
    pk.grid(1)
    t = pk.load(x, rows=64, cols=64)
    pk.store(x[0, 0], t[:, 0:32])
    pk.store(x[0, 1], t[:, 32:64])


def test_columns_of_a_tile_are_those_of_the_lanes_that_have_the_whole():
    assert faults(halves_in_place, tile()) == set()


@pk.kernel(inplace=True)
def moved_down(x, *, by: int):
    pk.grid(1)
    t = pk.load(x, rows=64, cols=64)
    pk.store(x.window(0, by, x.rows), t)


@pytest.mark.parametrize("by", [16, 64, 128])
def test_rows_that_move_to_other_warps_need_a_sync(by):
    found = faults(moved_down, tile(256, 64), by=by)
    assert found == ({Kind.RACE} if by < 64 else set())


@pk.kernel(inplace=True)
def rows_moved(x, source, target, *, meets: bool):
    pk.grid(1)
    t = pk.gather(x[..., 0], pk.load(source[0], cols=64, spread=pk.per_row), cols=64)
    if meets:
        pk.sync()
    pk.scatter(x[..., 0], pk.load(target[0], cols=64, spread=pk.per_row), t)


ROWS = np.arange(64, dtype=np.int32)[None]


def test_rows_that_are_scattered_to_where_they_were_gathered_stay_with_their_lanes():
    shuffled = np.random.default_rng(0).permutation(ROWS, axis=1)
    assert faults(rows_moved, tile(), shuffled, shuffled.copy(), meets=False) == set()


def test_rows_that_are_scattered_elsewhere_need_a_sync():
    turned = np.roll(ROWS, 16, axis=1)
    assert faults(rows_moved, tile(), ROWS, turned, meets=False) == {Kind.RACE}
    assert faults(rows_moved, tile(), ROWS, turned, meets=True) == set()


@pk.kernel
def scattered(x, index, y, *, op: str | None):
    pk.grid(1)
    i = pk.load(index[0], cols=64, spread=pk.per_row)
    pk.scatter(y[..., 0], i, pk.load(x, rows=64, cols=64), op=op)


def test_rows_of_one_index_are_a_warning_as_one_of_them_wins():
    twice = np.minimum(ROWS, 60)
    wins = {(Level.WARNING, Kind.SCHEDULE_DEPENDENT)}
    assert told_of(scattered, tile(), ROWS, tile(), op=None) == set()
    assert told_of(scattered, tile(), twice, tile(), op=None) == wins
    assert told_of(scattered, tile(), twice, tile(), op="max") == set()


# -- turns ---------------------------------------------------------------------------------------------


@pk.kernel
def in_turns(x, y, *, turns: bool):
    total, zero, done = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(2)
    pk.grid(1)
    with pk.consumers(2):
        t = pk.load(x, rows=64, cols=64)
        zero.wait(0)
        if turns:
            with pk.in_turn():
                pk.store(total, pk.load(total) + t)
        else:
            pk.store(total, pk.load(total) + t)
        done.arrive()
    with pk.warpgroups(1):
        pk.store(total, pk.zeros(f32, 64, 64))
        zero.arrive()
        done.wait(0)
        pk.store(y, pk.load(total))


@pytest.mark.parametrize("turns", [True, False])
def test_turns_order_the_groups_of_a_role(turns):
    found = faults(in_turns, tile(), tile(), turns=turns)
    assert (Kind.RACE in found) != turns


# -- engines -------------------------------------------------------------------------------------------


@pk.kernel
def fenced(x, y, *, order: tuple[str, ...]):
    made = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(made, pk.load(x, rows=64, cols=64))
    for step in order:
        if step == "fence":
            pk.fence_async()
        else:
            pk.sync()
    pk.store_async(y, made)


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        (("fence", "sync"), set()),
        (("sync",), {Kind.MISSING_FENCE}),
        (("sync", "fence"), {Kind.MISSING_FENCE}),
        (("fence",), {Kind.RACE}),
        ((), {Kind.RACE}),
    ],
)
def test_a_fence_counts_when_it_comes_before_the_sync(order, kinds):
    assert faults(fenced, tile(), tile(), order=order) == kinds


@pk.kernel
def stored_twice(x, y, *, waits: bool):
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for _ in pk.range(2):
            with ring.fill() as t:
                pk.load_async(t, x)
    with pk.storer():
        for _ in pk.range(2):
            with ring.drain() as t:
                pk.store_async(y, t)
                if waits:
                    pk.store_wait()


@pytest.mark.parametrize("waits", [True, False])
def test_two_asynchronous_stores_to_one_place_come_in_any_order(waits):
    found = faults(stored_twice, tile(), tile(), waits=waits)
    assert found == (set() if waits else {Kind.RACE})


# -- views ---------------------------------------------------------------------------------------------


@pk.kernel
def side_by_side(x, y, *, second: int):
    made, full = pk.shared(pk.st(bf16, 64, 128)), pk.semaphore(2)
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(made.tiles(64, 64)[0, 0], pk.load(x, rows=64, cols=64))
        full.arrive()
    with pk.warpgroups(1):
        pk.store(made.tiles(64, 64)[0, second], pk.load(x, rows=64, cols=64))
        full.arrive()
    with pk.warpgroups(1):
        full.wait(0)
        pk.store(y, pk.load(made.tiles(64, 64)[0, 0]))


@pytest.mark.parametrize(("second", "kinds"), [(1, set()), (0, {Kind.RACE})])
def test_views_that_only_touch_share_nothing(second, kinds):
    args = tile(dtype=bf16), tile(dtype=bf16)
    assert faults(side_by_side, *args, second=second) == kinds


@pk.kernel
def output_over_inputs(x, y, *, dtype: Any):
    inputs = pk.pipeline(1, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 64, 64))
    outputs = pk.pipeline(1, pk.st(dtype, 128, 64), reuse=inputs)
    pk.grid(1)
    with pk.producer(), inputs.fill() as s:
        pk.load_async(s.a, x)
        pk.load_async(s.b, x)
    with pk.consumers(2) as group:
        with inputs.drain() as s:
            acc = pk.mma_ABt(s.a.tiles(64, 64)[group], s.b)
        with outputs.fill() as t:
            pk.store(t.tiles(64, 64)[group], acc.to(dtype))
    with pk.storer(), outputs.drain() as t:
        pk.store_async(y, t)


def test_a_group_may_take_over_what_no_other_reads():
    """In bf16 each group stores over the rows of A that it alone has read, in f32 over those of all, and over B."""
    x = tile(128, 64, dtype=bf16)
    assert faults(output_over_inputs, x, tile(128, 64, dtype=bf16), dtype=bf16) == set()
    found = faults(output_over_inputs, x, tile(128, 64), dtype=f32)
    assert Kind.OVERWRITTEN_IN_USE in found
