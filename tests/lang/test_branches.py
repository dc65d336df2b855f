"""Branches of a kernel: merged values and refusals."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens import int32
from tests.running import first, put, stored


def test_an_if_merges_what_its_branches_bind():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        t = pk.zeros(int32, 8)
        if n > 3:
            t, code = t + 1, 10
        elif n > 1:
            code = 20
        else:
            t, code = t + 3, n
        pk.store(out[0], t)
        put(out, 1, code)

    assert [stored(kernel, n, rows=2) for n in (4, 2, 1)] == [[1, 10], [0, 20], [3, 1]]


def test_an_if_leaves_a_list_of_the_other_branch_alone():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        xs = [1, [2, 3]]
        if n > 0:
            xs[0] = 5
        else:
            xs[1][0] = xs[0] + 6
        put(out, 0, xs[0])
        put(out, 1, xs[1][0])

    assert [stored(kernel, n, rows=2) for n in (0, 1)] == [[1, 7], [5, 2]]


def test_an_if_of_python_runs_one_branch_only():
    @pk.kernel
    def kernel(out, *, wide):
        pk.grid(1)
        if wide:
            value = 2
        else:
            value = undefined_on_purpose  # noqa: F821
        put(out, 0, value)

    assert first(kernel, wide=True) == 2
    with pytest.raises(NameError):
        first(kernel, wide=False)


def test_a_name_bound_in_one_branch_only_cannot_be_read():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        if n > 0:
            x = 1
        put(out, 0, x)

    with pytest.raises(pk.KernelError, match="`x` is bound in one branch of a run-time `if` only"):
        first(kernel, 1)
