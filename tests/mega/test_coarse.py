"""The coarse machine computes what the emulator does, bit by bit, and refuses schedules that are broken."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import AccessError, AssertError, BarrierError, DeadlockError
from pykittens.mega import Program, coarse
from pykittens.mega.proof import ScheduleError
from tests.benches import program as benchmark
from tests.mega import test_tags
from tests.mega.programs import LENGTH, Cell, added, cells, random_steps, sequential
from tests.mega.test_rings import shared_ring
from tests.tile_programs import NAMES, steps_of

INPUTS = 4


def given_cells(count):
    x = np.full((INPUTS + count, LENGTH), np.nan, np.float32)
    x[:INPUTS] = np.random.default_rng(0).integers(-4, 5, (INPUTS, LENGTH))
    return x


def both(program, tensors):
    """Run a program on the coarse machine and in the emulator, and compare all bits; returns the tensors after it."""
    run, emulated = ({name: x.copy() for name, x in tensors.items()} for _ in range(2))
    program.run_coarse(**run)
    program.run(**emulated)
    for name, x in run.items():
        assert x.tobytes() == emulated[name].tobytes(), name
    return run


# -- programs --------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 16), blocks=st.integers(1, 3))
def test_random_programs_are_run_as_by_the_emulator(seed, count, blocks):
    steps = random_steps(np.random.default_rng(seed), INPUTS, count, blocks)
    x = given_cells(count)
    found = both(added(cells(blocks), steps), {"x": x})
    np.testing.assert_array_equal(found["x"], sequential(steps, x))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), blocks=st.integers(1, 3))
def test_random_programs_with_tags_are_run_as_by_the_emulator(seed, count, blocks):
    program = test_tags.cells(blocks)
    tensors, _ = test_tags.filled(program, seed, count)
    both(program, {name: x for name, x in tensors.items() if name in test_tags.used(program)})


@settings(max_examples=25)
@given(data=st.data())
def test_random_steps_on_tiles_of_several_groups_are_those_of_the_emulator(data):
    """Tiles, vectors and numbers that differ between the four groups of a role, or are the same."""
    dtype = data.draw(st.sampled_from([pk.f32, pk.bf16, pk.f16]))
    steps = []
    for count in range(7, 7 + data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(list(NAMES)))
        operands = [data.draw(st.integers(0, count - 1)) for _ in range(NAMES[name])]
        steps.append((name, operands))
    program, words = Program(blocks=1), steps_of(16, 48)

    @program.instruction
    def compute(a, b, c, d, out, *, at):
        ring = pk.pipeline(2, pk.st(b.dtype, 64, 48))
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, b[at, 0, 0])
        with pk.warps(4) as w:
            whole, base = pk.load(a[at, 0, 0], rows=16, cols=48), pk.full(dtype, 1, 16, 48)
            column = pk.load(c[at, w], cols=48, spread=pk.per_column)
            with ring.drain() as s:
                own = pk.load(s.tiles(16, 48)[w, 0])
            turned = pk.load(d[at, 0, w], rows=16, cols=48, transposed=True)
            number = w.to(dtype)
            values = [whole, own, turned, column, base * number, own / whole, whole / (number + 1)]
            for name, operands in steps:
                chosen = [values[i] for i in operands]
                if words[name].tiles_only:
                    chosen = [pk.where(pk.row_index(16) < 16, x, base) for x in chosen]
                values.append(words[name].kernel(*chosen))
            for i, value in enumerate(values[7:]):
                pk.store(out[at, i, w, 0], pk.where(pk.col_index(48) >= 0, value, base))

    rng = np.random.default_rng(0)
    for at in range(2):
        program.add(compute, at=at)
    shapes = {"a": (2, 16, 48), "b": (2, 64, 48), "c": (2, 4 * 48), "d": (2, 48, 64)}
    shapes["out"] = 2, 8, 64, 48
    both(program, {n: rng.standard_normal(s).astype(dtype.numpy) for n, s in shapes.items()})


def test_kinds_with_views_of_one_ring_are_run():
    program, tensors = shared_ring()
    both(program, tensors)


def branching():
    """A program whose groups take turns and branches of their own, and hand numbers on through shared memory."""
    program = Program(blocks=2)

    @program.instruction
    def meet(x, y, *, at, count):
        """The second group waits for what the first has stored, in memory that stays from one instruction to the next.

        y[at] = x[at] + 1, halves exchanged; counted is how often the block has run it, and phases alternate.
        """
        memory, full = pk.shared(pk.sv(pk.f32, LENGTH)), pk.semaphore(2)
        empty = pk.semaphore(2)
        with pk.warps(2) as w:
            pk.store(memory.parts(LENGTH // 2)[w], pk.load(x[at, w], cols=LENGTH // 2) + 1.0)
            full.arrive()
            full.wait(count)
            pk.store(y[at, w], pk.load(memory.parts(LENGTH // 2)[1 - w]))
            empty.arrive()
            empty.wait(count)

    @program.instruction
    def choose(y, z, *, at):
        """z[at] = 2 ** n y[at], where n is 3 for even at, and counted up in a loop of each group's own length."""
        with pk.warps(2) as w:
            v = pk.load(y[at, w], cols=LENGTH // 2)
            if w == 0:
                if at % 2 == 0:
                    v = v * 8.0
                else:
                    v = v * 2.0
            else:
                n = 0
                while n < at % 3:
                    v = v * 2.0
                    n = n + 1
            for _ in pk.range(w):
                v = v + 1.0
            with pk.in_turn():
                pk.store(z[at, w], v)

    @program.instruction
    def alike(z, out, *, at):
        """Loops and branches that are alike in both groups, with values that differ."""
        with pk.warps(2) as w:
            v, total, k = pk.load(z[at, w], cols=LENGTH // 2), 0.0, 0
            for i in pk.range(at, at + 3):
                total = total + pk.sum(v) * (i + w).to(pk.f32)
                v = v * 0.5 + total
            while k < at:
                if k % 2 == 0:
                    v = v + k.to(pk.f32)
                else:
                    total = total - 1.0
                k = k + 1
            pk.store(out[at, w], v + total + pk.argmax(v).to(pk.f32) + pk.max(v))

    for at in range(5):
        program.add(meet, at=at, count=at // 2, block=at % 2)
        program.add(choose, at=at, block=1 - at % 2)
        program.add(alike, at=at, block=at % 2)
    x = np.random.default_rng(0).standard_normal((5, LENGTH)).astype(np.float32)
    return program, {"x": x} | {n: np.full_like(x, np.nan) for n in ("y", "z", "out")}


def test_branches_turns_and_semaphores_of_groups_are_run():
    program, tensors = branching()
    found = both(program, tensors)
    x, half = tensors["x"], LENGTH // 2
    assert (found["y"] == np.roll(x + np.float32(1), half, axis=1)).all()
    assert (found["z"][:, :half] == found["y"][:, :half] * [[8], [2], [8], [2], [8]]).all()


def hand_made():
    """A program of warpgroups with products, two stages held at once, copies with semaphores, windows and atomics."""
    program = Program(blocks=2)

    @program.instruction
    def multiply(a, b, c, *, row, steps):
        """c = a b.T, 128 rows of it."""
        ring = pk.pipeline(3, a=pk.st(pk.bf16, 128, 64), b=pk.st(pk.bf16, 64, 64))
        with pk.producer():
            for k in pk.range(steps):
                with ring.fill() as s:
                    pk.load_async(s.a, a[row, k])
                    pk.load_async(s.b, b[0, k])
        with pk.consumers(2) as w:
            acc = pk.zeros(pk.f32, 64, 64)
            for _ in pk.range(steps // 2):
                with ring.drain() as s, ring.drain() as t:
                    acc = pk.mma_ABt(s.a.tiles(64, 64)[w, 0], s.b, acc)
                    acc = pk.mma_ABt(t.a.tiles(64, 64)[w, 0], t.b, acc)
            pk.store(c[row * 2 + w, 0], acc)

    @program.instruction
    def fetch(c, d, seen, *, row):
        """d = c / 2 + the sums of its columns; in seen which of these sums are positive in total."""
        memory, full = pk.shared(pk.st(pk.f32, 64, 64), count=2), pk.semaphore(1, count=2)
        with pk.consumers(2) as w:
            full[w].expect(memory[w])
            pk.load_async(memory[w], c[row * 2 + w, 0], signal=full[w])
            full[w].wait(row)
            tile = pk.load(memory[w])
            v = pk.col_sum(tile)
            pk.store(d[row * 2 + w, 0], tile * 0.5 + v)
            if pk.sum(pk.spread(v, pk.plain)) > 0.0:
                pk.store(seen[row, w], 1)

    @program.instruction
    def add_up(a, d, total, *, row):
        """total = the sums of the rows of d and a, in a window, with 1 outside; each group adds its own, and 2."""
        with pk.consumers(2) as w:
            part = a.window(0, row * 128 + 5, row * 128 + 128)
            x = pk.load(part[w, 0], rows=64, cols=64, fill=1.0).to(pk.f32)
            x = x + pk.load(d[row * 2 + w, 0], rows=64, cols=64)
            pk.store(total[row, 0], pk.row_sum(x), op="add")
            pk.store(total[row, 0], pk.zeros(pk.f32, 64) + 2.0, op="add")
            pk.print("row {}, group {}", row, w)

    for row in range(2):
        program.add(multiply, row=row, steps=4, block=row)
    for kind, block in ((fetch, 0), (add_up, 1)):
        for row in range(2):
            program.add(kind, row=row, block=block)
    rng = np.random.default_rng(0)  # of whole numbers, whose sums are the same in any order
    a, b = (rng.integers(-4, 5, (n, 256)).astype(pk.bf16.numpy) for n in (256, 64))
    given = {"a": a, "b": b, "seen": np.zeros((2, 2), np.int32), "total": np.zeros((2, 64), np.float32)}  # fmt: skip
    return program, given | {name: np.full((256, 64), np.nan, np.float32) for name in "cd"}


def test_products_copies_windows_and_atomics_of_warpgroups_are_run(capsys):
    program, tensors = hand_made()
    found = both(program, tensors)
    a, b = (tensors[name].astype(np.float32) for name in "ab")
    np.testing.assert_array_equal(found["c"], a @ b.T)
    assert found["seen"].any()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines[:4]) == sorted(lines[4:])
    assert len(lines) == 8


@pytest.fixture
def mega(monkeypatch):
    """benchmarks/mega.py as a module."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    return benchmark("mega", monkeypatch)


def copied(x):
    return {name: t.clone() for name, t in x.items()}


@pytest.mark.parametrize("more", ["", "tags", "tensor cores"])
def test_the_programs_of_the_benchmark_are_run_as_by_the_emulator(mega, more):
    sizes = 3, 2, 512, 4, 2, 8
    program = (
        mega.tagged_phases(*sizes, more == "tensor cores") if more else mega.two_phases(*sizes)
    )
    x = mega.problem(2, 512, "cpu")
    tensors = mega.tagged(x) if more else x
    run, emulated = copied(tensors), copied(tensors)
    program.run_coarse(**run)
    program.run(**emulated)
    for name, t in run.items():
        ours, theirs = (v.view(mega.torch.uint8) for v in (t, emulated[name]))
        assert mega.torch.equal(ours, theirs), name
    assert mega.error(x, run["x" if more else "h"]) < 4e-3


def test_a_larger_program_takes_seconds(mega):
    layers, n = 4, 1024
    program = mega.tagged_phases(132, layers, n, 11, 3, 8)
    x = mega.problem(layers, n, "cpu")
    tensors = mega.tagged(x)
    begin = time.perf_counter()
    program.run_coarse(**tensors)
    assert time.perf_counter() - begin < 20  # 1 s on one core
    assert mega.error(x, tensors["x"]) < 1e-5


# -- faults ----------------------------------------------------------------------------------------


def chain():
    """A schedule of two instructions, on two blocks, of which the second waits for the first; and its arguments."""
    steps = [Cell("double", 4, 0, block=0), Cell("double", 5, 4, block=1)]
    program, x = added(cells(2), steps), given_cells(2)
    schedule = program.scheduled(x=x)
    return schedule, program.arguments(schedule, x=x)


@pytest.mark.parametrize(
    ("expected", "found", "damage"),
    [
        (2, 0, lambda schedule: schedule.signals.clear()),
        (3, 2, lambda schedule: schedule.waits.update({(1, 1): [(0, 3)]})),
        (1, 2, lambda schedule: schedule.waits.update({(1, 1): [(0, 1)]})),
    ],
)
def test_a_counter_without_its_value_is_refused(expected, found, damage):
    schedule, arguments = chain()
    assert schedule.waits == {(1, 1): [(0, 2)]}
    damage(schedule)
    message = rf"warps of double\(a=4, out=5\) in block 1 waits for counter 0 to be {expected}, and it is {found} when"
    with pytest.raises(ScheduleError, match=message):
        coarse.run(schedule, arguments)


def test_a_missing_wait_shows_in_the_result():
    steps = [Cell("double", 4, 0, block=1), Cell("double", 5, 4, block=0)]
    program, x = added(cells(2), steps), given_cells(2)
    schedule = program.scheduled(x=x)
    schedule.waits.clear()
    coarse.run(schedule, program.arguments(schedule, x=x))
    assert np.isfinite(x[4]).all()
    assert np.isnan(x[5]).all()


def test_queues_that_stop_are_refused():
    schedule, arguments = chain()
    schedule.waits[0, 1] = [(0, 2)]
    with pytest.raises(ScheduleError, match=r"deadlock: double\(a=0, out=4\) waits in block 0"):
        coarse.run(schedule, arguments)


def instruction(statements):
    """Run an instruction with these statements: a function of x and its field, which is 3."""
    program = Program(blocks=1)

    @program.instruction
    def one(x, *, at):
        statements(x, at)

    program.add(one, at=3)
    program.run_coarse(x=np.zeros((4, LENGTH), np.float32))


def test_roles_that_wait_for_one_another_are_named():
    @pk.function
    def stuck(x, at):
        ring = pk.pipeline(1, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            for _ in pk.range(at):
                with ring.fill() as s:
                    pk.load_async(s, x[at, 0])
        with pk.warps(1), ring.drain() as s:
            pk.load(s)

    message = r"the roles of one\(at=3\) wait for one another"
    with pytest.raises(DeadlockError, match=message) as error:
        instruction(stuck)
    assert "ring.fill() at " in str(error.value.operands["producer"])


def test_an_instruction_that_leaves_stages_filled_is_refused():
    @pk.function
    def uneven(x, at):
        ring = pk.pipeline(8, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            for _ in pk.range(at):
                with ring.fill() as s:
                    pk.load_async(s, x[at, 0])
        with pk.warps(1), ring.drain() as s:
            pk.load(s)

    message = r"one\(at=3\) has filled `ring` 3 times and drained it 1 times"
    with pytest.raises(BarrierError, match=message):
        instruction(uneven)


def test_an_error_has_its_line_and_its_instruction():
    @pk.function
    def outside(x, at):
        memory = pk.shared(pk.sv(pk.f32, LENGTH))
        with pk.warps(2) as w:
            for i in pk.range(at):
                pk.load(memory.parts(16)[i + w * at])

    @pk.function
    def wrong(x, at):
        with pk.warps(2) as w:
            pk.assert_(w * at < 3, "w is too large")

    cases = [(outside, AccessError, "[i + w * at]"), (wrong, AssertError, "w * at < 3")]
    for statements, kind, line in cases:
        with pytest.raises(kind) as error:
            instruction(statements)
        assert line in error.value.loc.text
        assert error.value.operands["instruction"] == "one(at=3)"
