"""Numbers of programs, read from memory by launches: a schedule serves all values, boxes are unions over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import ArgumentError, AssertError, KernelError, LanguageError
from pykittens.mega import Program
from pykittens.mega.proof import prove
from tests.mega.reachable import is_right

PART, BELOW = 16, 5
INDICES = {
    "n": lambda n: n,
    "n + 2": lambda n: n + 2,
    "6 - n": lambda n: 6 - n,
    "2 * n": lambda n: 2 * n,
    "n // 2": lambda n: n // 2,
    "cdiv(n, 3)": lambda n: pk.cdiv(n, 3),
    "min(n, 2)": lambda n: pk.minimum(n, 2),
    "max(n, 2) - 1": lambda n: pk.maximum(n, 2) - 1,
    "-(-n // 2)": lambda n: -(-n // 2),
}


def tensors(n=0, **more):
    made = {name: np.zeros(16 * PART, np.float32) for name in "xyz"}
    made["x"][:] = np.arange(16 * PART) // PART
    return made | {"n": np.array([n], np.int32)} | more


def shaped(given):
    """Those of the tensors that programs of x and y take."""
    return {name: given[name] for name in ("x", "y", "n")}


def moving(place, blocks=2):
    """A program that copies x[0] to y[place(n)]; all parts of y are then read."""
    program = Program(blocks)
    program.number("n", BELOW)

    @program.instruction
    def write(x, y, *, n):
        with pk.warps(1):
            pk.store(y[place(n)], pk.load(x[1], cols=PART))

    @program.instruction
    def read(y, z, *, at):
        with pk.warps(1):
            pk.store(z[at], pk.load(y[at], cols=PART))

    program.add(write, block=0)
    for at in range(16):
        program.add(read, at=at, block=1)
    return program


def touched(program, given):
    """The parts of y that the first instruction writes, by the schedule, and the readers that wait for it."""
    schedule = program.scheduled(**given)
    boxes = [box for box in schedule.writes[0, 0] if box[0] == "tensors.y"]
    written = {p for _, low, high in boxes for p in range(low[0] // PART, high[0] // PART)}
    return written, {step - 1 for (step, _), waits in schedule.waits.items() if waits}


@pytest.mark.parametrize("place", INDICES.values(), ids=INDICES)
def test_an_instruction_touches_what_it_can_for_any_value(place):
    of = {"minimum": min, "maximum": max, "cdiv": lambda a, b: -(-a // b)}
    program = moving(place)
    written, waiting = touched(program, tensors())
    with pytest.MonkeyPatch.context() as patch:
        for name, function in of.items():
            patch.setattr(pk, name, function)
        places = {place(n) for n in range(BELOW)}
    assert written == set(range(min(places), max(places) + 1))
    assert waiting == {min(written)}  # later reads of the block know it


@pytest.mark.parametrize("place", INDICES.values(), ids=INDICES)
def test_a_schedule_serves_all_values(place):
    program = moving(place)
    t = tensors()
    arguments = program.arguments(program.scheduled(**t), **t)
    for n in [0, 4, 2, 1, 3]:
        t["n"][0], t["y"][:], t["z"][:] = n, 0, 0
        program.kernel()(*arguments)
        other = tensors(n)
        program.run_coarse(**other)
        for name in "yz":
            np.testing.assert_array_equal(t[name], other[name])
        assert t["z"].sum() == PART


@pytest.mark.parametrize(
    ("start", "stop", "step", "wanted"),
    [
        (lambda n: 0, lambda n: n, 1, range(4)),
        (lambda n: n, lambda n: 8, 1, range(8)),
        (lambda n: n, lambda n: n + 2, 1, range(6)),
        (lambda n: n, lambda n: 8, 2, range(8)),  # odd places for odd numbers
        (lambda n: 1, lambda n: n + 3, 2, {1, 3, 5}),
        (lambda n: 7, lambda n: n, -1, range(1, 8)),
        (lambda n: n + 3, lambda n: 0, -3, range(1, 8)),
    ],
)
def test_loops_whose_ends_depend_on_a_number(start, stop, step, wanted):
    program = Program(1)
    program.number("n", BELOW)

    @program.instruction
    def write(x, y, *, n):
        with pk.warps(1):
            for i in pk.range(start(n), stop(n), step):
                pk.store(y[i], pk.load(x[i], cols=PART))

    program.add(write)
    written, _ = touched(program, shaped(tensors()))
    assert written == set(wanted)
    for n in range(BELOW):
        t = shaped(tensors(n))
        program.run(**t)
        passes = {p for p in range(start(n), stop(n), step)}
        assert passes <= written
        assert {p for p in range(16) if t["y"][p * PART] != 0} == passes - {0}


def test_branches_that_depend_on_a_number():
    program = Program(1)
    program.number("n", BELOW)

    @program.instruction
    def write(x, y, *, k, n):
        with pk.warps(1):
            if n < k:
                pk.store(y[2 * k], pk.load(x[0], cols=PART))
            else:
                pk.store(y[2 * k + 1], pk.load(x[0], cols=PART))

    for k in (0, 2, 5):
        program.add(write, k=k)
    schedule = program.scheduled(**shaped(tensors()))
    written = [sorted(box[1][0] // PART for box in schedule.writes[step, 0]) for step in range(3)]
    assert written == [[1], [4, 5], [10]]  # one side if the number decides nothing


def refused(function, message, **given):
    program = Program(1)
    program.number("n", BELOW)
    program.number("m", BELOW)
    program.add(program.instruction(function))
    with pytest.raises(LanguageError, match=message):
        program.scheduled(**given)


def test_an_index_follows_from_one_number_by_operations_that_keep_its_order():
    t = tensors()
    given = {"y": t["y"], "n": t["n"]}

    def two(y, *, n, m):
        with pk.warps(1):
            pk.store(y[n + m], pk.zeros(pk.f32, PART))

    def twice(y, *, n):
        with pk.warps(1):
            pk.store(y[n * n], pk.zeros(pk.f32, PART))

    def remainder(y, *, n):
        with pk.warps(1):
            pk.store(y[n % 2], pk.zeros(pk.f32, PART))

    def divisor(y, *, n):
        with pk.warps(1):
            pk.store(y[8 // (n + 1)], pk.zeros(pk.f32, PART))

    message = "axis 0 of `y` has an index that follows from no field"
    refused(two, message, **given, m=np.zeros(1, np.int32))
    for function in (twice, remainder, divisor):
        refused(function, message, **given)


def test_elements_with_tags_are_the_same_for_all_values():
    """A reader would wait for those that this value leaves out."""
    t = tensors()
    given = {"x": t["x"], "n": t["n"]}

    def place(x, *, n, tag):
        with pk.warps(1):
            pk.store_tagged(x[n], pk.zeros(pk.f32, PART), tag)

    def branch(x, *, n, tag):
        with pk.warps(1):
            if n < 3:
                pk.store_tagged(x[0], pk.zeros(pk.f32, PART), tag)

    def loop(x, *, n, tag):
        with pk.warps(1):
            for i in pk.range(n):
                pk.store_tagged(x[i], pk.zeros(pk.f32, PART), tag)

    def memory(x, z, *, tag):
        with pk.warps(1):
            if pk.load(z[0]) > 0:
                pk.store_tagged(x[0], pk.zeros(pk.f32, PART), tag)

    for function in (place, branch, loop):
        refused(function, "elements of `x` with tags are written at a place", **given)
    refused(memory, "depends on memory or on a number", x=t["x"], z=t["z"])


@pytest.mark.parametrize("n", [-1, 5])
def test_the_emulator_reports_a_value_out_of_range(n):
    program = moving(lambda n: n)
    with pytest.raises(AssertError, match="`n` must be from 0 to 4"):
        program.run(**tensors(n))


def test_names_and_ranges_of_numbers():
    program = Program(1)
    for below in (0, 1.5, True):
        with pytest.raises(ArgumentError, match="`below` must be an int of at least 1"):
            program.number("n", below)
    program.number("n", 3)
    for name in ("n", "tag", "2n"):
        with pytest.raises(ArgumentError, match="`name` must be a new name of a keyword"):
            program.number(name, 3)


@pytest.mark.parametrize("n", range(BELOW))
def test_instructions_that_write_one_element_for_any_value_are_in_order(n):
    program = Program(2)
    program.number("n", BELOW)

    @program.instruction
    def write(y, *, k, to, n):
        with pk.warps(1):
            pk.store(y[n + k], pk.zeros(pk.f32, PART) + to.to(pk.f32))

    program.add(write, k=0, to=1)
    program.add(write, k=BELOW - 1, to=2)
    given = {"y": np.zeros(2 * BELOW * PART, np.float32), "n": np.array([n], np.int32)}
    assert sum(map(len, program.scheduled(**given).waits.values())) == 1
    program.run(**given)
    wanted = np.zeros(2 * BELOW)
    wanted[n], wanted[n + BELOW - 1] = 1, 2
    assert (given["y"].reshape(-1, PART)[:, 0] == wanted).all()


@given(st.data())
def test_both_proofs_agree_on_programs_with_numbers(data):
    """The proof and a search of all states, on schedules with all of their waits and with one less."""
    blocks, count = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 5))
    program = Program(blocks, dynamic=data.draw(st.booleans()))
    program.number("n", BELOW)

    @program.instruction
    def step(y, *, a, out, n):
        with pk.warps(1):
            pk.store(y[out, n], pk.load(y[a, pk.minimum(n + 1, 2)], cols=PART))

    for out in range(1, count + 1):
        a = data.draw(st.integers(0, out - 1))
        block = None if program.dynamic else data.draw(st.integers(0, blocks - 1))
        program.add(step, a=a, out=out, block=block)
    given = {"y": np.zeros((count + 1, 8 * PART), np.float32), "n": np.zeros(1, np.int32)}
    schedule = program.scheduled(**given)
    prove(schedule)
    assert is_right(schedule)
    events = [event for event, waits in schedule.waits.items() if waits]
    if events:
        schedule.waits[data.draw(st.sampled_from(events))].pop()
        assert proved(schedule) == is_right(schedule)


def proved(schedule):
    try:
        prove(schedule)
    except KernelError:
        return False
    return True
