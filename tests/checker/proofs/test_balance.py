"""What is proved of stages and turns: kernels that balance, kernels that do not, and those of which nothing is said."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.checker.proofs.balance import prove
from pykittens.emulate.finding import Kind, Level, Scope
from tests.cases import CASES as OPERATIONS
from tests.running import recorded
from tests.tiers import sampled_together

X = np.zeros((256, 64), np.float32)


@pk.kernel
def passed_on(x, y, n, m, *, fills, drains):
    """A pipeline filled and drained by the loops that two functions of Python write."""
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    tasks = pk.persistent(x.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            for i in fills(row, n, m):
                with ring.fill() as t:
                    pk.load_async(t, x[i, col])
    with pk.storer():
        for row, col in tasks:
            for i in drains(row, n, m):
                with ring.drain() as t:
                    pk.store_async(y[i, col], t)


def of(fills, drains):
    return prove(recorded(passed_on, X, X, 3, 3, fills=fills, drains=drains))


@pytest.mark.parametrize(
    ("fills", "drains"),
    [
        (lambda row, n, m: pk.range(n), lambda row, n, m: pk.range(n)),
        (lambda row, n, m: pk.range(n + m), lambda row, n, m: pk.range(m, n + 2 * m)),
        (lambda row, n, m: pk.range(n, 0, -1), lambda row, n, m: pk.range(1, n + 1)),
        (lambda row, n, m: pk.range(row), lambda row, n, m: pk.range(row)),
        (lambda row, n, m: pk.range(n, m, 3), lambda row, n, m: pk.range(0, m - n, 3)),
        (lambda row, n, m: pk.range(row + 2), lambda row, n, m: pk.range(1, row + 3)),
        (lambda row, n, m: pk.range(3), lambda row, n, m: pk.range(5, -1, -2)),
    ],
)
def test_loops_of_as_many_passes_balance(fills, drains):
    proofs = of(fills, drains)
    assert not proofs.findings
    assert len(proofs.proved) == 1
    assert "`ring`: filled by producer, drained by storer" in proofs.proved[0]


@pytest.mark.parametrize(
    ("fills", "drains", "message"),
    [
        (
            lambda row, n, m: pk.range(3),
            lambda row, n, m: pk.range(4),
            "`ring` is filled 3 * tasks times by producer, and drained 4 * tasks times by storer",
        ),
        (
            lambda row, n, m: pk.range(row + 2),
            lambda row, n, m: pk.range(row + 1),
            "`ring` is filled task[0] * tasks + 2 * tasks times by producer, "
            "and drained task[0] * tasks + tasks times by storer",
        ),
        (
            lambda row, n, m: range(2),
            lambda row, n, m: range(1),
            "`ring` is filled 2 * tasks times by producer, and drained tasks times by storer",
        ),
    ],
)
def test_counts_that_differ_for_all_arguments_are_an_error_with_both_lines(fills, drains, message):
    (finding,) = of(fills, drains).findings
    assert (finding.kind, finding.level) == (Kind.BARRIER_COUNT, Level.ERROR)
    assert finding.scope is Scope.ALWAYS
    assert finding.message == message
    assert [s.who for s in finding.steps] == ["producer", "storer"]
    assert ["fill()" in s.loc.text for s in finding.steps] == [True, False]
    assert ["drain()" in s.loc.text for s in finding.steps] == [False, True]


def test_what_is_missing_is_said_from_the_side_that_comes_less_often():
    fewer, more = (lambda row, n, m: pk.range(3)), (lambda row, n, m: pk.range(4))
    (finding,) = of(fewer, more).findings
    assert finding.missing == "a fill by producer for each drain by storer"
    (finding,) = of(more, fewer).findings
    assert finding.missing == "a drain by storer for each fill by producer"


def test_a_stage_more_for_each_pass_of_a_loop_is_an_error_that_says_where_it_is_none():
    @pk.kernel
    def kernel(x, y, n):
        ring = pk.pipeline(2, pk.st(f32, 64, 64))
        (row,) = pk.grid(x.rows // 64)
        with pk.producer():
            for i in pk.range(n):
                with ring.fill() as t:
                    pk.load_async(t, x[row, i])
        with pk.storer():
            for i in pk.range(n):
                for _ in range(2):
                    with ring.drain() as t:
                        pk.store_async(y[row, i], t)

    (finding,) = prove(recorded(kernel, X, X, 3)).findings
    assert finding.level is Level.ERROR
    assert "equal only if max(n, 0) is 0" in finding.help


@pytest.mark.parametrize(
    ("fills", "drains"),
    [
        (lambda row, n, m: pk.range(n), lambda row, n, m: pk.range(m)),
        (lambda row, n, m: pk.range(n), lambda row, n, m: pk.range(n + 1)),
        (lambda row, n, m: pk.range(n), lambda row, n, m: range(4)),
        (lambda row, n, m: pk.range(row), lambda row, n, m: pk.range(n)),
    ],
)
def test_what_depends_on_arguments_is_left_to_the_emulator(fills, drains):
    proofs = of(fills, drains)
    assert proofs.findings == proofs.proved == ()


# -- branches --------------------------------------------------------------------------------------


@pk.kernel
def branching(x, y, n, *, fill, drain):
    """A stage is filled where one function of Python says so, and drained where another does."""
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    row, col = pk.grid(*x.tiles(64, 64))
    with pk.producer():
        if fill(row, n):
            with ring.fill() as t:
                pk.load_async(t, x[row, col])
    with pk.storer():
        if drain(row, n):
            with ring.drain() as t:
                pk.store_async(y[row, col], t)


def of_branches(fill, drain):
    return prove(recorded(branching, X, X, 3, fill=fill, drain=drain))


@pytest.mark.parametrize(
    ("fill", "drain"),
    [
        (lambda row, n: n > 2, lambda row, n: n >= 3),
        (lambda row, n: n == row, lambda row, n: row - n == 0),
        (lambda row, n: n != 0, lambda row, n: pk.logical_not(n == 0)),
        (lambda row, n: (n > 2) & (row > 1), lambda row, n: (n > 2) & (row > 1)),
        (lambda row, n: row >= 0, lambda row, n: True),
    ],
)
def test_conditions_that_are_the_same_balance(fill, drain):
    proofs = of_branches(fill, drain)
    assert not proofs.findings
    assert len(proofs.proved) == 1


@pytest.mark.parametrize(
    ("fill", "drain"),
    [(lambda row, n: n > 2, lambda row, n: True), (lambda row, n: True, lambda row, n: row == 0)],
)
def test_a_condition_that_the_other_side_lacks_is_an_error(fill, drain):
    (finding,) = of_branches(fill, drain).findings
    assert (finding.kind, finding.level) == (Kind.BARRIER_COUNT, Level.ERROR)
    assert len(finding.steps) == 2
    assert "the counts are equal only if" in finding.help


def test_conditions_that_may_or_may_not_be_the_same_are_left_to_the_emulator():
    proofs = of_branches(lambda row, n: n > 2, lambda row, n: row > 1)
    assert proofs.findings == proofs.proved == ()


def test_a_side_that_is_only_taken_where_the_other_is_not_is_an_error():
    @pk.kernel
    def kernel(x, y, n):
        ring = pk.pipeline(1, pk.st(f32, 64, 64))
        (row,) = pk.grid(x.rows // 64)
        with pk.producer():
            if n > 0:
                with ring.fill() as t:
                    pk.load_async(t, x[row, 0])
            else:
                for _ in range(2):
                    with ring.fill() as t:
                        pk.load_async(t, x[row, 1])
        with pk.storer():
            for _ in range(3):
                with ring.drain() as t:
                    pk.store_async(y[row, 0], t)

    (finding,) = prove(recorded(kernel, X, X, 1)).findings
    assert finding.level is Level.ERROR


# -- groups ----------------------------------------------------------------------------------------


def of_groups(take):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(2, pk.st(f32, 128, 64))
        (row,) = pk.grid(pk.cdiv(x.rows, 128))
        with pk.producer():
            for _ in range(2):
                with ring.fill() as t:
                    pk.load_async(t, x[row, 0])
        with pk.warpgroups(2) as w:
            for i in pk.range(2):
                if take(w, i):
                    with ring.drain() as t:
                        pk.store(y[row * 2 + w, 0], pk.load(t.tiles(64, 64)[w]))

    return prove(recorded(kernel, X, X))


def test_a_stage_that_one_group_leaves_out_is_an_error():
    (finding,) = of_groups(lambda w, i: w == 0).findings
    assert finding.level is Level.ERROR
    assert finding.message == (
        "`ring` is filled 2 times by producer, and drained never by warpgroups 1"
    )


def test_groups_that_share_the_stages_among_them_are_told():
    (finding,) = of_groups(lambda w, i: w == i % 2).findings
    assert "(floor_mod(index of range(2), 2) == 0) times by warpgroups 0" in finding.message


def test_a_condition_that_is_true_for_every_group_is_none():
    assert not of_groups(lambda w, i: w < 2).findings


def test_a_number_that_each_group_loads_for_itself_is_another_in_each():
    @pk.kernel
    def kernel(x, y, counts):
        ring = pk.pipeline(2, pk.st(f32, 128, 64))
        (row,) = pk.grid(pk.cdiv(x.rows, 128))
        with pk.producer():
            for _ in pk.range(pk.load(counts[0])):
                with ring.fill() as t:
                    pk.load_async(t, x[row, 0])
        with pk.warpgroups(2) as w:
            for _ in pk.range(pk.load(counts[w])):
                with ring.drain() as t:
                    pk.store(y[row * 2 + w, 0], pk.load(t.tiles(64, 64)[w]))

    proofs = prove(recorded(kernel, X, X, np.ones(2, np.int32)))
    assert proofs.findings == proofs.proved == ()


@pytest.mark.parametrize(("drains", "told"), [(3, 0), (2, 1)])
def test_a_group_that_fills_and_drains_is_a_filler_and_a_drainer(drains, told):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(3, pk.st(f32, 64, 64))
        pk.grid(1)
        for i in range(3):
            with ring.fill() as t:
                pk.load_async(t, x[i, 0])
        for i in range(drains):
            with ring.drain() as t:
                pk.store(y[i, 0], pk.load(t))

    assert len(prove(recorded(kernel, X, X)).findings) == told


# -- turns -----------------------------------------------------------------------------------------


def of_turns(take):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        with pk.warps(3) as w:
            for i in pk.range(n):
                if take(w, i):
                    with pk.in_turn():
                        pk.store(y[i], w)

    return prove(recorded(kernel, np.zeros(8, np.int32), 3))


def test_groups_that_all_take_every_turn_balance():
    proofs = of_turns(lambda w, i: True)
    assert not proofs.findings
    assert proofs.proved == ("turns of warps: each of 3 warps takes a turn max(n, 0) times",)
    assert of_turns(lambda w, i: i % 2 == 0).proved


@pytest.mark.parametrize("take", [lambda w, i: w != 1, lambda w, i: (w > 0) | (i == 0)])
def test_a_group_that_leaves_turns_out_is_told(take):
    findings = of_turns(take).findings
    assert findings
    assert {f.kind for f in findings} == {Kind.BARRIER_COUNT}
    assert all("takes its turn" in f.message for f in findings)


def test_turns_that_depend_on_the_group_and_the_pass_are_left_to_the_emulator():
    assert not of_turns(lambda w, i: w == i % 3).findings


# -- what is right ---------------------------------------------------------------------------------


@pytest.mark.parametrize("names", sampled_together(OPERATIONS, lambda name: OPERATIONS[name].ops))
def test_nothing_is_found_in_the_cases_of_operations(names):
    for case in map(OPERATIONS.__getitem__, names):
        inputs, outputs = case.arrays()
        kernel = recorded(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
        assert not prove(kernel).findings, case.name
