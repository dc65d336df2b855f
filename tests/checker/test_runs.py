"""A kernel in many schedules: fresh copies for each, findings that are one, and for which schedules they hold."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.checker.runs import is_determined, run_schedules
from pykittens.cli.arguments import load
from pykittens.emulate.finding import Finding, Kind, Level, Scope
from pykittens.emulate.watch import Watcher
from pykittens.runtime.arguments import Arguments, scalars
from pykittens.runtime.arguments import check as check_arguments
from tests import kernels_flight, kernels_pipeline
from tests.cases import CASES
from tests.conftest import EXAMPLES
from tests.kernels_cluster import cluster_matmul
from tests.races import tile


def bound(kernel: Any, *args: Any, **constants: Any) -> Arguments:
    return check_arguments(kernel.parameters, args, constants)


def run(kernel: Any, *args: Any, seeds: Any = range(8), **constants: Any) -> list[Finding]:
    return run_schedules(kernel, bound(kernel, *args, **constants), seeds)


@pk.kernel(inplace=True)
def added_twice(x):
    (block,) = pk.grid(2)
    pk.store(x, pk.load(x, rows=64, cols=64) + 1)


@pk.kernel
def summed(x, y):
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(y, pk.load(x[block], rows=64, cols=64), op="add")


@pk.kernel
def first_come(x, y, ticket):
    (block,) = pk.grid(2)
    pk.signal(ticket[0], 1, op="add")
    pk.wait(ticket[0], 2)
    pk.store(y, pk.load(x[block], rows=64, cols=64), op="add")


@pk.kernel
def raced(x, y, *, broken: bool):
    full, made = pk.semaphore(1), pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(made, pk.load(x, rows=64, cols=64))
        full.arrive()
    with pk.warpgroups(1):
        if not broken:
            full.wait(0)
        pk.store(y, pk.load(made))


def test_nothing_of_the_caller_s_is_changed():
    x = tile()
    run(added_twice, x)
    assert (x == 1).all()


def test_a_finding_of_several_schedules_is_one_and_counts_them():
    found = [f for f in run(raced, tile(), tile(), broken=True) if f.kind is Kind.RACE]
    assert sum(f.schedules for f in found) >= 8
    assert all(f.seed in range(8) for f in found)
    assert run(raced, tile(), tile(), broken=False) == []


def test_one_schedule_shows_the_order_of_all_where_nobody_waits_for_flags():
    (found,) = run(raced, tile(), tile(), broken=True, seeds=[1])
    assert found.kind is Kind.RACE
    assert found.scope is Scope.EVERY_SCHEDULE
    assert (found.seed, found.schedules) == (1, 1)


def test_with_flags_what_is_found_holds_for_the_schedules_tried():
    args = tile(128, 64), np.zeros((64, 64), np.float32), np.zeros(1, np.int32)
    found = run(first_come, *args)
    assert {f.scope for f in found} == {Scope.TRIED}
    assert not is_determined(first_come.record(bound(first_come, *args)))
    assert is_determined(raced.record(bound(raced, tile(), tile(), broken=True)))


def test_sums_whose_last_places_differ_are_told_once_at_their_store():
    x = np.random.default_rng(0).standard_normal((512, 64), np.float32)
    (found,) = run(summed, x, np.zeros((64, 64), np.float32))
    assert found.kind is Kind.SCHEDULE_DEPENDENT
    assert found.level is Level.WARNING
    assert found.missing == "an order between the two stores"


def test_sums_of_integers_do_not_differ():
    assert run(summed, tile(512, 64, dtype=int32), np.zeros((64, 64), np.int32)) == []


@pk.kernel
def numbered(y, counter):
    (block,) = pk.grid(2)
    pk.signal(counter[0], 1, op="add")
    if block == 1:
        pk.wait(counter[0], 1)
        n = pk.load(counter[0])
        pk.store(y, pk.zeros(int32, 64, 64) + n)


def test_results_that_differ_between_schedules_are_told_with_both_seeds():
    args = np.zeros((64, 64), np.int32), np.zeros(1, np.int32)
    found = [f for f in run(numbered, *args, seeds=range(20)) if f.kind is Kind.SCHEDULE_DEPENDENT]
    cause, effect = found
    assert "`counter` is read while blocks still signal it" in cause.message
    assert "differs between the schedules of seeds 0 and" in effect.message
    assert "in 4096 of 4096 elements" in effect.message
    assert [s.loc.text.strip() for s in effect.steps if s.loc] == [
        "pk.store(y, pk.zeros(int32, 64, 64) + n)"
    ]


class Counting(Watcher):
    """Counts the runs that it looks on at."""

    def __init__(self) -> None:
        self.launches = 0

    def together(self, blocks: Any, groups: Any) -> None:
        self.launches += 1


def test_who_looks_on_sees_the_first_run_only():
    watch = Counting()
    run_schedules(raced, bound(raced, tile(), tile(), broken=False), range(5), watch=watch)
    assert watch.launches == 1


def test_numbers_are_given_as_kernels_see_them():
    @pk.kernel
    def scaled(y, a, n, b):
        pk.grid(1)
        pk.store(y, pk.zeros(f32, 64, 64) + a)

    given = scalars(bound(scaled, tile(), 0.1, 3, True))
    assert given == {"a": np.float32(0.1), "n": 3, "b": True}
    assert type(given["a"]) is np.float32


def test_a_deadlock_is_a_finding_and_what_was_found_before_it_stays():
    @pk.kernel
    def stuck(x, y):
        full, made = pk.semaphore(2), pk.shared(pk.st(f32, 64, 64))
        pk.grid(1)
        with pk.warpgroups(1):
            pk.store(made, pk.load(x, rows=64, cols=64))
        with pk.warpgroups(1):
            pk.store(y, pk.load(made))
            full.arrive()
            full.wait(0)

    assert {Kind.RACE, Kind.DEADLOCK} <= {f.kind for f in run(stuck, tile(), tile())}


# -- kernels that are right ----------------------------------------------------------------------------


def ones(*shape: int, dtype: Any = bf16) -> Any:
    return np.ones(shape, dtype.numpy)


SOUND: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "interleaved": (
        kernels_pipeline.interleaved,
        tuple(ones(270, 100, dtype=f32) for _ in "abc"),
        {},
    ),
    "by_parts": (kernels_pipeline.by_parts, (ones(270, 100), ones(270, 100)), {}),
    "two_fillers": (
        kernels_pipeline.two_fillers,
        (ones(270, 128, dtype=f32), ones(270, 256, dtype=f32)),
        {},
    ),
    "mixed_fill": (kernels_pipeline.mixed_fill, (ones(270, 64), ones(270, 128)), {}),
    "taken_over": (kernels_pipeline.taken_over, (ones(320, 256), ones(320, 128)), {}),
    "cluster_matmul": (cluster_matmul, (ones(512, 192), ones(512, 192), ones(512, 512)), {}),
    **{
        f"flight-{way}": (
            kernels_flight.carried_products,
            (ones(64, 256), ones(64, 256), ones(64, 64, dtype=f32)),
            {"way": way},
        )
        for way in kernels_flight.WAYS
    },
    "matmul": (
        load(EXAMPLES / "06_matmul.py").matmul,
        (ones(500, 200), ones(1000, 200), ones(500, 1000)),
        {},
    ),
    "attention": (
        load(EXAMPLES / "07_attention.py").attention,
        tuple(ones(1, 2, 300, 64) for _ in "qkvo"),
        {"causal": True},
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_kernel_that_is_right_has_no_faults(name):
    kernel, args, constants = SOUND[name]
    assert [
        f for f in run(kernel, *args, seeds=range(4), **constants) if f.level is Level.ERROR
    ] == []


def is_whole(finding: Finding) -> bool:
    """Cases write a part of their outputs on purpose."""
    return "written" not in finding.message and "no element" not in finding.message


# One of each kernel, with the first of its dtypes and sizes.
SAMPLE = {inspect.unwrap(c.kernel.function).__code__: name for name, c in reversed(CASES.items())}


@pytest.mark.parametrize("name", SAMPLE.values())
def test_a_case_has_no_faults(name):
    case = CASES[name]
    inputs, outputs = case.arrays()
    args = (*inputs, *outputs, *case.scalars)
    found = run(case.kernel, *args, seeds=range(3), **case.constants)
    assert [f for f in found if f.level is Level.ERROR and is_whole(f)] == []


@pk.kernel
def four_tasks_apart(x, y, *, rows: int):
    """Task i writes tile i % 4: those that conflict are a multiple of four apart."""
    tasks = pk.persistent((rows,))
    with pk.warpgroups(1):
        for (i,) in tasks:
            pk.store(y[i % 4], pk.load(x[i], rows=64, cols=16))


def test_tasks_that_conflict_are_found_however_far_they_are_apart():
    x, y = np.ones((1024, 16), np.float32), np.full((256, 16), np.nan, np.float32)
    report = pk.check(four_tasks_apart, x, y, rows=16, costs=False)
    assert [f.kind for f in report.errors] == [Kind.BLOCK_CONFLICT]
    assert pk.check(four_tasks_apart, x, y, rows=4, costs=False).ok
