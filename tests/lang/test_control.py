"""The rewriting of kernel functions: constructs that keep working, and refusals with carets."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens import int32
from tests.running import first, put, stored

FACTOR = 3


@pk.function
def power(base, exponent):
    result = 1
    for _ in pk.range(exponent):
        result = result * base
    return result


@pk.function
def clamped(x, *, low=0, high=9):
    if x < low:
        x = low
    elif x > high:
        x = high
    return x


def unmarked(n):
    x = 0
    for _ in pk.range(n):
        x = x + 1
    return x


def test_a_marked_helper_may_loop_and_branch():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, power(n, 3))
        put(out, 1, clamped(n))
        put(out, 2, clamped(n, high=4))

    assert stored(kernel, 5, rows=3) == [125, 5, 4]
    assert stored(kernel, -2, rows=3) == [-8, 0, 0]


def test_a_marked_helper_is_python_on_python_s_numbers():
    assert clamped(12) == 9
    assert [clamped(x, low=2) for x in (1, 5)] == [2, 5]


def test_a_run_time_range_outside_a_rewritten_function_raises():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, unmarked(n))

    with pytest.raises(pk.KernelError, match="in a function that is rewritten") as caught:
        first(kernel, 1)
    assert "for _ in pk.range(n)" in str(caught.value)


def test_an_inner_function_reads_what_the_loop_carries():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = 0

        def following():
            return acc + FACTOR

        for _ in pk.range(n):
            acc = following()
        put(out, 0, acc)

    assert first(kernel, 4) == 12


def test_an_inner_function_rebinds_what_the_loop_carries():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        acc = 0

        def add(x):
            nonlocal acc
            acc = acc + x

        for i in pk.range(n):
            if i % 2 == 0:
                add(i)
        put(out, 0, acc)

    assert first(kernel, 6) == 6


def test_an_inner_function_may_loop_and_be_marked_or_not():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)

        def sum_to(k):
            total = 0
            for i in pk.range(k):
                total = total + i
            return total

        @pk.function
        def twice(k):
            for _ in pk.range(2):
                k = k + sum_to(n)
            return k

        put(out, 0, twice(1))

    assert first(kernel, 4) == 13


def test_closures_keep_their_cells():
    step = 1

    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = 0
        for _ in pk.range(n):
            x = x + step
        put(out, 0, x)

    step = 4
    assert first(kernel, 3) == 12


def test_constants_have_defaults():
    @pk.kernel
    def kernel(out, *, value=7):
        pk.grid(1)
        put(out, 0, value)

    assert first(kernel) == 7
    assert first(kernel, value=8) == 8


def test_a_walrus_binds_its_name():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        k, halvings = 16, 0
        while (k := k // 2) > 0:
            halvings = halvings + 1
        if 0 < (y := 3) < 5:
            y = y + n
        if above := n > 4:
            y = y + 100
        if not above:
            put(out, 2, 1)
        put(out, 0, y)
        put(out, 1, halvings)

    assert stored(kernel, 1, rows=3) == [4, 4, 1]
    assert stored(kernel, 5, rows=3) == [108, 4, None]


def test_a_run_time_while_cannot_bind_a_name_in_its_condition():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        while (n := n - 1) > 0:
            pass

    with pytest.raises(pk.KernelError, match="condition of a run-time `while` binds a name"):
        first(kernel, 3)


def test_comprehensions_and_conditional_expressions_are_python_s():
    @pk.kernel
    def kernel(out, n, *, negative=False):
        pk.grid(1)
        parts = [n + i for i in range(6) if i % 2 == 0 and i > 0]
        put(out, 0, parts[0] * 10 + parts[1])
        put(out, 1, -n if negative else n)

    assert stored(kernel, 1, rows=2) == [35, 1]
    assert stored(kernel, 1, rows=2, negative=True) == [35, -1]


def test_a_conditional_expression_on_a_run_time_value_names_the_way_out():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, 1 if n > 2 else 2)

    with pytest.raises(pk.KernelError, match="no truth value") as caught:
        first(kernel, 1)
    assert "pk.where(condition, a, b)" in str(caught.value)


def test_an_attribute_cannot_be_carried():
    class State:
        x = 0

    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        state = State()
        state.x = 1
        for _ in pk.range(n):
            state.x += 1
        put(out, 0, state.x)

    with pytest.raises(pk.KernelError, match=r"`state.x = ...` inside a run-time loop"):
        first(kernel, 1)


def test_the_target_of_a_loop_of_python_is_carried_where_it_is_also_assigned():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = 0
        for i in pk.range(n):
            put(out, i, x)
            x = x + 1
            for x in range(3, 5):  # noqa: B020, B007
                pass

    assert stored(kernel, 3, rows=3) == [0, 4, 4]


def test_values_and_kernels_keep_the_names_they_were_given():
    @pk.kernel
    def named(out, n):
        """It stores a number."""
        pk.grid(1)
        doubled = n * 2
        zero = pk.zeros(int32, 8)
        assert (doubled.name, zero.name, n.name) == ("doubled", "zero", "n")
        for turn in pk.range(n):
            assert turn.name == "turn"
        pk.store(out[0], zero + doubled)

    assert first(named, 4) == 8
    assert (named.__name__, named.__doc__) == ("named", "It stores a number.")


def test_a_class_statement_in_a_kernel_is_python_s():
    @pk.kernel
    def kernel(out, n):
        class Step:
            __size = 2
            size = __size + 1

        pk.grid(1)
        x = 0
        for _ in pk.range(n):
            x = x + Step.size
        put(out, 0, x)

    assert first(kernel, 4) == 12


class Library:
    __step = 5

    @staticmethod
    @pk.function
    def added(x, __by, n):
        for _ in pk.range(n):
            x = x + __by + Library.__step
        return x


def test_a_function_in_a_class_may_read_private_names():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, Library.added(0, 1, n))

    assert first(kernel, 2) == 12
