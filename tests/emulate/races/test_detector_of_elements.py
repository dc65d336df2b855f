"""The race detector on elements that an index names, in shared memory and in tensors."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from pykittens.emulate.finding import Kind, Level
from pykittens.emulate.races import shadow
from tests.races import faults, findings, tile, told_of

BYTES = np.random.default_rng(0).integers(0, 256, (3, 2048), np.uint8)
UP, DOWN = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32)[::-1].copy()
SUMS = {(Level.WARNING, Kind.SCHEDULE_DEPENDENT)}


@pk.kernel
def histogram(x, y, *, zeroed: bool, before: bool, after: bool):
    """The counts of a row in shared memory, added to those of the other rows."""
    part = pk.shared(pk.sv(int32, 256))
    (row,) = pk.grid(x.rows)
    if zeroed:
        pk.store(part, pk.zeros(int32, 256))
    if before:
        pk.sync()
    for j in pk.range(pk.cdiv(x.cols, 512)):
        pk.scatter(part, pk.load(x[row, j], cols=512).to(int32), 1, op="add")
    if after:
        pk.sync()
    pk.store(y, pk.load(part), op="add")


def test_a_histogram_is_clean_and_right():
    y = np.zeros(256, np.int32)
    histogram(BYTES, y, zeroed=True, before=True, after=True)
    assert (y == np.bincount(BYTES.reshape(-1), minlength=256)).all()
    found = pk.check(histogram, BYTES, np.zeros_like(y), zeroed=True, before=True, after=True)
    assert not found.findings, str(found)


@pytest.mark.parametrize("missing", ["before", "after"])
def test_counts_in_shared_memory_need_a_sync_before_and_after(missing):
    syncs = {"before": True, "after": True, missing: False}
    assert faults(histogram, BYTES, np.zeros(256, np.int32), zeroed=True, **syncs) == {Kind.RACE}


def test_counts_that_nothing_has_set_to_zero_are_unwritten():
    args = BYTES, np.zeros(256, np.int32)
    found = findings(histogram, *args, zeroed=False, before=True, after=True)
    assert {f.kind for f in found} == {Kind.UNWRITTEN_MEMORY}
    assert "`part` is combined with, and nothing has written it" in found[0].message


@pk.kernel
def moved(index, other, y, *, meets: bool):
    """Elements from one place to another, in shared memory."""
    whole = pk.shared(pk.sv(f32, 64))
    pk.grid(1)
    pk.store(whole, pk.zeros(f32, 64))
    pk.sync()
    v = pk.gather(whole, pk.load(index, cols=64))
    if meets:
        pk.sync()
    pk.scatter(whole, pk.load(other, cols=64), v + 1.0)
    pk.sync()
    pk.store(y, pk.load(whole))


def test_elements_that_go_back_to_where_they_came_from_stay_with_their_lanes():
    assert faults(moved, UP, UP.copy(), tile(64), meets=False) == set()
    assert faults(moved, UP, DOWN, tile(64), meets=False) == {Kind.RACE}
    assert faults(moved, UP, DOWN, tile(64), meets=True) == set()


@pk.kernel
def scattered(x, index, y, *, op: str | None, shared: bool):
    part = pk.shared(pk.sv(f32, 64))
    pk.grid(1)
    at, v = pk.load(index, cols=64), pk.load(x, cols=64)
    if shared:
        pk.store(part, pk.zeros(f32, 64))
        pk.sync()
        pk.scatter(part, at, v, op=op)
        pk.sync()
        pk.store(y, pk.load(part))
    else:
        pk.scatter(y, at, v, op=op)


@pytest.mark.parametrize("shared", [False, True])
def test_values_of_one_index_are_a_warning_unless_they_are_equal(shared):
    twice, values = np.minimum(UP, 60), np.arange(64, dtype=np.float32)
    for op, told in ((None, SUMS), ("add", SUMS), ("max", set())):
        assert told_of(scattered, values, UP, tile(64), op=op, shared=shared) == set()
        assert told_of(scattered, values, twice, tile(64), op=op, shared=shared) == told
        assert told_of(scattered, tile(64), twice, tile(64), op=op, shared=shared) == set()


@pk.kernel
def permuted(x, index, y):
    (i,) = pk.grid(pk.cdiv(x.cols, 128))
    at = pk.load(index[i], cols=128, fill=-1)
    pk.scatter(y, at, pk.load(x[i], cols=128))


def test_blocks_that_scatter_to_different_elements_are_clean_and_to_one_element_are_not():
    index = np.random.default_rng(0).permutation(1000).astype(np.int64)
    x, y = np.arange(1000, dtype=np.float32), np.full(1000, np.nan, np.float32)
    assert not pk.check(permuted, x, index, y).findings
    index[900] = index[3]
    assert faults(permuted, x, index, y) == {Kind.BLOCK_CONFLICT}


@pk.kernel
def met_in_a_loop(x, y):
    part = pk.shared(pk.sv(int32, 512))
    pk.grid(1)
    pk.store(part, pk.zeros(int32, 512))
    for i in pk.range(x.cols // 64):
        pk.sync()
        pk.scatter(part, pk.load(x[i], cols=64), 1, op="add")
    pk.sync()
    pk.store(y, pk.load(part))


@pk.kernel
def by_blocks(x, y):
    (i,) = pk.grid(x.cols // 64)
    pk.scatter(y, pk.load(x[i], cols=64), 1, op="add")


@pytest.mark.parametrize("kernel", [met_in_a_loop, by_blocks])
def test_a_scatter_to_many_elements_is_compared_linearly(monkeypatch, kernel):
    judged, judge = [], shadow.judge
    monkeypatch.setattr(shadow, "judge", lambda *args: (judged.append(1), judge(*args)))
    counts = []
    for count in (4096, 16384):
        judged.clear()
        x = np.random.default_rng(0).integers(0, 512, count).astype(np.int32)
        assert not findings(kernel, x, np.zeros(512, np.int32), seeds=[0])
        counts.append(len(judged))
    assert counts[1] <= 5 * counts[0]


@pk.kernel
def slices(x, y):
    """Copies a row by slices of 16 of each 64 elements."""
    pk.grid(1)
    for q in pk.range(4):
        places = pk.row_index(64) * 64 + (q * 16 + pk.col_index(16))
        pk.scatter(y[0], places, pk.gather(x[0], places))


def test_elements_of_a_row_in_turn_that_reach_over_several_cells_are_not_the_same():
    x = np.arange(4096, dtype=np.float32)[None]
    y = np.zeros_like(x)
    slices(x, y)
    assert (y == x).all()
    found = pk.check(slices, x, np.zeros_like(y))
    assert not found.findings, str(found)
