"""What has been written: reads of what has not, outputs that are left out, and tiles that are not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.checker.runs import run_schedules
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.runtime.arguments import check as check_arguments
from tests.races import findings, tile


def told(kernel: Any, *args: Any, undefined: Any = (), **constants: Any) -> list[Finding]:
    """What is found in one schedule."""
    arguments = check_arguments(kernel.parameters, args, constants)
    return run_schedules(kernel, arguments, [0], undefined=undefined)


def levels(found: list[Finding]) -> list[Level]:
    return [f.level for f in found if f.kind is Kind.UNWRITTEN_MEMORY]


def nothing(*shape: int, dtype: Any = f32) -> Any:
    return np.full(shape, np.nan, dtype.numpy)


# -- outputs that are left out -------------------------------------------------------------------------


@pk.kernel
def blocks_of_rows(x, y, *, count: int):
    (block,) = pk.grid(count)
    pk.store(y[block], pk.load(x[block], rows=64, cols=64))


def test_an_output_that_is_written_to_its_ragged_end_is_whole():
    assert told(blocks_of_rows, tile(130, 40), nothing(130, 40), count=3) == []


def test_what_is_left_out_of_an_output_is_told_with_its_place():
    (found,) = told(blocks_of_rows, tile(130, 40), nothing(130, 40), count=2)
    assert found.message == "2% of `y` is never written: rows 128 to 129"
    assert found.level is Level.ERROR
    assert [s.loc.text.strip() for s in found.steps if s.loc] == [
        "pk.store(y[block], pk.load(x[block], rows=64, cols=64))"
    ]


def test_less_than_a_hundredth_is_not_told_as_nothing():
    (found,) = told(blocks_of_rows, tile(1025, 64), nothing(1025, 64), count=16)
    assert found.message == "less than 1% of `y` is never written: rows 1024 to 1024"


@pk.kernel
def of_a_scalar(x, y, *, how: str):
    (block,) = pk.grid(2)
    t = pk.load(x[block], rows=64, cols=64)
    match how:
        case "if":
            if x.rows > 1000:
                pk.store(y[block], t)
            if block == 1:
                pk.store(y[block], t)
        case "while":
            i = pk.load(x[0, 0])
            while i > 0.5:
                pk.store(y[1], t)
                i = i - 1.0
        case "scatter":
            pk.scatter(y[..., 0], pk.row_index(64), t)
        case "always":
            pk.store(y, t, op="max")
        case "never":
            pk.store(y[7], t)


@pytest.mark.parametrize(
    ("how", "level"),
    [
        ("if", [Level.WARNING]),
        ("while", []),  # data choose the rows
        ("scatter", []),
        ("always", []),  # combined with what y holds
        ("never", [Level.ERROR]),
    ],
)
def test_what_may_be_meant_is_a_warning_and_what_data_choose_is_nothing(how, level):
    found = told(of_a_scalar, tile(128, 64), tile(128, 64), how=how)
    assert [
        f.level for f in found if "never written" in f.message or "no element" in f.message
    ] == level


def test_an_output_of_which_nothing_is_written_is_an_error():
    found = told(of_a_scalar, tile(128, 64), tile(128, 64), how="never")
    assert "`y` is an output, and no element of it is written" in [f.message for f in found]


def test_an_output_without_elements_needs_nothing():
    assert told(blocks_of_rows, tile(0, 64), nothing(0, 64), count=0) == []


@pk.kernel
def of_rank_3(x, y):
    (block,) = pk.grid(2)
    pk.store(y[block, 0, 0], pk.load(x, rows=64, cols=64))


def test_the_axes_in_front_are_told_by_their_numbers():
    (found,) = told(of_rank_3, tile(), nothing(3, 100, 64))
    assert found.message == "57% of `y` is never written: spread over all of it"
    (found,) = told(of_rank_3, tile(), nothing(3, 64, 64))
    assert found.message == "33% of `y` is never written: axis 0 2 to 2"


@pk.kernel
def signalled(y, flags, *, column: int, beside: bool):
    (block,) = pk.grid(2)
    pk.store(y[block], pk.zeros(f32, 64, 64))
    pk.signal(flags[block, column], 1)
    if beside:
        pk.store(flags[block, 2], y.rows)


def test_a_signal_writes_one_flag():
    args = tile(128, 64), np.zeros((2, 3), np.int32)
    (found,) = told(signalled, *args, column=1, beside=True, undefined=["flags"])
    assert found.message == "33% of `flags` is never written: columns 0 to 0"


def test_a_tensor_of_flags_may_have_some_that_nobody_signals():
    assert told(signalled, tile(128, 64), np.zeros((2, 3), np.int32), column=1, beside=False) == []


# -- reads of what nothing has written -----------------------------------------------------------------


@pk.kernel(inplace=True)
def read_before(x, y, *, op: str | None, first: bool):
    pk.grid(1)
    if first:
        pk.store(y, pk.load(x, rows=64, cols=64))
    if op is None:
        pk.store(y, pk.load(y, rows=64, cols=64) + 1)
    else:
        pk.store(y, pk.load(x, rows=64, cols=64), op=op)


@pytest.mark.parametrize("op", [None, "add"])
def test_an_output_of_nothing_is_written_before_it_is_read_or_added_to(op):
    assert levels(told(read_before, tile(), nothing(64, 64), op=op, first=True)) == []
    assert levels(told(read_before, tile(), nothing(64, 64), op=op, first=False)) == [Level.ERROR]
    assert levels(told(read_before, tile(), tile(), op=op, first=False)) == []


@pytest.mark.parametrize("dtype", [f32, bf16, int32])
def test_the_caller_says_what_holds_nothing(dtype):
    args = tile(dtype=dtype), tile(dtype=dtype)
    assert levels(told(read_before, *args, op="add", first=False)) == []
    assert levels(told(read_before, *args, op="add", first=False, undefined=["y"])) == [Level.ERROR]


def test_a_number_among_the_nan_makes_an_output_one_with_contents():
    y = nothing(64, 64)
    y[0, 0] = 1
    assert levels(told(read_before, tile(), y, op="add", first=False)) == []
    y = nothing(64, 64)
    y[63, 63] = 1
    assert levels(told(read_before, tile(), y, op="add", first=False)) == []


@pk.kernel
def shared_part(x, y, *, parts: int, drains: int):
    ring = pk.pipeline(1, pk.st(f32, 128, 64))
    pk.grid(1)
    with pk.producer():
        for i in range(drains):
            with ring.fill() as t:
                for j in range(parts if i == 0 else 1):
                    pk.load_async(t.tiles(64, 64)[j, 0], x)
    with pk.warpgroups(1):
        for i in range(drains):
            with ring.drain() as t:
                pk.store(y[i], pk.load(t))


def test_a_shared_tile_is_filled_before_it_is_read():
    args = tile(), tile(128, 64)
    assert levels(told(shared_part, *args, parts=2, drains=1)) == []
    (found,) = told(shared_part, *args, parts=1, drains=1)
    assert "nothing has written 4096 of its 8192 elements" in found.message


def test_a_stage_that_was_given_back_holds_nothing():
    found = told(shared_part, tile(), tile(256, 64), parts=2, drains=2)
    assert [f.message for f in found if f.kind is Kind.UNWRITTEN_MEMORY] == [
        "stage 0 of `ring` is read, and nothing has written 4096 of its 8192 elements"
    ]


@pk.kernel
def never_filled(y):
    made = pk.shared(pk.st(f32, 64, 64))
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(made, pk.zeros(f32, 64, 64))
    pk.store(y[block], pk.load(made))


def test_the_shared_memory_of_another_block_is_another():
    (found,) = told(never_filled, tile(128, 64))
    assert found.message == "`made` is read, and nothing has written it"


# -- tiles that are not there --------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "noted"), [(16, False), (18, False), (19, True), (30, True)])
def test_tiles_wholly_outside_are_noted_where_they_are_an_eighth_or_more(count, noted):
    found = told(blocks_of_rows, tile(1024, 64), tile(1024, 64), count=count)
    notes = [f for f in found if f.kind is Kind.OUT_OF_RANGE]
    assert bool(notes) == noted
    assert all(f.level is Level.NOTE for f in found)
    if noted:
        told_of = f"{count - 16} of {count} tiles of `x` that are moved here lie wholly outside it"
        assert notes[0].message == f"{told_of}: wasted work"


@pk.kernel
def halos(x, y, *, bounds, asynchronous=False):
    """Each block adds the 64 rows before its own, its own and the 64 after; windows state where these may lie."""
    halo, landed = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    block, col = pk.grid(*y.tiles(64, 64))
    first, total = block - 1, pk.zeros(f32, 64, 64)
    for start, past in bounds:
        first, x = first - start // 64, x.window(0, start, x.rows + past)
    for k in pk.range(3):
        if asynchronous:
            landed.expect(halo)
            pk.load_async(halo, x[first + k, col], signal=landed)
            landed.wait(k)
            total = total + pk.load(halo)
            pk.sync()
        else:
            total = total + pk.load(x[first + k, col], rows=64, cols=64)
    pk.store(y[block, col], total)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("bounds", "outside"),
    [
        ((), 2),
        (((-64, 64),), 0),
        (((-64, 1),), 0),
        (((-64, 0),), 1),
        (((0, 64),), 1),
        (((0, 64), (-64, 64)), 0),
    ],
)
def test_tiles_between_the_stated_bounds_of_a_window_are_meant(bounds, outside, asynchronous):
    made = tile(128, 64), nothing(128, 64)
    found = told(halos, *made, bounds=bounds, asynchronous=asynchronous)
    assert [int(f.message.split()[0]) for f in found] == ([outside] if outside else [])
    assert all(f.level is Level.NOTE and "tensor.window(" in f.help for f in found)


def test_what_is_found_is_the_same_in_every_schedule():
    found = findings(blocks_of_rows, tile(130, 40), nothing(130, 40), count=2)
    assert [(f.schedules, f.seed) for f in found] == [(4, 0)]
