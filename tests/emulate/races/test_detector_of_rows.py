"""The race detector on rows of shared tiles: rows meet tiles, parts and other rows in the elements they share."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.emulate.races.test_detector_clean import nothing, told
from tests.races import faults, tile


@pk.kernel
def rows_of_two_warps(x, y, *, first: int, second: int, ordered: bool = False):
    made, stored, met = pk.shared(pk.st(f32, 16, 64)), pk.semaphore(1), pk.semaphore(2)
    pk.grid(1)
    with pk.warps(1):
        pk.store(made.row(first), pk.load(x[0], cols=64))
        if ordered:
            stored.arrive()
        met.arrive()
    with pk.warps(1):
        if ordered:
            stored.wait(0)
        pk.store(made.row(second), pk.load(x[1], cols=64))
        met.arrive()
        met.wait(0)
        pk.store(y[0], pk.load(made.row(first)))


@pytest.mark.parametrize(
    ("first", "second", "ordered", "kinds"),
    [(3, 3, False, {Kind.RACE}), (3, 3, True, set()), (3, 4, False, set()), (0, 15, False, set())],
)
def test_two_warps_may_write_different_rows_without_order(first, second, ordered, kinds):
    found = faults(
        rows_of_two_warps, tile(), tile(1, 64), first=first, second=second, ordered=ordered
    )
    assert found == kinds


@pk.kernel
def rows_by_an_index(x, y, *, step: int):
    """Four warps write four rows each of one tile, each warp `step` rows after the one before."""
    made, met = pk.shared(pk.st(f32, 16, 64)), pk.semaphore(4)
    pk.grid(1)
    with pk.warps(4) as w:
        for i in pk.range(4):
            pk.store(made.row(step * w + i), pk.load(x[step * w + i], cols=64))
        met.arrive()
        met.wait(0)
        if w == 0:
            pk.store(y[0], pk.load(made))


@pytest.mark.parametrize(("step", "kinds"), [(4, set()), (3, {Kind.RACE})])
def test_rows_that_an_index_gives_to_several_warps_are_compared(step, kinds):
    assert faults(rows_by_an_index, tile(), tile(16, 64), step=step) == kinds


@pk.kernel
def rows_and_parts(x, y, *, column: int, row: int):
    """A warp writes the left half of a row of a part, another a row of a half of the tile or of the whole."""
    made = pk.shared(pk.st(f32, 32, 64))
    pk.grid(1)
    with pk.warps(1):
        pk.store(made.tiles(16, 32)[1, 0].row(3), pk.load(x[0], cols=32))
    with pk.warps(1):
        if column == 2:
            pk.store(made.row(row), pk.load(x[1], cols=64))
        else:
            pk.store(made.tiles(32, 32)[0, column].row(row), pk.load(x[1], cols=32))


@pytest.mark.parametrize(
    ("column", "row", "kinds"),
    [(0, 19, {Kind.RACE}), (1, 19, set()), (2, 19, {Kind.RACE}), (2, 3, set()), (0, 3, set())],
)
def test_rows_of_parts_meet_where_they_lie_in_the_tile(column, row, kinds):
    assert faults(rows_and_parts, tile(), tile(), column=column, row=row) == kinds


@pk.kernel(warps=4)
def row_read_back(x, y, *, read: str, meets: bool = False):
    made = pk.shared(pk.st(f32, 64, 256))
    pk.grid(1)
    for i in pk.range(64):
        pk.store(made.row(i), pk.load(x[i], cols=256))
    if meets:
        pk.sync()
    match read:
        case "row":
            pk.store(y[0], pk.load(made.row(5)))
        case "part":
            pk.store(y[0], pk.load(made.tiles(64, 64)[0, 1].row(5)))
        case "tile":
            pk.store(y[0], pk.load(made.tiles(64, 64)[0, 0]))


@pytest.mark.parametrize("meets", [False, True])
@pytest.mark.parametrize("read", ["row", "part", "tile"])
def test_a_lane_reads_back_a_row_without_a_sync_if_it_has_stored_it(read, meets):
    found = faults(row_read_back, tile(64, 256), tile(64, 256), read=read, meets=meets)
    assert found == (set() if meets or read == "row" else {Kind.RACE})


@pk.kernel(warps=4)
def row_read_by_a_product(x, y, *, fenced: bool):
    a, b = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 16, 64))
    pk.grid(1)
    pk.publish(a, pk.load(x[0], rows=64, cols=64))
    for i in pk.range(16):
        pk.store(b.row(i), pk.load(x[i], cols=64))
    if fenced:
        pk.fence_async()
    pk.sync()
    pk.store(y[0], pk.mma_ABt(a, b))


@pytest.mark.parametrize("fenced", [False, True])
def test_rows_that_a_product_reads_are_fenced(fenced):
    x = np.ones((64, 64), bf16.numpy)
    found = told(row_read_by_a_product, x, nothing(64, 16), fenced=fenced)
    assert [f.kind for f in found] == ([] if fenced else [Kind.MISSING_FENCE])
