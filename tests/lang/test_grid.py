"""Grids and tasks: every task is done exactly once, in the requested order."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import int32
from pykittens.ir.text import text
from tests.refusals import refused
from tests.running import first, put, recorded, stored

ORDERS = [pk.row_major, pk.column_major, pk.supergroup(3), pk.longest_first, pk.longest_first(2)]


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


def test_a_task_may_wait_for_those_before_it_in_the_order():
    @pk.kernel
    def chain(flags, n):
        for (task,) in pk.persistent((n,), pk.longest_first):
            if task < n - 1:
                pk.wait(flags[task + 1], 1)
            pk.signal(flags[task], 1)

    report = pk.check(chain, np.zeros(23, np.int32), 23, schedules=12, compile=False)
    assert report.ok, report


@pytest.mark.parametrize("heads", [-1, 1, 2, 3, 100])
def test_clusters_share_tasks_out_by_sections_that_are_computed(heads):
    @pk.kernel(cluster=2)
    def kernel(counts, n):
        tasks = pk.persistent((5, 4), pk.longest_first(n), cluster_axis=0)
        with pk.warps(1):
            for head, i in tasks:
                pk.store(counts[head, i], pk.load(counts[head, i], cols=8) + 1)

    counts = np.zeros((5, 32), np.int32)
    kernel(counts, heads)
    assert (counts == 1).all()


def test_an_argument_for_a_section_is_used_and_the_text_shows_it():
    @pk.kernel
    def kernel(out, n, share):
        for head, i in pk.persistent((n, 2), pk.longest_first(pk.cdiv(n, share))):
            put(out, head * 2 + i, i)

    out = np.zeros((8, 8), np.int32)
    shown = text(recorded(kernel, out, 4, 2))
    assert "heads_at_once: int32 = maximum(a=t1, b=1)" in shown
    assert "in tasks(n, 2; longest_first(heads_at_once)):" in shown
    report = pk.check(kernel, out, 4, 2, compile=False)
    assert report.ok, report
    assert not report.findings


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


ELSEWHERE = []


@pk.kernel
def elsewhere(out, n):
    """Leaves an order behind."""
    pk.grid(1)
    ELSEWHERE[:] = [pk.longest_first(n)]
    put(out, 0, n)


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


def loaded_section(out, n):
    pk.persistent((n, n), pk.longest_first(pk.load(out[0, 0])))


def fraction_of_heads(out, n):
    pk.persistent((n, n), pk.longest_first(n.to(pk.f32)))


def no_heads(out, n):
    pk.persistent((n, n), pk.longest_first(0))


def section_of_another_kernel(out, n):
    pk.persistent((n, n), ELSEWHERE[0])


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
        (loaded_section, "longest_first: `heads` must be known on the host"),
        (fraction_of_heads, "longest_first: `heads` must be an int32 of at least 1, not f32"),
        (no_heads, "longest_first: `heads` must be an int32 of at least 1, not 0"),
        (section_of_another_kernel, "pk.persistent: `heads_at_once` is used outside the kernel"),
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
    first(elsewhere, 1)
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
