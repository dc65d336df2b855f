"""`and`, `or`, `not` and chained comparisons in a kernel: run-time if an operand is, else Python's."""

from __future__ import annotations

import pytest

import pykittens as pk
from tests.running import first, put


def test_truths_are_joined_negated_and_chained():
    @pk.kernel
    def kernel(out, a, b):
        pk.grid(1)
        if 0 < a < b <= 9 and not (a == 3 or b == 4):
            put(out, 0, 1)
        else:
            put(out, 0, 0)

    for a in range(-1, 7):
        for b in (2, 4, 9, 10):
            assert first(kernel, a, b) == (0 < a < b <= 9 and not (a == 3 or b == 4))


def test_and_with_a_truth_of_python_stops_where_python_stops():
    @pk.kernel
    def kernel(out, n, *, check):
        pk.grid(1)
        if check and n > 2:
            put(out, 0, 1)
        elif not check or undefined_on_purpose:  # noqa: F821
            put(out, 0, 2)

    assert first(kernel, 5, check=False) == 2
    with pytest.raises(NameError):
        first(kernel, 5, check=True)


def test_both_sides_of_a_run_time_or_are_evaluated():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        if n == 0 or 6 // n > 2:
            put(out, 0, 1)
        else:
            put(out, 0, 0)

    assert [first(kernel, n) for n in (2, 3)] == [1, 0]
    with pytest.raises(pk.KernelError, match="6 is divided by 0"):
        first(kernel, 0)
