"""Dynamic programs: a block that is free takes the next instruction, and no order in a block is known."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError, DeadlockError
from pykittens.mega import Program
from pykittens.mega.proof import ScheduleError, prove
from pykittens.pictures.schedule import draw
from pykittens.runtime import nvrtc
from pykittens.targets.emit import emit
from tests.mega.programs import LENGTH, Cell, added, cells, random_steps, sequential
from tests.mega.test_debug import stopped, stuck
from tests.mega.test_programs import INPUTS, given_cells
from tests.pictures.reading import read
from tests.running import recorded

STEPS = random_steps(np.random.default_rng(5), INPUTS, 30, 1)


def dynamic(steps=STEPS, blocks=7):
    """A dynamic program, its cells, its schedule and arguments."""
    program, x = added(cells(blocks, dynamic=True), steps), given_cells(steps)
    schedule = program.scheduled(x=x)
    return program, x, schedule, program.arguments(schedule, x=x)


@pytest.mark.parametrize("blocks", [1, 7, 200])
def test_launches_of_any_number_of_blocks_follow_one_another(blocks):
    """The schedules of the emulator differ in the number of blocks and in what each takes."""
    program, x, _, arguments = dynamic(blocks=blocks)
    kernel, wanted = program.kernel(), sequential(STEPS, x)
    given, (_, _, counters, parities, tickets, _) = kernel.parameters, arguments
    for launch in range(8):
        x[INPUTS:] = np.nan
        kernel.emulate(pk.runtime.arguments.check(given, arguments, {}), launch)
        np.testing.assert_array_equal(x, wanted)
        assert tickets.tolist() == [0]
        assert (parities == 1 - launch % 2).all()
        assert counters[launch % 2].any()
        assert not counters[1 - launch % 2].any()


def test_an_instruction_waits_also_for_what_its_block_has_seen():
    """In one block the second reader need not wait again; any block may take it here."""
    steps = [Cell("double", 4, 0, block=0), *(Cell("double", n, 4, block=0) for n in (5, 6))]
    one = added(cells(1), steps).scheduled(x=given_cells(steps))
    _, _, any_, _ = dynamic(steps)
    role = one.roles.index("warps")
    assert [len(one.waits.get((n, role), ())) for n in range(3)] == [0, 1, 0]
    assert [len(any_.waits.get((n, role), ())) for n in range(3)] == [0, 1, 1]


@pytest.mark.parametrize(("source", "waits"), [(4, 1), (0, 2)])
def test_a_wait_that_another_implies_is_left_out(source, waits):
    """The last reads cells 5 and 4: who wrote 5 has waited for 4, and signalled after that, if it is its source."""
    steps = [Cell("double", 4, 0), Cell("double", 5, source), Cell("add", 6, 5, 4)]
    steps.append(Cell("double", 7, 4))  # so that 4 and 5 have counters of their own
    _, _, schedule, _ = dynamic(steps)
    found = [len(some) for (step, _), some in schedule.waits.items() if step == 2]
    assert found == [waits]


def test_the_words_are_one_queue_in_the_order_of_the_program():
    program, _, schedule, (code, *_) = dynamic()
    assert code.shape[:2] == (1, len(STEPS))
    kinds = [kind.name for kind in program.kinds]
    assert [kinds[k - 1] for k in code[0, :, 0]] == [step.kind for step in STEPS]
    assert schedule.queues == [[*range(len(STEPS))]]


def test_a_dropped_wait_is_refused_and_a_race_in_the_emulator():
    program, x, schedule, _ = dynamic([Cell("double", 4, 0), Cell("add", 5, 4, 4)])
    schedule.waits.clear()
    with pytest.raises(ScheduleError, match=r"in any block reads .* in any block writes it"):
        prove(schedule)
    report = pk.check(program.kernel(), *program.arguments(schedule, x=x), schedules=6)
    assert not report.ok


def test_a_wait_for_a_later_instruction_is_a_deadlock():
    steps = [Cell("double", 4, 0), Cell("double", 5, 4)]
    _, _, schedule, _ = dynamic(steps)
    schedule.queues[0].reverse()
    with pytest.raises(
        ScheduleError,
        match=r"double\(a=4, out=5\) waits for double\(a=0, out=4\), which does not come before",
    ):
        prove(schedule)


def test_one_thread_draws_and_the_roles_read_what_it_drew():
    program, _, _, arguments = dynamic()
    made = recorded(program.kernel(), *arguments)
    text = emit(made, "sm_90a").program
    assert text.count("Tickets tickets;") == 3
    assert text.count("tickets.draw(") == 1
    assert "tickets_init(" in text
    static = added(cells(7), STEPS)
    given = static.arguments(static.scheduled(x=given_cells(STEPS)), x=given_cells(STEPS))
    assert "ickets" not in emit(recorded(static.kernel(), *given), "sm_90a").program


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_its_kernel_compiles_without_spills(arch):
    program, _, _, arguments = dynamic()
    found = program.kernel().compile(*arguments, arch=arch).resources
    assert found.frame == 0


def test_an_error_names_the_instruction_by_its_ticket():
    program, tensors = stuck(dynamic=True)
    error = stopped(program, tensors, "ring.fill() at", block=1, place=3)
    assert isinstance(error, DeadlockError)
    assert error.operands["producer"].endswith("phase 1, in copy(part=3)")
    with pytest.raises(DeadlockError):
        program.debug(**tensors)


def test_the_picture_and_the_report_name_no_block(monkeypatch):
    monkeypatch.setattr(nvrtc, "available", lambda: "no compiler")
    program, x, schedule, _ = dynamic()
    drawn = draw(schedule)
    assert read(drawn.svg()).words("title") == ["30 instructions on 7 blocks"]
    assert "on any block" in drawn.svg()
    assert "30 instructions on 7 blocks, taken by tickets; " in program.report(x=x).schedule


def test_blocks_are_not_chosen():
    program = Program(blocks=3, dynamic=True)

    @program.instruction
    def fill(y, *, first, last):
        """y[first:last] = 1, in units of LENGTH."""
        with pk.warps(1):
            for i in pk.range(first, last):
                pk.store(y[i], pk.full(pk.f32, 1.0, LENGTH))

    with pytest.raises(ArgumentError, match="`block` must be left out in a dynamic program, not 1"):
        program.add(fill, first=0, last=1, block=1)
    with pytest.raises(ArgumentError, match="`dynamic` must be True or False, not 1"):
        Program(blocks=3, dynamic=1)
    program.add_runs(fill, 7)
    assert [i.fields for i in program.instructions] == [(0, 3), (3, 5), (5, 7)]
    y = np.zeros(7 * LENGTH, np.float32)
    program.run(y=y)
    assert (y == 1).all()
