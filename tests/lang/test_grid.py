"""Grids and tasks: every task is done exactly once, in the requested order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykittens as pk
from pykittens import int32
from pykittens.ir.nodes import Order, Tasks
from pykittens.ir.orders import decode, task_extents
from tests.refusals import refused
from tests.running import first, put, recorded, stored

ORDERS = [pk.row_major, pk.column_major, pk.supergroup(3), pk.longest_first, pk.longest_first(2)]
DIMS = st.lists(st.integers(1, 7), min_size=2, max_size=4)


@given(dims=DIMS, order=st.sampled_from(ORDERS))
def test_an_order_visits_every_task_once(dims, order):
    tasks = Tasks(tuple(dims), order)
    total = int(np.prod(dims))
    seen = [decode(tasks, dims, turn) for turn in range(total)]
    assert sorted(seen) == list(itertools.product(*map(range, dims)))


def in_order(order: Order, *dims: int) -> list[tuple[int, ...]]:
    return [decode(Tasks(dims, order), dims, turn) for turn in range(int(np.prod(dims)))]


def test_the_last_axis_runs_fastest_by_rows_and_the_last_but_one_by_columns():
    assert in_order(pk.row_major, 2, 2, 3)[:4] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]
    assert in_order(pk.column_major, 2, 2, 3)[:4] == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]


def test_a_supergroup_walks_columns_of_so_many_rows():
    assert in_order(pk.supergroup(2), 3, 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


def test_longest_first_takes_the_last_axis_descending_within_sections_of_heads():
    assert in_order(pk.longest_first(2), 1, 3, 2) == [
        *[(0, 0, 1), (0, 1, 1), (0, 0, 0), (0, 1, 0)],
        *[(0, 2, 1), (0, 2, 0)],
    ]


def test_a_cluster_takes_neighbours_and_the_odd_one_is_rounded_up():
    tasks = Tasks((5, 3), pk.row_major, cluster_axis=0)
    assert task_extents(tasks, (5, 3), 2) == (3, 3)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("dims", [(1, 1), (3, 5), (7, 2)])
def test_the_blocks_of_a_persistent_kernel_share_the_tasks_out(order, dims):
    @pk.kernel
    def kernel(counts, rows, cols):
        with pk.warps(1):
            pass
        for_roles = tasks = pk.persistent((rows, cols), order)
        with pk.warps(1):
            for row, col in for_roles:
                one = pk.load(counts[row, col], cols=8) + 1
                pk.store(counts[row, col], one)
        with pk.warpgroups(1):
            for row, col in tasks:
                pk.store(counts[row + rows, col], pk.zeros(int32, 8) + 1)

    rows, cols = dims
    counts = np.zeros((2 * rows, cols * 8), np.int32)
    kernel(counts, rows, cols)
    assert (counts == 1).all()


def test_the_blocks_of_a_grid_have_its_coordinates():
    @pk.kernel
    def kernel(out):
        i, j = pk.grid(2, pk.cdiv(out.cols, 4))
        put(out, i * 2 + j, i * 10 + j)

    assert stored(kernel, rows=4) == [0, 1, 10, 11]


def test_one_axis_of_tasks_is_unpacked_as_one():
    @pk.kernel
    def kernel(out, n):
        for (i,) in pk.persistent((n,)):
            put(out, i, i)

    assert stored(kernel, 6) == [0, 1, 2, 3, 4, 5, None, None]
    assert stored(kernel, 0) == [None] * 8


@pytest.mark.parametrize("where", ["in front of the grid", "behind it", "nowhere"])
def test_launches_overlap_where_the_kernel_says_so(where):
    @pk.kernel
    def kernel(out):
        if where == "in front of the grid":
            pk.overlap()
        (i,) = pk.grid(8)
        if where == "behind it":
            pk.overlap()
        put(out, i, i)

    out = np.zeros((8, 8), np.int32)
    for lowered in (False, True):
        assert recorded(kernel, out, lowered=lowered).overlaps == (where != "nowhere")
    assert stored(kernel) == list(range(8))


def grids(out, n):
    pk.grid(1)
    pk.grid(n)


def inside(out, n):
    with pk.warps(1):
        pk.grid(n)


def many(out, n):
    pk.grid(1, 1, 1, 1, 1, n)


def wrong_type(out, n):
    pk.grid(1.5)


def missing(out, n):
    put(out, 0, 1)


def bare(out, n):
    pk.persistent(n)


def order_of_one(out, n):
    pk.persistent((n,), pk.supergroup(2))


def no_order(out, n):
    pk.persistent((n,), 3)


def axis(out, n):
    pk.persistent((n,), cluster_axis=1)


def loaded_extent(out, n):
    pk.grid(pk.load(out[0, 0]))


def loaded_blocks(out, n):
    pk.persistent((n,), blocks=pk.load(out[0, 0]) + 1)


def no_blocks(out, n):
    pk.persistent((n,), blocks=n - 2)


def blocks_of_half_a_cluster(out, n):
    pk.persistent((n,), cluster=4, blocks=n)


def wrong_names(out, n):
    for i, j, k in pk.persistent((n, n)):
        put(out, i, j + k)


def overlap_in_a_role(out, n):
    with pk.warps(1):
        pk.overlap()


def overlap_in_a_loop(out, n):
    for _ in pk.range(n):
        pk.overlap()


def overlap_in_a_branch(out, n):
    if n > 1:
        pk.overlap()


def resident_in_a_role(out, n):
    with pk.warps(1):
        pk.resident(2)


def resident_in_a_loop(out, n):
    for _ in pk.range(n):
        pk.resident(2)


def many_resident(out, n):
    pk.resident(17)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (grids, "one grid or one set of tasks"),
        (inside, "must be before the roles"),
        (many, "takes 1 to 5 extents, not 6"),
        (wrong_type, r"`dims\[0\]` must be an int32, not 1.5"),
        (missing, "the kernel has no grid"),
        (bare, "`dims` must be a tuple of extents, not int32"),
        (order_of_one, "supergroup takes two or more extents"),
        (no_order, "`order` must be an order"),
        (axis, "`cluster_axis` must be a compile-time int from 0 to 0, not 1"),
        (loaded_extent, r"`dims\[0\]` must be known on the host"),
        (loaded_blocks, "`blocks` must be known on the host"),
        (no_blocks, "no_blocks: `blocks` of pk.persistent must be at least 1"),
        (blocks_of_half_a_cluster, "`blocks` of pk.persistent must be at least 4"),
        (wrong_names, "not enough values to unpack"),
        (overlap_in_a_role, "pk.overlap: must be outside roles, loops and branches"),
        (overlap_in_a_loop, "pk.overlap: must be outside roles, loops and branches"),
        (resident_in_a_role, "pk.resident: must be outside roles, loops and branches"),
        (resident_in_a_loop, "pk.resident: must be outside roles, loops and branches"),
        (many_resident, "`blocks` must be a compile-time int from 1 to 16, not 17"),
        (overlap_in_a_branch, "pk.overlap: must be outside roles, loops and branches"),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_a_wrong_grid_is_refused(function, message):
    with refused(message):
        first(pk.kernel(function), 2)


@pytest.mark.parametrize("step", [0, 1.5, True])
def test_the_step_of_a_range_is_a_compile_time_int_other_than_zero(step):
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        for i in pk.range(0, n, step):
            put(out, i, i)

    with pytest.raises(pk.KernelError, match="`step` must be a nonzero compile-time int"):
        first(kernel, 2)
