"""Run-time integers and bools behave like Python's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from tests.running import first, put, stored

SMALL = st.integers(-1000, 1000)


@pk.kernel
def arithmetic(out, a, b):
    pk.grid(1)
    put(out, 0, a // b)
    put(out, 1, a % b)
    put(out, 2, pk.cdiv(a, b))
    put(out, 3, a * b - a + b)
    put(out, 4, -a)
    put(out, 5, pk.maximum(a, b) * 3 + pk.minimum(a, b))
    put(out, 6, 17 // b + 17 % b)


@settings(max_examples=60, derandomize=True)
@given(a=SMALL, b=SMALL.filter(bool))
def test_integers_are_divided_downwards(a, b):
    expected = [
        a // b,
        a % b,
        -(-a // b),
        a * b - a + b,
        -a,
        max(a, b) * 3 + min(a, b),
        17 // b + 17 % b,
    ]
    assert stored(arithmetic, a, b, rows=7) == expected


def test_on_numbers_of_python_they_are_done_at_once():
    assert pk.cdiv(7, 2) == 4
    assert pk.cdiv(-7, 2) == -3
    assert type(pk.cdiv(8, 2)) is int
    assert pk.maximum(3, 4) == 4
    assert type(pk.maximum(3, 4)) is int


def test_a_division_by_zero_of_python_s_numbers_is_told_too():
    with pytest.raises(pk.KernelError, match="7 is divided by 0"):
        pk.cdiv(7, 0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: n // 2.0, "floor_div: `b` must be an integer, not 2.0"),
        (lambda n: pk.cdiv(n, True), "cdiv: `b` must be an integer, not True"),
        (lambda n: n / 2, "integers are divided with `//`"),
        (lambda n: n + 0.5, "`b` = 0.5 is no int32"),
        (lambda n: n + 2**31, "is no int32"),
        (lambda n: range(n), "run-time value stands where a compile-time integer is needed"),
        (lambda n: float(n), "run-time value stands where a compile-time integer is needed"),
    ],
)
def test_what_is_no_integer_is_refused(function, message):
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, function(n))

    with pytest.raises(pk.KernelError) as caught:
        first(kernel, 4)
    assert message in str(caught.value)


def test_a_truth_is_no_number():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, (n > 2) + 1)

    with pytest.raises(pk.KernelError, match="`a` must be float or int, not bool"):
        first(kernel, 4)


def test_an_argument_that_is_a_truth_is_a_condition():
    @pk.kernel
    def kernel(out, flag):
        pk.grid(1)
        if flag:
            put(out, 0, 1)
        else:
            put(out, 0, 2)

    assert [first(kernel, flag) for flag in (True, False)] == [1, 2]
