"""Loops of a kernel: carried values and refusals."""

from __future__ import annotations

from collections import namedtuple

import pytest

import pykittens as pk
from pykittens import f32, int32
from tests.running import first, put, stored

Pair = namedtuple("Pair", "low high")


def test_a_name_read_in_the_next_pass_is_carried():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        a, b = 0, 1
        for _ in pk.range(n):
            a, b = b, a + b
        put(out, 0, a)

    assert [first(kernel, n) for n in (0, 1, 2, 10)] == [0, 1, 1, 55]


def test_a_name_rebound_but_not_read_keeps_its_last_value():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        last = -1
        for i in pk.range(n):
            last = i * i
        put(out, 0, last)

    assert [first(kernel, n) for n in (0, 1, 5)] == [-1, 0, 16]


def test_a_name_rebound_before_it_is_read_may_change_its_type():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = pk.zeros(f32, 64, 16)
        for i in pk.range(n):
            x = i + 1
            put(out, i, x)

    assert stored(kernel, 3, rows=3) == [1, 2, 3]


def test_a_carried_name_must_keep_its_type():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = 1
        for _ in pk.range(n):
            x = x + pk.zeros(int32, 8)
        pk.store(out[0], x)

    with pytest.raises(pk.KernelError, match="changes from 1 to rv<int32, 8, plain>") as caught:
        first(kernel, 1)
    assert "^" in str(caught.value)


def test_an_int_that_is_carried_is_no_compile_time_constant_any_more():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        width = 8
        for _ in pk.range(n):
            width = width + 1
        pk.store(out[0], pk.zeros(int32, width))

    with pytest.raises(pk.KernelError, match="compile-time int"):
        first(kernel, 1)


@pytest.mark.parametrize(
    "make", [list, tuple, lambda xs: Pair(*xs), lambda xs: dict(enumerate(xs))]
)
def test_the_parts_of_a_container_are_carried(make):
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        xs = make([0, 1])
        for _ in pk.range(n):
            xs = make([xs[1], xs[0] + xs[1]])
        put(out, 0, xs[0])

    assert first(kernel, 10) == 55


def test_tiles_in_a_list_are_carried_and_may_be_assigned_one_by_one():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        sums = [pk.zeros(int32, 8), pk.zeros(int32, 8) + 10]
        for i in pk.range(n):
            sums[0] = sums[0] + i
            sums[1] += sums[0]
        pk.store(out[0], sums[0])
        pk.store(out[1], sums[1])

    assert stored(kernel, 4, rows=2) == [6, 10 + 0 + 1 + 3 + 6]


def test_the_values_of_a_dict_are_carried():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        state = {"sum": 0, "turns": pk.zeros(int32, 8)}
        for i in pk.range(n):
            state["sum"] = state["sum"] + i
            state["turns"] = state["turns"] + 1
            pk.store(out[i], state["turns"])
        put(out, 7, state["sum"])

    assert stored(kernel, 4) == [1, 2, 3, 4, None, None, None, 6]


def test_a_float_is_carried_as_f32():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = 0.1
        for _ in pk.range(n):
            x = x * 3.0
        if x == 0.30000000447034836:  # 3 times f32(0.1), rounded to f32; in float64 it is not
            put(out, 0, 1)
        else:
            put(out, 0, 0)

    assert first(kernel, 1) == 1


def test_loops_nest():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        total = 0
        for i in pk.range(n):
            row = 0
            for j in pk.range(i, n):
                row = row + j
                total = total + 1
            put(out, i, row)
        put(out, 7, total)

    assert stored(kernel, 4) == [6, 6, 5, 3, None, None, None, 10]


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 7, 2), (7, 0, -3), (3, 3, 1), (5, 2, 1), (-4, 9, 5)]
)
def test_a_range_goes_as_python_s(start, stop, step):
    @pk.kernel
    def kernel(out, start, stop):
        pk.grid(1)
        code = 1
        for i in pk.range(start, stop, step):
            code = code * 17 + i
        put(out, 0, code)

    expected = 1
    for i in range(start, stop, step):
        expected = expected * 17 + i
    assert first(kernel, start, stop) == expected


def test_a_while_runs_until_its_condition_fails():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x, steps = n, 0
        while x != 1:
            if x % 2 == 0:
                x = x // 2
            else:
                x = 3 * x + 1
            steps = steps + 1
        put(out, 0, steps)

    assert [first(kernel, n) for n in (1, 6, 7)] == [0, 8, 16]


def test_the_condition_of_a_while_is_a_bool():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        while n:
            n = n - 1

    with pytest.raises(pk.KernelError, match="condition of a run-time `while` must be a bool"):
        first(kernel, 1)


def test_a_name_bound_only_in_a_loop_cannot_be_read_behind_it():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        for i in pk.range(n):
            x = i
        put(out, 0, 1 if x == 0 else 2)

    with pytest.raises(pk.KernelError, match="`x` is bound only inside a run-time loop"):
        first(kernel, 1)


def test_a_value_of_an_inner_loop_cannot_be_carried_by_the_outer_one():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        found, x = [], 0
        for i in pk.range(n):
            for j in pk.range(n):
                found.append(i + j)
            x = found[0]
        put(out, 0, x)

    with pytest.raises(pk.KernelError, match="`x` holds a value of an inner loop or branch"):
        first(kernel, 2)


def test_a_name_that_a_pass_may_leave_alone_keeps_its_value_from_the_pass_before():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        seen, last = -1, -1
        for i in pk.range(n):
            if i == 1:
                seen = i
            for j in pk.range(2 - i):
                last = i + j
        put(out, 0, seen)
        put(out, 1, last)

    assert [stored(kernel, n, rows=2) for n in (1, 2, 5)] == [[-1, 1], [1, 1], [1, 1]]


def test_a_name_of_another_role_is_not_carried():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        with pk.warps(1):
            x = pk.zeros(int32, 8)
            for i in pk.range(n):
                x = x + i
            pk.store(out[0], x)
        with pk.warps(1):
            for i in pk.range(n):
                x = pk.zeros(int32, 8) + i
                if i > 2:
                    x = x + 10
                pk.store(out[i + 1], x)

    assert stored(kernel, 4, rows=5) == [6, 0, 1, 2, 13]


def test_a_while_cannot_become_a_run_time_loop_after_its_first_pass():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        going = True
        while going:
            n = n - 1
            going = n > 0

    with pytest.raises(
        pk.KernelError, match="known in the first iteration and a run-time value in a later"
    ):
        first(kernel, 3)


def test_a_name_that_only_an_inner_loop_binds_anew_is_not_carried():
    @pk.kernel(warps=1)
    def reused(out):
        (row,) = pk.grid(1)
        p = 1.5
        for i in pk.range(2):
            for j in pk.range(2):
                p = pk.zeros(pk.int32, 8) + i + j
                pk.store(out[i * 2 + j], p)

    assert stored(reused)[:4] == [0, 1, 1, 2]


def test_a_python_loop_of_many_iterations_warns_once_at_its_line():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        for _ in range(2000):
            n = n + 1
        put(out, 0, n)

    with pytest.warns(RuntimeWarning, match="1000 iterations of a Python loop") as caught:
        assert first(kernel, 1) == 2001
    assert len(caught) == 1
    assert "for _ in range(2000):" in str(caught[0].message)
    assert "pk.range(n)" in str(caught[0].message)
