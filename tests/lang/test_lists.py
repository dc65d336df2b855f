"""Lists, dicts and objects with several names in run-time loops and branches."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens import int32
from tests.running import first, put, stored


@pk.function
def accumulate(acc, t, n):
    for _ in pk.range(n):
        acc[0] = acc[0] + t


def bump(acc, t):
    acc[0] = acc[0] + t


def test_a_helper_assigns_items_of_the_caller_s_list():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = [pk.zeros(int32, 8)]
        accumulate(acc, pk.zeros(int32, 8) + 2, n)
        pk.store(out[0], acc[0])

    assert [first(kernel, n) for n in (0, 3)] == [0, 6]


def test_a_second_name_sees_the_items_that_a_loop_assigns():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = [0, 5]
        rows = [acc, acc]
        seen = rows[0]
        for i in pk.range(n):
            acc[0] = seen[0] + i
            put(out, 3, rows[1][0])
        put(out, 0, seen[0])
        put(out, 1, rows[1][0])
        put(out, 2, seen[1])

    assert stored(kernel, 4, rows=4) == [6, 6, 5, 6]


def test_a_second_name_sees_the_items_that_a_branch_assigns():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = [1]
        seen = acc
        if n > 0:
            bump(acc, n)
        put(out, 0, seen[0])

    assert [first(kernel, n) for n in (0, 3)] == [1, 4]


def test_a_list_of_an_argument_s_default_is_the_same_list():
    acc = [0]

    def add(t, to=acc):
        to[0] = to[0] + t

    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc[0] = 0
        if n > 2:
            add(n)
        put(out, 0, acc[0])

    assert [first(kernel, n) for n in (2, 3)] == [0, 3]


def test_a_function_called_in_a_loop_cannot_assign_items_of_an_outer_list():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = [0]
        for _ in pk.range(n):
            bump(acc, 2)
        put(out, 0, acc[0])

    with pytest.raises(pk.KernelError, match=r"a run-time loop changes `acc\[0\]`") as caught:
        first(kernel, 1)
    assert "acc[0] = f(acc[0])" in str(caught.value)
    assert "^^^" in str(caught.value)


def test_a_function_called_in_a_loop_cannot_set_attributes_or_outer_variables():
    class State:
        total = 0

    state, count = State(), 0

    def set_attribute():
        state.total = 1

    def rebind():
        nonlocal count
        count = 1

    @pk.kernel
    def kernel(out, n, *, change):
        pk.grid(1)
        for _ in pk.range(n):
            change()
        put(out, 0, n)

    state.total = 0
    for change, name in ((set_attribute, "state.total"), (rebind, "count")):
        with pytest.raises(pk.KernelError, match=f"a run-time loop changes `{name}`"):
            first(kernel, 1, change=change)


def test_two_names_that_may_have_one_list_cannot_both_change():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        zeros = [0]
        acc = zeros
        for i in pk.range(n):
            acc = [acc[0] + i]
        zeros[0] = 7
        put(out, 0, acc[0])

    with pytest.raises(pk.KernelError, match="`acc` has one of two lists") as caught:
        first(kernel, 3)
    assert "acc` a list of its own before" in str(caught.value)


def test_a_name_bound_to_a_new_list_leaves_the_old_one_alone():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        zeros = [0]
        acc = zeros
        for i in pk.range(n):
            acc = [acc[0] + i + zeros[0]]
        put(out, 0, acc[0])
        put(out, 1, zeros[0])

    assert stored(kernel, 4, rows=2) == [6, 0]


def test_branches_that_append_must_append_alike():
    @pk.kernel
    def kernel(out, n, *, both):
        pk.grid(1)
        found = []
        if n > 0:
            found.append(n)
        else:
            for _ in range(both):
                found.append(3)
        put(out, 0, found[0])

    assert [first(kernel, n, both=1) for n in (0, 2)] == [3, 2]
    with pytest.raises(pk.KernelError, match="has 1 items after one branch .* and 0 after the oth"):
        first(kernel, 1, both=0)


def test_lists_that_loops_swap_are_carried():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        a, b = [1], [2]
        for _ in pk.range(n):
            a, b = b, a
        put(out, 0, a[0])
        put(out, 1, b[0])

    assert [stored(kernel, n, rows=2) for n in (2, 3)] == [[1, 2], [2, 1]]


def test_nested_loops_put_another_list_into_a_list():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        xs, rows = [n, 1], [[3, 4]]
        for _ in pk.range(n):
            for _ in pk.range(n):
                rows[0] = list(xs)
        put(out, 0, rows[0][0])

    assert [first(kernel, n) for n in (0, 2)] == [3, 2]
