"""The race detector between blocks: flags, sums, tensors of every rank, windows and clusters."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.checker.runs import run_schedules
from pykittens.emulate.finding import Kind, Level
from pykittens.emulate.inserted import inserted
from pykittens.runtime.arguments import check as check_arguments
from tests.races import faults, findings, left_out, tile, told_of


@pk.kernel
def windows(x, y, *, start: int):
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(y.window(0, 0, 40), pk.load(x, rows=64, cols=64))
    else:
        pk.store(y.window(0, start, 80), pk.load(x, rows=64, cols=64))


@pytest.mark.parametrize(("start", "kinds"), [(40, set()), (39, {Kind.BLOCK_CONFLICT})])
def test_windows_end_where_the_next_begins(start, kinds):
    assert faults(windows, tile(), tile(80, 64), start=start) == kinds


# -- blocks --------------------------------------------------------------------------------------------


@pk.kernel
def flagged(x, y, flags, *, op: str, awaited: int, flag: int, before: bool):
    (block,) = pk.grid(3)
    if block < 2:
        if before:
            pk.signal(flags[0], 1, op=op)
        pk.store(x[block], pk.zeros(f32, 64, 64))
        if not before:
            pk.signal(flags[0], 1, op=op)
        if block == 1:
            pk.signal(flags[1], 1)
    else:
        pk.wait(flags[flag], awaited)
        pk.store(y, pk.load(x[1], rows=64, cols=64) + pk.load(x[0], rows=64, cols=64))


def flag_faults(op: str, awaited: int, *, flag: int = 0, before: bool = False, initial: int = 0):
    flags = np.array([initial, 0], np.int32)
    constants = {"op": op, "awaited": awaited, "flag": flag, "before": before}
    return faults(flagged, tile(128, 64), tile(), flags, seeds=range(8), **constants)


def test_a_flag_that_all_have_added_to_orders_them_all():
    assert flag_faults("add", 2) == set()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"op": "add", "awaited": 1}, "one of the two is enough"),
        ({"op": "store", "awaited": 1}, "a stored flag tells of one block only"),
        ({"op": "add", "awaited": 0}, "it holds 0 before"),
        ({"op": "add", "awaited": 2, "initial": 2}, "it holds 2 before"),
        ({"op": "add", "awaited": 2, "before": True}, "the signal comes before the store"),
        ({"op": "add", "awaited": 1, "flag": 1}, "the other flag is of one block"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_a_flag_orders_only_what_was_done_before_the_values_that_are_enough(told, why):
    assert flag_faults(**told) == {Kind.BLOCK_CONFLICT}, why


@pk.kernel
def flag_as_data(y, flags, *, how: str, awaited: int):
    (block,) = pk.grid(3)
    if block < 2:
        if how == "store" and block == 0:
            pk.store(flags[0], 1)
        elif how == "add":
            pk.store(flags[0], 1, op="add")
        else:
            pk.signal(flags[0], 1, op="add")
    else:
        pk.wait(flags[0], awaited)
        if how == "load":
            pk.store(y[0], pk.load(flags[0]))
        else:
            pk.store(y[0], awaited)


@pytest.mark.parametrize(
    ("how", "awaited", "kinds"),
    [
        ("signal", 1, set()),
        ("add", 1, set()),
        ("load", 2, set()),
        ("load", 1, {Kind.SCHEDULE_DEPENDENT}),
        ("store", 1, {Kind.BLOCK_CONFLICT}),
    ],
)
def test_only_signals_and_sums_may_meet_at_a_flag(how, awaited, kinds):
    flags = np.zeros(1, np.int32)
    y = tile(1, dtype=int32)
    assert faults(flag_as_data, y, flags, how=how, awaited=awaited, seeds=range(8)) == kinds


@pk.kernel
def through_the_engine(x, y, flags):
    made = pk.shared(pk.st(f32, 64, 64))
    full = pk.semaphore(1)
    (block,) = pk.grid(2)
    with pk.warpgroups(1):
        if block == 0:
            pk.store(x, pk.zeros(f32, 64, 64))
            pk.signal(flags[0], 1)
        else:
            pk.wait(flags[0], 1)
            full.expect(made)
            pk.load_async(made, x, signal=full)
            full.wait(0)
            pk.store(y, pk.load(made))


def test_a_signal_lets_the_engine_of_another_block_see_what_lanes_wrote():
    assert faults(through_the_engine, tile(), tile(), np.zeros(1, np.int32)) == set()


@pk.kernel
def one_after_another(x, y):
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(x, pk.zeros(f32, 64, 64))
    else:
        pk.store(y, pk.load(x, rows=64, cols=64))


def test_blocks_that_do_not_wait_for_one_another_are_in_no_order():
    assert faults(one_after_another, tile(), tile()) == {Kind.BLOCK_CONFLICT}


@pk.kernel(inplace=True, warps=1)
def neighbours(x, y, *, shift: int):
    (block,) = pk.grid(4)
    pk.store(y[block], pk.load(x[(block + shift) % 4], rows=16, cols=64))


@pytest.mark.parametrize("shift", [0, 1])
def test_a_tensor_that_is_passed_twice_is_one(shift):
    x = tile()
    assert faults(neighbours, x, x, shift=shift) == ({Kind.BLOCK_CONFLICT} if shift else set())
    assert faults(neighbours, x, x.copy(), shift=shift) == set()


@pk.kernel
def summed(x, y, *, op: str):
    (block,) = pk.grid(2)
    pk.store(y, pk.load(x[block], rows=64, cols=64), op=op)


@pytest.mark.parametrize("dtype", [f32, bf16, int32])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_only_sums_of_floats_depend_on_the_order_of_blocks(dtype, op):
    args = tile(128, 64, dtype=dtype), tile(dtype=dtype)
    open_order = {(Level.WARNING, Kind.SCHEDULE_DEPENDENT)}
    assert told_of(summed, *args, op=op) == (
        open_order if (dtype, op) in ((f32, "add"), (bf16, "add")) else set()
    )


@pk.kernel
def stored_and_summed(x, y):
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(y, pk.load(x, rows=64, cols=64))
    else:
        pk.store(y, pk.load(x, rows=64, cols=64), op="add")


def test_a_store_beside_a_sum_is_a_conflict_even_of_integers():
    args = tile(dtype=int32), tile(dtype=int32)
    assert faults(stored_and_summed, *args) == {Kind.BLOCK_CONFLICT}


@pk.kernel
def of_any_rank(x, y, *, rank: int, step: int):
    (block,) = pk.grid(2)
    index = (block * step,) + (0,) * (rank - 1)
    if rank == 1:
        pk.store(y[index], pk.load(x[index], cols=16))
    else:
        pk.store(y[index], pk.load(x[index], rows=64, cols=16))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("step", [0, 1])
def test_blocks_meet_in_tensors_of_every_rank(rank, step):
    shape = {1: (32,), 2: (128, 16)}.get(rank, (2,) * (rank - 2) + (64, 16))
    found = faults(of_any_rank, tile(*shape), tile(*shape), rank=rank, step=step)
    assert found == (set() if step else {Kind.BLOCK_CONFLICT})


# -- clusters ------------------------------------------------------------------------------------------


@pk.kernel(cluster=2)
def multicast(x, y):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent((pk.cdiv(y.rows, 64),), cluster_axis=0)
    with pk.producer():
        for _ in tasks:
            for k in pk.range(3):
                with ring.fill() as t:
                    pk.load_async(t, x[0, k], multicast=True)
    with pk.consumers(1):
        for (row,) in tasks:
            total = pk.zeros(f32, 64, 64)
            for _ in pk.range(3):
                with ring.drain() as t:
                    total = total + pk.load(t).to(f32)
            pk.store(y[row], total.to(bf16))


def test_a_multicast_is_ordered_by_the_barriers_of_every_block():
    args = tile(64, 192, dtype=bf16), tile(256, 64, dtype=bf16)
    assert faults(multicast, *args, seeds=range(6)) == set()


@pk.kernel(cluster=2)
def shares(x, y, *, missing: bool):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent((2,), cluster_axis=0)
    with pk.producer():
        for (row,) in tasks:
            for k in pk.range(3 - row if missing else 3):
                with ring.fill() as t:
                    pk.load_async(t, x[0, k], multicast=True)
    with pk.consumers(1):
        for (row,) in tasks:
            total = pk.zeros(f32, 64, 64)
            for _ in pk.range(3 - row if missing else 3):
                with ring.drain() as t:
                    total = total + pk.load(t).to(f32)
            pk.store(y[row], total.to(bf16))


def test_a_block_of_a_cluster_that_leaves_out_its_share_is_told_of():
    args = tile(64, 192, dtype=bf16), tile(128, 64, dtype=bf16)
    assert faults(shares, *args, missing=False) == set()
    found = findings(shares, *args, missing=True)
    assert Kind.DEADLOCK in {f.kind for f in found}
    (told,) = (f for f in found if f.kind is Kind.BYTE_COUNT)
    assert "only some blocks of the cluster" in told.message
    assert "expect" not in told.help


def test_a_multicast_that_does_not_wait_for_a_free_stage_overwrites_it():
    args = tile(64, 192, dtype=bf16), tile(256, 64, dtype=bf16)
    arguments = check_arguments(multicast.parameters, args, {})
    waits = [
        p
        for p in inserted(multicast.record(arguments))
        if p.role.kind == "producer" and p.what == "wait"
    ]
    assert len(waits) == 1
    with left_out(waits[0].node, "wait"):
        found = run_schedules(multicast, arguments, [0])
    assert Kind.OVERWRITTEN_IN_USE in {f.kind for f in found} or Kind.RACE in {
        f.kind for f in found
    }
