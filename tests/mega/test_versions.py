"""Elements that are written again: programs compute what their instructions do in order, and their proofs hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.mega import Program
from pykittens.mega.proof import ScheduleError, prove
from pykittens.mega.schedule import derive
from tests.mega.programs import LENGTH, Cell, added, cells, random_rewrites, sequential
from tests.mega.reachable import is_right
from tests.mega.test_programs import DYNAMIC, broken, judged

CELLS = 5


def given_cells():
    return np.random.default_rng(0).integers(-4, 5, (CELLS, LENGTH)).astype(np.float32)


def made(seed, count, blocks, dynamic):
    """A random program and its instructions."""
    steps = random_rewrites(np.random.default_rng(seed), CELLS, count, blocks)
    return added(cells(blocks, dynamic), steps), steps


@DYNAMIC
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 16), blocks=st.integers(1, 3))
def test_random_programs_compute_what_their_instructions_do_in_order(dynamic, seed, count, blocks):
    program, steps = made(seed, count, blocks, dynamic)
    x = given_cells()
    wanted = sequential(steps, x)
    schedule = program.scheduled(x=x)
    assert is_right(schedule)
    kernel = program.kernel()
    for order in range(3):
        y = x.copy()
        arguments = program.arguments(schedule, x=y)
        kernel.emulate(pk.runtime.arguments.check(kernel.parameters, arguments, {}), order)
        np.testing.assert_array_equal(y, wanted)
    program.run_coarse(x=x)
    np.testing.assert_array_equal(x, wanted)


@DYNAMIC
def test_2000_broken_schedules_are_refused_unless_they_are_harmless(dynamic):
    rng = np.random.default_rng(0)
    wrong = dict.fromkeys(("lower", "drop", "swap", "mute", "other", "move"), 0)
    for number in range(2000):
        if number % 40 == 0:
            steps = random_rewrites(rng, CELLS, 14, 3)
            schedule = derive(added(cells(3, dynamic), steps), {"x": given_cells()})
            assert judged(schedule)
            assert is_right(schedule)
        found, fault = broken(schedule, rng)
        assert judged(found) == is_right(found), fault
        wrong[fault] += not judged(found)
    assert min(wrong.values()) >= 20, wrong


@DYNAMIC
def test_programs_have_no_race_in_many_schedules(dynamic):
    for seed in range(3):
        program, _ = made(seed, 14, 3, dynamic)
        x = given_cells()
        schedule = program.scheduled(x=x)
        report = pk.check(program.kernel(), *program.arguments(schedule, x=x), schedules=8)
        assert report.ok, str(report)


@DYNAMIC
@pytest.mark.parametrize("reader", ["add", "double", "total"])
@pytest.mark.parametrize("writer", ["add", "double"])
def test_a_dropped_wait_of_a_write_is_refused_and_a_race_in_the_emulator(reader, writer, dynamic):
    """By lanes and by the engine; the waits for a read, and for a write."""
    for first in (Cell(reader, 4, 0, 1, block=0), Cell(reader, 0, 1, 2, block=0)):
        x = given_cells()
        program = added(cells(2, dynamic), [first, Cell(writer, 0, 3, 3, block=1)])
        schedule = program.scheduled(x=x)
        arguments = program.arguments(schedule, x=x)
        assert pk.check(program.kernel(), *arguments, schedules=4).ok
        ((event, _),) = schedule.waits.items()
        assert event[0] == 1
        schedule.waits.clear()
        verb = "reads" if first.out == 4 else "writes"
        with pytest.raises(
            ScheduleError,
            match=rf"of {writer}\(.*out=0\) in .* writes x\[0, .*\], and .* of {reader}.* {verb} it: nothing",
        ):
            prove(schedule)
        report = pk.check(program.kernel(), *program.arguments(schedule, x=x), schedules=12)
        assert not report.ok


def test_a_copy_is_over_when_its_stage_is_drained():
    """The warps of `add` drain what its producer copies, so they signal to those that write it afterwards."""
    steps = [Cell("add", 4, 0, 1, block=0), Cell("double", 0, 2, block=1)]
    schedule = added(cells(2), steps).scheduled(x=given_cells())
    roles = {schedule.roles[role] for step, role in schedule.signals if step == 0}
    assert roles == {"warps"}
