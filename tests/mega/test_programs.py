"""Programs compute what their instructions do one after another; schedules that are broken are refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import ArgumentError, LanguageError
from pykittens.mega import Program
from pykittens.mega.proof import ScheduleError, prove
from pykittens.mega.schedule import derive
from tests.mega.programs import LENGTH, Cell, added, cells, random_steps, sequential
from tests.mega.reachable import is_right

INPUTS = 4
DYNAMIC = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])


def given_cells(steps):
    x = np.full((INPUTS + len(steps), LENGTH), np.nan, np.float32)
    x[:INPUTS] = np.random.default_rng(0).integers(-4, 5, (INPUTS, LENGTH))
    return x


@DYNAMIC
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 16), blocks=st.integers(1, 3))
def test_random_programs_compute_what_their_instructions_do_in_order(dynamic, seed, count, blocks):
    steps = random_steps(np.random.default_rng(seed), INPUTS, count, blocks)
    program = added(cells(blocks, dynamic), steps)
    x = given_cells(steps)
    wanted = sequential(steps, x)
    schedule = program.scheduled(x=x)
    assert is_right(schedule)
    for order in range(3):
        y = x.copy()
        arguments = program.arguments(schedule, x=y)
        kernel = program.kernel()
        kernel.emulate(pk.runtime.arguments.check(kernel.parameters, arguments, {}), order)
        np.testing.assert_array_equal(y, wanted)


@DYNAMIC
def test_programs_have_no_race_in_many_schedules(dynamic):
    steps = random_steps(np.random.default_rng(7), INPUTS, 20, 3)
    program, x = added(cells(3, dynamic), steps), given_cells(steps)
    schedule = program.scheduled(x=x)
    report = pk.check(program.kernel(), *program.arguments(schedule, x=x), schedules=8)
    assert report.ok, str(report)


@DYNAMIC
def test_arguments_serve_one_launch_after_another(dynamic):
    steps = random_steps(np.random.default_rng(3), INPUTS, 40, 3)
    program, x = added(cells(3, dynamic), steps), given_cells(steps)
    wanted = sequential(steps, x)
    arguments = program.arguments(program.scheduled(x=x), x=x)
    counters = arguments[2]
    for launch in range(5):
        x[INPUTS:] = np.nan
        program.kernel()(*arguments)
        np.testing.assert_array_equal(x, wanted)
        assert counters[launch % 2].any()
        assert not counters[1 - launch % 2].any()


def test_groups_of_several_warps_find_the_counters_of_a_launch():
    program = Program(blocks=2)

    @program.instruction
    def double(x, *, a):
        """x[a + 1] = 2 x[a]."""
        with pk.consumers(2) as w:
            pk.store(x[a + 1, w], 2 * pk.load(x[a, w], cols=64))

    for a in range(4):
        program.add(double, a=a)
    x = np.ones((5, 128), np.float32)
    arguments = program.arguments(program.scheduled(x=x), x=x)
    for _ in range(3):
        x[1:] = np.nan
        program.kernel()(*arguments)
        assert (x == 2 ** np.arange(5)[:, None]).all()
    assert pk.check(program.kernel(), *arguments, schedules=4).ok


def broken(schedule, rng):
    """A copy with one fault, and what it is."""
    made = copy.copy(schedule)
    made.__dict__.pop("queues", None)
    made.waits = {event: [*waits] for event, waits in schedule.waits.items() if waits}
    made.signals = dict(schedule.signals)
    made.program = copy.copy(schedule.program)
    made.program.instructions = [*schedule.program.instructions]
    fault = str(rng.choice(["lower", "drop", "swap", "mute", "other", "move"]))
    event = list(made.waits)[rng.integers(len(made.waits))]
    waits = made.waits[event]
    at = int(rng.integers(len(waits)))
    if fault == "lower":
        waits[at] = waits[at][0], waits[at][1] - int(rng.choice([-1, 1]))
    elif fault == "drop":
        del waits[at]
    elif fault == "other":
        waits[at] = int(rng.choice([c for c, _ in waits] + [0])), waits[at][1]
    elif fault == "mute":
        del made.signals[list(made.signals)[rng.integers(len(made.signals))]]
    elif fault == "move":  # the wait of a role becomes that of another
        made.waits.setdefault((event[0], (event[1] + 1) % len(made.groups)), []).append(
            waits.pop(at)
        )
    else:
        queue = max(made.queues, key=len)
        i = int(rng.integers(len(queue) - 1))
        queue[i], queue[i + 1] = queue[i + 1], queue[i]
    return made, fault


def judged(schedule):
    try:
        prove(schedule)
    except ScheduleError:
        return False
    return True


@DYNAMIC
def test_2000_broken_schedules_are_refused_unless_they_are_harmless(dynamic):
    rng = np.random.default_rng(0)
    wrong = dict.fromkeys(("lower", "drop", "swap", "mute", "other", "move"), 0)
    for number in range(2000):
        if number % 40 == 0:
            steps = random_steps(rng, INPUTS, 14, 3)
            schedule = derive(added(cells(3, dynamic), steps), {"x": given_cells(steps)})
            assert judged(schedule)
        if not any(schedule.waits.values()):
            continue
        found, fault = broken(schedule, rng)
        assert judged(found) == is_right(found), fault
        wrong[fault] += not judged(found)
    assert min(wrong.values()) >= 20, wrong


def test_a_dropped_wait_is_a_race_in_the_emulator():
    steps = [Cell("double", 4, 0, block=0), Cell("add", 5, 4, 4, block=1)]
    program, x = added(cells(2), steps), given_cells([0, 0])
    schedule = program.scheduled(x=x)
    schedule.waits.clear()
    with pytest.raises(ScheduleError, match="nothing orders them"):
        prove(schedule)
    report = pk.check(program.kernel(), *program.arguments(schedule, x=x), schedules=3)
    assert not report.ok


def test_a_deadlock_names_both_instructions():
    steps = [
        Cell("double", 4, 0, block=0),
        Cell("double", 5, 4, block=1),
        Cell("double", 6, 5, block=0),
    ]
    schedule = added(cells(2), steps).scheduled(x=given_cells(steps))
    schedule.queues[0].reverse()
    with pytest.raises(
        ScheduleError, match=r"double\(a=5, out=6\) waits in block 0 for double\(a=4, out=5\)"
    ):
        prove(schedule)


def test_instructions_and_fields_are_checked():
    program = cells(2)
    add = program.kinds[0]
    with pytest.raises(ArgumentError, match="takes a, b, out, not a"):
        program.add(add, a=1)
    with pytest.raises(ArgumentError, match="must be an int32"):
        program.add(add, a=1, b=2.5, out=3)
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        program.add(add, a=1, b=2, out=3, block=2)
    with pytest.raises(ArgumentError, match="another program"):
        Program(1).add(add, a=1, b=2, out=3)
    with pytest.raises(ArgumentError, match="an instruction `add` already"):
        program.instruction(add.function)
    with pytest.raises(ArgumentError, match="`rows` has a default"):

        @program.instruction
        def tuned(x, *, rows=64):
            """A field with a default."""

    program.add(add, a=0, b=1, out=4)
    with pytest.raises(ArgumentError, match="takes x: x missing; y unknown"):
        program.run(y=np.zeros((5, LENGTH), np.float32))


def test_a_place_that_no_field_gives_is_refused():
    program = Program(1)

    @program.instruction
    def follow(x, links, *, at):
        with pk.warps(1):
            pk.store(x[pk.load(links[at]), 0], pk.zeros(pk.f32, LENGTH))

    program.add(follow, at=0)
    with pytest.raises(LanguageError, match="follows from no field"):
        program.run(x=np.zeros((4, LENGTH), np.float32), links=np.zeros(4, np.int32))


def test_a_ring_that_two_roles_fill_is_refused():
    program = Program(1)
    rings = []

    @program.instruction
    def one(x, *, at):
        rings[:] = [pk.pipeline(2, pk.sv(pk.f32, LENGTH))]
        with pk.producer(), rings[0].fill() as s:
            pk.load_async(s, x[at, 0])
        with pk.warps(1), rings[0].drain() as s:
            pk.store(x[at + 1, 0], pk.load(s))

    @program.instruction
    def two(x, *, at):
        with pk.storer(), rings[0].fill() as s:
            pk.load_async(s, x[at, 0])

    program.add(one, at=0)
    with pytest.raises(
        LanguageError, match="two: the role `storer` fills .*, which the role `producer` fills"
    ):
        program.run(x=np.zeros((4, LENGTH), np.float32))


def test_roles_that_differ_are_refused():
    program = Program(1)

    @program.instruction
    def one(x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.zeros(pk.f32, LENGTH))

    @program.instruction
    def two(x, *, at):
        with pk.warps(2) as w:
            pk.store(x[at, w], pk.zeros(pk.f32, LENGTH // 2))

    program.add(one, at=0)
    with pytest.raises(LanguageError, match="two has 2 groups of 1 warps, and one has one group"):
        program.run(x=np.zeros((4, LENGTH), np.float32))


def test_a_schedule_is_that_of_the_tensors_it_is_made_for():
    program = Program(1)

    @program.instruction
    def copy_all(x, y, *, at):
        with pk.warps(1):
            for i in pk.range(x.rows):
                pk.store(y[i, 0], pk.load(x[i, 0], cols=LENGTH))

    @program.instruction
    def last(y, z, *, row):
        with pk.warps(1):
            pk.store(z[0, 0], pk.load(y[row, 0], cols=LENGTH))

    program.add(copy_all, at=0)
    program.add(last, row=5)
    for rows, waits in ((8, 1), (4, 0), (8, 1)):
        x = np.ones((rows, LENGTH), np.float32)
        schedule = program.scheduled(x=x, y=x.copy(), z=x.copy())
        assert sum(map(len, schedule.waits.values())) == waits


def refused(statements):
    """What is said of an instruction with these statements, a function of x and its field."""
    program = Program(1)

    @program.instruction
    def wrong(x, *, at):
        statements(x, at)

    program.add(wrong, at=0)
    with pytest.raises(LanguageError) as error:
        program.run(x=np.zeros((4, LENGTH), np.float32))
    return str(error.value)


def test_instructions_without_roles_and_with_grids_are_refused():
    def in_a_role(x, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.zeros(pk.f32, LENGTH))

    def outside(x, at):
        in_a_role(x, at)
        pk.store(x[at + 1, 0], pk.zeros(pk.f32, LENGTH))

    assert "this function has none" in refused(lambda x, at: pk.load(x[at, 0], cols=LENGTH))
    assert "store: must be in a role" in refused(outside)
    with_a_grid = refused(lambda x, at: pk.grid(4))
    assert "pk.grid: an instruction cannot use it" in with_a_grid


def test_programs_without_blocks_or_instructions_are_refused():
    for blocks in (0, -1, 1.5, None):
        with pytest.raises(ArgumentError, match="`blocks` must be an int of at least 1"):
            Program(blocks)
    with pytest.raises(ArgumentError, match="no instructions"):
        cells(2).run(x=np.zeros((4, LENGTH), np.float32))


def test_a_ring_that_is_not_drained_tells_nothing():
    """The warps of `pass_on` know what the producer has waited for only if they have drained what it filled."""
    program = Program(3)

    @program.instruction
    def write(x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.zeros(pk.f32, LENGTH))

    @program.instruction
    def bring(x):
        ring = pk.pipeline(1, pk.sv(pk.f32, LENGTH))
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, x[1, 0])
        with pk.storer(), ring.drain() as s:
            pk.load(s)

    @program.instruction
    def pass_on(x, y, *, count):
        ring = pk.pipeline(2, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            for _ in pk.range(count):
                with ring.fill() as s:
                    pk.load_async(s, x[1, 0])
        with pk.warps(1):
            for _ in pk.range(count):
                with ring.drain() as s:
                    pk.load(s)
            pk.store(y[0, 0], pk.zeros(pk.f32, LENGTH))

    @program.instruction
    def both(x, y, z):
        with pk.warps(1):
            known = pk.load(y[0, 0], cols=LENGTH)
            pk.store(z[0, 0], known + pk.load(x[1, 0], cols=LENGTH))

    program.add(write, at=1, block=1)
    program.add(bring, block=0)
    program.add(pass_on, count=0, block=0)
    program.add(both, block=2)
    tensors = {n: np.ones((2, LENGTH), np.float32) for n in "xyz"}
    schedule = program.scheduled(**tensors)
    assert len(schedule.waits[3, 0]) == 2
    assert pk.check(program.kernel(), *program.arguments(schedule, **tensors), schedules=8).ok


def test_the_test_of_a_loop_waits_for_what_it_reads():
    program = Program(2)

    @program.instruction
    def write(x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.full(pk.f32, 3.0, LENGTH))

    @program.instruction
    def count(x, y, *, at):
        with pk.warps(1):
            k = 0.0
            while pk.load(x[at, 5]) > k:
                k = k + 1.0
            pk.store(y[at, 0], pk.full(pk.f32, 0.0, LENGTH) + k)

    program.add(write, at=1)
    program.add(count, at=1)
    x, y = (np.zeros((2, LENGTH), np.float32) for _ in range(2))
    schedule = program.scheduled(x=x, y=y)
    assert schedule.waits
    assert pk.check(program.kernel(), *program.arguments(schedule, x=x, y=y), schedules=8).ok
    program.run(x=x, y=y)
    assert (y[1] == 3).all()


def test_tables_are_read_at_places_from_memory():
    program = Program(1)

    @program.instruction
    def embed(tokens, table, x, *, at):
        with pk.warps(1):
            pk.store(x[at, 0], pk.load(table[pk.load(tokens[at]), 0], cols=LENGTH))

    for at in np.arange(3):
        program.add(embed, at=at)
    table = np.random.default_rng(0).standard_normal((7, LENGTH), np.float32)
    tokens, x = np.array([6, 0, 3], np.int32), np.zeros((3, LENGTH), np.float32)
    program.run(tokens=tokens, table=table, x=x)
    np.testing.assert_array_equal(x, table[tokens])


def test_reads_outside_roles_and_reused_rings_are_refused():
    def outside(x, at):
        first = pk.load(x[at, 5])
        with pk.warps(1):
            pk.store(x[at + 1, 0], pk.full(pk.f32, 0.0, LENGTH) + first)

    def reused(x, at):
        one = pk.pipeline(1, pk.sv(pk.f32, LENGTH))
        pk.pipeline(1, pk.sv(pk.f32, LENGTH), reuse=one)

    assert "reads `x`, which instructions write, outside of its roles" in refused(outside)
    assert "the next instruction needs that ring again" in refused(reused)


def test_waits_and_signals_that_no_role_carries_out_are_refused():
    steps = [Cell("add", 4, 0, 1, block=0), Cell("add", 5, 4, 4, block=1)]
    program, x = added(cells(2), steps), given_cells([0, 0])

    def schedule():
        return program.scheduled(x=x)

    silent, deaf, unknown = schedule(), schedule(), schedule()
    silent.signals[0, 0] = 0
    with pytest.raises(
        ScheduleError, match="producer of add.* signals a counter, and writes nothing"
    ):
        prove(silent)
    deaf.waits[1, 1] = [(0, 1)]
    with pytest.raises(ScheduleError, match="waits, and reads nothing"):
        prove(deaf)
    unknown.waits[1, 0] = [(9, 0)]
    with pytest.raises(ScheduleError, match="counter 9, which nothing signals"):
        prove(unknown)


def test_a_schedule_is_refused_for_other_shapes():
    steps = [Cell("double", 4, 0)]
    program = added(cells(1), steps)
    schedule = program.scheduled(x=given_cells(steps))
    with pytest.raises(ArgumentError, match=r"for `x` of \(5, 64\), not \(9, 64\)"):
        program.arguments(schedule, x=np.zeros((9, LENGTH), np.float32))
