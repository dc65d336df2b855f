"""How often groups come by a node: loops multiply, conditions are 0 or 1, each group has its number."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.checker.proofs.counts import times, visits
from pykittens.checker.proofs.formula import Formula
from pykittens.ir.nodes import Call
from tests.running import recorded

Y = np.zeros(64, np.int32)


def counts(kernel, *args):
    """How often each group stores, by its name."""
    found = {}
    for visit in visits(recorded(kernel, *args)):
        if isinstance(visit.node, Call) and visit.node.op.name == "store":
            found[visit.who] = found.get(visit.who, Formula()) + visit.count
    return {who: str(count) for who, count in found.items()}


def test_loops_multiply():
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        for i in pk.range(n):
            for _ in pk.range(i, 10, 4):
                for _ in range(3):
                    pk.store(y[0], 1)

    (count,) = counts(kernel, Y, 3).values()
    assert count == "3 * max(cdiv(-index of range(n) + 10, 4), 0) * max(n, 0)"


def test_a_branch_counts_where_its_condition_holds():
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        if n > 3:
            pk.store(y[0], 1)
        else:
            pk.store(y[0], 1)
            pk.store(y[1], 1)

    (count,) = counts(kernel, Y, 3).values()
    assert count == "-(n - 3 > 0) + 2"


def test_each_group_has_its_own_number():
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warps(3) as w:
            for _ in pk.range(w * 2):
                pk.store(y[0], 1)
            if w == 1:
                pk.store(y[0], 1)

    # Group 0 makes no pass and takes no branch.
    assert counts(kernel, Y) == {"warps 1": "3", "warps 2": "4"}


def test_passes_of_a_while_are_of_each_role_its_own():
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        with pk.producer():
            i = n
            while i < 3:
                pk.store(y[0], 1)
                i = i + 1
        with pk.storer():
            i = n
            while i < 3:
                pk.store(y[1], 1)
                i = i + 1

    a, b = counts(kernel, Y, 0).values()
    assert a != b
    assert a.startswith("passes of the while of ")


def test_tasks_are_one_or_more_and_the_same_for_all():
    @pk.kernel
    def kernel(y):
        tasks = pk.persistent((y.cols,))
        with pk.producer():
            for (i,) in tasks:
                pk.store(y[i], 1)
        with pk.storer():
            for (i,) in tasks:
                for _ in pk.range(i):
                    pk.store(y[i], 1)

    assert counts(kernel, Y) == {"producer": "tasks", "storer": "task[0] * tasks"}


def test_counts_in_words():
    assert [times(Formula.of(n)) for n in range(3)] == ["never", "once", "2 times"]
