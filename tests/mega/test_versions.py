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
from pykittens.pictures.schedule import groups_of
from tests.mega import test_tags
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


@pytest.mark.parametrize("step", [Cell("add", 4, 4, 1), Cell("add", 4, 1, 4), Cell("total", 1, 0)])
def test_an_engine_or_another_role_does_not_read_what_an_instruction_writes(step):
    with pytest.raises(
        LanguageError, match=rf"{step.kind}.* reads x\[.*\], which it writes itself"
    ):
        added(cells(2), [step]).scheduled(x=given_cells())


@pytest.mark.parametrize(("shift", "is_right"), [(0, True), (1, False)])
def test_lanes_of_one_group_update_elements_in_place(shift, is_right):
    program = Program(blocks=2)

    @program.instruction
    def update(x, *, row):
        """x[row, part] += x[row, part + shift], each part by a group."""
        with pk.warps(2) as w:
            more = pk.load(x[row, (w + shift) % 2], cols=LENGTH // 2)
            pk.store(x[row, w], pk.load(x[row, w], cols=LENGTH // 2) + more)

    for _ in range(3):
        program.add(update, row=1)
    x = np.ones((2, LENGTH), np.float32)
    if is_right:
        program.run(x=x)
        assert (x == [[1], [8]]).all()
    else:
        with pytest.raises(LanguageError, match="which it writes itself"):
            program.run(x=x)


def test_a_copy_whose_end_is_not_known_is_refused():
    program = Program(blocks=1)

    @program.instruction
    def copy(x, y, *, at):
        tile = pk.shared(pk.sv(pk.f32, LENGTH))
        full = pk.semaphore(1)
        with pk.producer():
            full.expect(tile)
            pk.load_async(tile, x[at, 0], signal=full)
        with pk.warps(1):
            full.wait(0)
            pk.store(y[at, 0], pk.load(tile))

    @program.instruction
    def clear(x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.zeros(pk.f32, LENGTH))

    program.add(copy, at=1)
    program.add(clear, at=0)
    tensors = {name: np.ones((2, LENGTH), np.float32) for name in "xy"}
    program.run(**tensors)
    assert tensors["x"].mean() == 0.5
    program.add(clear, at=1)
    with pytest.raises(
        LanguageError,
        match=r"clear\(at=1\) writes x\[1, 0:64\], which copy\(at=1\) copies before: when the copy has read it",
    ):
        program.run(**tensors)


def test_tensors_with_tags_are_written_once():
    program = test_tags.cells(2)
    kinds = {kind.name: kind for kind in program.kinds}
    tensors, _ = test_tags.filled(test_tags.cells(2), 0, 2)
    for _ in range(2):
        program.add(kinds["give"], out=0)
    with pytest.raises(LanguageError, match=r"both write x\[0, 0:64\], whose elements have tags"):
        program.scheduled(**tensors)


def test_a_role_that_only_writes_waits_before_its_first_write():
    """What `pass_on` fills before it waits says nothing of its waits to the role that drains."""
    program = Program(blocks=3)

    @program.instruction
    def read(x, y):
        with pk.warps(1):
            pk.store(y[0, 0], pk.load(x[0, 0], cols=LENGTH) + pk.load(x[1, 0], cols=LENGTH))

    @program.instruction
    def pass_on(x, z):
        ring = pk.pipeline(1, pk.sv(pk.f32, LENGTH))
        with pk.warps(1):
            with ring.fill() as s:
                pk.store(s, pk.full(pk.f32, 2.0, LENGTH))
            pk.store(x[0, 0], pk.zeros(pk.f32, LENGTH))
        with pk.storer(), ring.drain() as s:
            pk.store_async(z[0, 0], s)

    @program.instruction
    def follow(x, z):
        with pk.warps(1):
            pk.store(x[1, 0], pk.load(z[0, 0], cols=LENGTH))

    for block, kind in enumerate((read, pass_on, follow)):
        program.add(kind, block=block)
    tensors = {name: np.ones((2, LENGTH), np.float32) for name in "xyz"}
    schedule = program.scheduled(**tensors)
    assert is_right(schedule)
    assert schedule.waits.keys() == {(1, 0), (2, 0)}
    of_the_read = schedule.signals[0, 0]
    for is_kept in (True, False):
        if not is_kept:
            schedule.waits[2, 0] = [w for w in schedule.waits[2, 0] if w[0] != of_the_read]
        assert len(schedule.waits[2, 0]) == 1 + is_kept
        assert judged(schedule) == is_right(schedule) == is_kept
        arguments = program.arguments(schedule, **tensors)
        assert pk.check(program.kernel(), *arguments, schedules=12).ok == is_kept


def test_a_program_is_run_for_shapes_with_and_without_rewrites():
    program = Program(blocks=2)

    @program.instruction
    def put(x, *, at, value):
        """x[at] = value, past the end nowhere."""
        with pk.warps(1):
            pk.store(x[at, 0], pk.full(pk.f32, 0.0, LENGTH) + value.to(pk.f32))

    for value in range(4):
        program.add(put, at=value // 2 * 2, value=value)
    for rows, waits in ((4, 2), (2, 1), (4, 2)):
        x = np.full((rows, LENGTH), np.nan, np.float32)
        schedule = program.scheduled(x=x)
        assert schedule.rewrites
        assert sum(map(len, schedule.waits.values())) == waits
        program.run(x=x)
        assert (x[::2, 0] == [1, 3][: rows // 2]).all()


def test_a_tensor_that_no_instruction_writes_is_read_at_once():
    """A kind that no instruction is of writes it."""
    program = Program(blocks=2)

    @program.instruction
    def write(y, *, at):
        with pk.warps(1):
            pk.store(y[at, 0], pk.zeros(pk.f32, LENGTH))

    @program.instruction
    def copy(y, x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.load(y[at, 0], cols=LENGTH))

    for _ in range(2):
        program.add(copy, at=0)
    x, y = np.zeros((1, LENGTH), np.float32), np.ones((1, LENGTH), np.float32)
    program.run(x=x, y=y)
    assert (x == 1).all()
    assert write.name not in {step.kind.name for step in program.instructions}


def test_a_picture_shows_the_last_writers_alone():
    steps = [Cell("double", 4, 0), Cell("double", 4, 1), Cell("double", 3, 4), Cell("double", 4, 3)]
    schedule = added(cells(2), steps).scheduled(x=given_cells())
    assert [sorted(group.sources) for group in groups_of(schedule)] == [[], [0], [1]]
    assert groups_of(schedule)[0].instructions == [0, 1]
