"""The race detector on tiles over any axes of a tensor: the same elements are met whatever the axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens import f32, int32
from pykittens.emulate.finding import Kind
from tests.races import faults, findings, tile

SHAPE = (40, 3, 20)


@st.composite
def stores(draw):
    """A matrix, a row or a column of a tensor, how it is stored to, and where."""
    fixed = draw(st.sets(st.integers(0, 2), min_size=1, max_size=2))
    numbers = {0: st.integers(0, 39), 1: st.integers(0, 2), 2: st.integers(0, 19)}
    index = tuple(draw(numbers[a]) if a in fixed else slice(None) for a in range(3))
    how = draw(st.sampled_from(["tile", "vector", "element", "named"][len(fixed) - 1 :]))
    return index, how, draw(st.integers(0, 1)), draw(st.integers(0, 1))


def touched(index, how, i, j):
    """The elements that a store writes."""
    mask = np.zeros(SHAPE, bool)
    part = mask[index]
    matrix = part if part.ndim == 2 else part[None]
    row, col = (i, j) if part.ndim == 2 else (0, j)
    match how:
        case "tile":
            matrix[16 * row : 16 * row + 16, 16 * col : 16 * col + 16] = True
        case "vector":
            matrix[row : row + 1, 16 * col : 16 * col + 16] = True
        case "element":
            matrix[row : row + 1, col : col + 1] = True
        case "named":
            matrix[row, 3:20:4] = True
    return mask


def store(y, index, how, i, j):
    part = y[index]
    at = part[i, j] if part.rank == 2 else part[j]
    if how == "tile":
        pk.store(at, pk.zeros(f32, 16, 16))
    elif how == "vector":
        pk.store(at, pk.zeros(f32, 16))
    elif how == "element":
        pk.store(at, 1)
    else:
        pk.scatter(part[i] if part.rank == 2 else part, pk.iota(5) * 4 + 3, 1)


@settings(max_examples=150, derandomize=True)
@given(first=stores(), second=stores(), alone=st.booleans())
def test_two_stores_conflict_if_they_have_an_element_in_common(first, second, alone):
    @pk.kernel(warps=1)
    def kernel(y):
        (block,) = pk.grid(1 if alone else 2)
        if alone:
            store(y, *first)
            store(y, *second)
        else:
            if block == 0:
                store(y, *first)
            if block == 1:
                store(y, *second)

    found = faults(kernel, tile(*SHAPE), seeds=[0])
    if not (touched(*first) & touched(*second)).any():
        assert found == set()
    elif not alone:
        assert found == {Kind.BLOCK_CONFLICT}
    else:
        # Lanes that store the same elements in the same way need no barrier.
        assert found == {Kind.RACE} or first[1] == second[1]


@pk.kernel
def heads(x, y, *, by: int):
    """A head, or a part of one, a block."""
    (block,) = pk.grid(4)
    h = block // by
    pk.store(y[:, h][0, 0], pk.load(x[:, h][0, 0], rows=64, cols=16))
    pk.store(y[:, h][0, 1], pk.load(x[:, h][0, 1], rows=64, cols=16))


@pytest.mark.parametrize(("by", "kinds"), [(1, set()), (2, {Kind.BLOCK_CONFLICT})])
def test_blocks_with_heads_of_their_own_are_clean(by, kinds):
    assert faults(heads, tile(64, 4, 20), tile(64, 4, 20), by=by) == kinds


@pk.kernel
def columns(x, y, *, apart: bool):
    """Two blocks that store the two columns of a table, or a column and the whole table."""
    (block,) = pk.grid(2)
    v = pk.load(x, cols=64, spread=pk.per_row)
    if block == 0:
        pk.store(y[:, 0], v)
    if block == 1:
        pk.store(y[:, 1] if apart else y[0], v)


@pytest.mark.parametrize(("apart", "kinds"), [(True, set()), (False, {Kind.BLOCK_CONFLICT})])
def test_columns_of_a_table_are_apart(apart, kinds):
    assert faults(columns, tile(64), tile(64, 2), apart=apart) == kinds


@pk.kernel
def through_another_plane(y, z, *, meets: bool):
    """Stores a head, and loads a row of all heads."""
    pk.grid(1)
    pk.store(y[:, 1], pk.zeros(f32, 64, 16))
    if meets:
        pk.sync()
    pk.store(z, pk.load(y[37, :], rows=64, cols=16))


@pytest.mark.parametrize("meets", [False, True])
def test_lanes_need_a_barrier_if_they_see_an_element_through_another_plane(meets):
    found = faults(through_another_plane, tile(64, 3, 16), tile(64, 16), meets=meets)
    assert found == (set() if meets else {Kind.RACE})


@pk.kernel
def same_lanes(y, z):
    """Stores and loads a head and a column: each lane finds what it stored."""
    pk.grid(1)
    pk.store(y[:, 1], pk.zeros(f32, 64, 16))
    t = pk.load(y.window(0, 0, 50)[:, 1], rows=64, cols=16)
    pk.store(z[:, 1], pk.row_sum(t))
    pk.store(z[:, 0], pk.load(z[:, 1], cols=64, spread=pk.per_row))


def test_lanes_find_what_they_stored_through_the_same_plane():
    assert faults(same_lanes, tile(64, 3, 16), tile(64, 2)) == set()


@pk.kernel
def flags_by_two_ways(y, flags, *, row: int):
    """A flag that is signalled as an element of a column, and awaited as one of a row."""
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(y[0], pk.zeros(f32, 16))
        pk.signal(flags[:, 1][2], 1)
        pk.signal(flags[:, 1][3], 1)
    else:
        pk.wait(flags[row, :][1], 1)
        pk.store(y[0], pk.zeros(f32, 16))


@pytest.mark.parametrize(
    ("row", "initial", "kinds"), [(2, 0, set()), (0, 1, {Kind.BLOCK_CONFLICT})]
)
def test_a_flag_is_one_flag_whatever_the_way_to_it(row, initial, kinds):
    flags = np.full((4, 2), initial, np.int32)
    assert faults(flags_by_two_ways, tile(1, 16), flags, row=row, seeds=range(8)) == kinds


@pk.kernel
def counted(x, counters, *, atomic: bool):
    (i,) = pk.grid(4)
    if atomic:
        pk.atomic_add(counters[:, 1][0], 1)
    else:
        pk.store(counters[0, 1], i)


def test_atomics_of_a_column_are_no_conflict():
    assert faults(counted, tile(4), tile(2, 2, dtype=int32), atomic=True) == set()
    found = faults(counted, tile(4), tile(2, 2, dtype=int32), atomic=False)
    assert found == {Kind.BLOCK_CONFLICT}


@pk.kernel
def some_heads(x, y, *, heads: int):
    (h,) = pk.grid(heads)
    pk.store(y[:, h], pk.load(x[:, h], rows=64, cols=16))


def test_heads_that_are_left_out_are_found_with_their_place():
    x, y = tile(64, 3, 16), np.full((64, 3, 16), np.nan, np.float32)
    assert findings(some_heads, x, y.copy(), heads=3) == []
    (found,) = findings(some_heads, x, y, heads=2)
    assert found.message == "33% of `y` is never written: rows 2 to 2"


@pk.kernel
def read_back(y, z, *, column: int):
    pk.grid(1)
    pk.store(y[:, 1], pk.zeros(f32, 64))
    pk.sync()
    pk.store(z[0], pk.load(y[5, column]))


@pytest.mark.parametrize("column", [0, 1])
def test_what_a_column_has_written_is_written_for_every_way_to_it(column):
    y = np.full((64, 2), np.nan, np.float32)
    found = [f for f in findings(read_back, y, tile(1), column=column) if "is read" in f.message]
    assert {f.kind for f in found} == ({Kind.UNWRITTEN_MEMORY} if column == 0 else set())
