"""What groups owe barriers and engines: each debt, with and without it, and that a report says who owes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Finding, Kind
from tests.races import faults, findings, tile


def the_one(kind: Kind, kernel: Any, *args: Any, **constants: Any) -> Finding:
    """The only finding of a kind."""
    (found,) = (f for f in findings(kernel, *args, **constants) if f.kind is kind)
    return found


def lines(finding: Finding) -> list[str]:
    return [s.loc.text.strip() for s in finding.steps if s.loc is not None]


# -- arrivals ------------------------------------------------------------------------------------------


@pk.kernel
def counted(y, *, expected: int, arrivals: int):
    full = pk.semaphore(expected)
    pk.grid(1)
    with pk.warpgroups(1):
        for _ in range(arrivals):
            full.arrive()
        pk.store(y, pk.zeros(f32, 64, 64))


def test_a_phase_that_begins_and_never_ends_is_told():
    assert faults(counted, tile(), expected=2, arrivals=2) == set()
    assert faults(counted, tile(), expected=2, arrivals=0) == set()
    left = the_one(Kind.BARRIER_COUNT, counted, tile(), expected=3, arrivals=4)
    assert left.message == "`full` has 1 of 3 arrivals when the block ends"
    assert left.missing == "2 more arrivals, or a semaphore that expects fewer"
    assert lines(left) == ["full = pk.semaphore(expected)"]


@pk.kernel
def arrived_again(y, *, waits: bool):
    full = pk.semaphore(2)
    pk.grid(1)
    with pk.warpgroups(2) as w:
        full.arrive()
        if waits:
            full.wait(0)
        full.arrive()
        pk.store(y[w], pk.zeros(f32, 64, 64))


def test_an_arrival_for_the_next_phase_waits_for_this_one():
    assert faults(arrived_again, tile(128, 64), waits=True) == set()
    early = findings(arrived_again, tile(128, 64), waits=False)
    assert {f.kind for f in early} == {Kind.BARRIER_COUNT}
    assert all("may come while the phase before is still open" in f.message for f in early)


@pk.kernel
def missed(y, *, answers: bool):
    full, seen = pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    with pk.warps(1):
        full.arrive()
        if answers:
            seen.wait(0)
        full.arrive()
    with pk.warpgroups(1):
        full.wait(0)
        if answers:
            seen.arrive()
        full.wait(1)
        pk.store(y, pk.zeros(f32, 64, 64))


def test_a_phase_that_ends_before_all_have_seen_the_one_before_is_told():
    assert faults(missed, tile(), answers=True) == set()
    kinds = faults(missed, tile(), answers=False, seeds=range(20))
    assert kinds == {Kind.BARRIER_COUNT, Kind.DEADLOCK}


def test_a_phase_that_ends_too_early_is_told_with_who_waits_and_who_ends_it():
    told = the_one(Kind.BARRIER_COUNT, missed, tile(), answers=False, seeds=range(20))
    assert lines(told) == ["full.wait(0)", "full.arrive()"]
    assert [s.who for s in told.steps] == ["warpgroups", "warps"]


@pk.kernel
def two_phases_early(y, *, waits: bool):
    full = pk.semaphore(1)
    pk.grid(1)
    with pk.warps(1):
        for _ in range(3):
            full.arrive()
    with pk.warpgroups(1):
        if waits:
            full.wait(0)
            full.wait(1)
        full.wait(2)
        pk.store(y, pk.zeros(f32, 64, 64))


@pytest.mark.parametrize("seed", range(6))
def test_a_wait_that_does_not_know_the_phase_before_is_told_in_every_schedule(seed):
    assert Kind.BARRIER_COUNT in faults(two_phases_early, tile(), waits=False, seeds=[seed])


@pk.kernel
def every_second_phase(y):
    full, seen = pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    with pk.warps(1):
        full.arrive()
        full.arrive()
        seen.arrive()
    with pk.warpgroups(1):
        seen.wait(0)
        full.wait(1)
        pk.store(y, pk.zeros(f32, 64, 64))


def test_a_group_may_learn_of_the_phase_before_in_another_way():
    assert faults(every_second_phase, tile()) == set()


# -- bytes ---------------------------------------------------------------------------------------------


@pk.kernel
def expected_bytes(x, y, *, bytes: int):
    made, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        full.expect(bytes)
        pk.load_async(made, x, signal=full)
    with pk.warpgroups(1):
        full.wait(0)
        pk.store(y, pk.load(made))


def test_a_phase_expects_the_bytes_of_its_copies():
    args = tile(dtype=bf16), tile(dtype=bf16)
    assert faults(expected_bytes, *args, bytes=64 * 64 * 2) == set()
    for bytes, lacking in ((8190, "expected"), (8194, "copied")):
        wrong = the_one(Kind.BYTE_COUNT, expected_bytes, *args, bytes=bytes)
        assert f"expects {bytes} bytes, and copies bring 8192" in wrong.message
        assert wrong.missing == f"the 2 bytes that are {lacking} too few"
        assert set(lines(wrong)) == {
            "full.expect(bytes)",
            "pk.load_async(made, x, signal=full)",
        }


# -- what is started -----------------------------------------------------------------------------------


@pk.kernel
def copied_for_nobody(x, y, *, waits: bool):
    made, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.warpgroups(1):
        full.expect(made)
        pk.load_async(made, x, signal=full)
        if waits:
            full.wait(0)
        pk.store(y, pk.zeros(bf16, 64, 64))


def test_a_copy_that_lands_after_the_block_has_ended_is_told():
    args = tile(dtype=bf16), tile(dtype=bf16)
    assert faults(copied_for_nobody, *args, waits=True) == set()
    assert Kind.UNLANDED_COPY in faults(copied_for_nobody, *args, waits=False, seeds=[0])


@pk.kernel
def multiplied(x, y, *, waits: int | None, reads: bool):
    pk.grid(1)
    made, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    with pk.warpgroups(1):
        full.expect(made)
        pk.load_async(made, x, signal=full)
        full.wait(0)
        first = pk.mma_ABt(made, made, pk.zeros(f32, 64, 64), managed=False)
        pk.mma_ABt(made, made, pk.zeros(f32, 64, 64), managed=False)
        if waits is not None:
            pk.mma_wait(waits)
        pk.store(y, first if reads else pk.zeros(f32, 64, 64))
        if waits == 1:
            pk.mma_wait()


@pytest.mark.parametrize(
    ("waits", "reads", "unwaited"),
    [(0, True, 0), (1, True, 0), (None, True, 3), (None, False, 2)],
)
def test_a_product_is_waited_for_before_it_is_read_and_before_the_role_ends(waits, reads, unwaited):
    found = findings(multiplied, tile(dtype=bf16), tile(), waits=waits, reads=reads)
    assert sum(f.kind is Kind.UNWAITED_PRODUCT for f in found) == unwaited


@pk.kernel
def filled_more_often(x, y, *, drains: int):
    ring = pk.pipeline(4, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for _ in range(3):
            with ring.fill() as t:
                pk.load_async(t, x)
    with pk.warpgroups(1):
        for _ in range(drains):
            with ring.drain() as t:
                u = pk.load(t)
        pk.store(y, u)


def test_a_pipeline_is_drained_as_often_as_it_is_filled():
    assert faults(filled_more_often, tile(), tile(), drains=3) == set()
    found = findings(filled_more_often, tile(), tile(), drains=2)
    uneven = [f.message for f in found if f.kind is Kind.BARRIER_COUNT]
    assert uneven == [
        "the pipeline `ring` was filled 3 times and drained 2 times when its block ended"
    ]


def test_a_deadlock_says_which_bytes_do_not_come():
    args = np.ones((64, 64), bf16.numpy), np.ones((64, 64), bf16.numpy)
    kinds = faults(expected_bytes, *args, bytes=8194)
    assert kinds == {Kind.DEADLOCK, Kind.BYTE_COUNT}
