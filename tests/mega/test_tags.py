"""Programs whose instructions exchange vectors with tags: no counter, no signal, and no wait for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import LanguageError, TypeMismatch
from pykittens.mega import Program
from pykittens.mega.proof import ScheduleError, prove
from tests.mega.programs import LENGTH
from tests.mega.reachable import is_right
from tests.running import recorded

INPUTS = 3


def cells(blocks: int, dynamic: bool = False) -> Program:
    """A program of cells, vectors of x with tags: some given, the others sums of two, by lanes or through a ring."""
    program = Program(blocks, dynamic=dynamic)

    @program.instruction
    def give(x, given, *, out, tag):
        """x[out] = given[out]."""
        with pk.warps(2) as w:
            pk.store_tagged(x[out, w], pk.load(given[out, w], cols=LENGTH // 2), tag)

    @program.instruction
    def add(x, *, a, b, out, tag):
        """x[out] = x[a] + x[b]."""
        with pk.warps(2) as w:
            y, z = (pk.load_tagged(x[i, w], tag, cols=LENGTH // 2) for i in (a, b))
            pk.store_tagged(x[out, w], y + z, tag)

    @program.instruction
    def ringed(x, y, *, a, b, out, tag):
        """x[out] = x[a] + x[b], fetched by another role; and y[out], without tags, the same."""
        ring = pk.pipeline(1, a=pk.sv(pk.f32, LENGTH), b=pk.sv(pk.f32, LENGTH))
        with pk.producer(), ring.fill() as s:
            pk.store(s.a, pk.load_tagged(x[a, 0], tag, cols=LENGTH))
            pk.store(s.b, pk.load_tagged(x[b, 0], tag, cols=LENGTH))
        with pk.warps(2) as w:
            with ring.drain() as s:
                z, v = (pk.load(t.parts(LENGTH // 2)[w]) for t in (s.a, s.b))
            pk.store_tagged(x[out, w], z + v, tag)
            pk.store(y[out, w], z + v)

    @program.instruction
    def read(y, z, *, a, out):
        """z[out] = y[a], which is counted."""
        with pk.warps(2) as w:
            pk.store(z[out, w], pk.load(y[a, w], cols=LENGTH // 2))

    return program


def filled(program: Program, seed: int, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Add random instructions; returns the tensors, and the cells that they compute."""
    rng, cells = np.random.default_rng(seed), INPUTS + count
    kinds = {kind.name: kind for kind in program.kinds}

    def block() -> int | None:
        drawn = int(rng.integers(program.blocks))
        return None if program.dynamic else drawn

    wanted = np.zeros((cells, LENGTH), np.float32)
    wanted[:INPUTS] = rng.integers(-4, 5, (INPUTS, LENGTH))
    for out in range(INPUTS):
        program.add(kinds["give"], out=out, block=block())
    for out in range(INPUTS, cells):
        a, b, on = int(rng.integers(out)), int(rng.integers(out)), block()
        kind = str(rng.choice(["add", "ringed"]))
        program.add(kinds[kind], a=a, b=b, out=out, block=on)
        wanted[out] = wanted[a] + wanted[b]
        if kind == "ringed":
            program.add(kinds["read"], a=out, out=out, block=block())
    assert np.abs(wanted).max() < 2**20  # so that tags cut nothing off
    none = np.full((cells, LENGTH), np.nan, np.float32)
    given = wanted.copy()
    given[INPUTS:] = np.nan
    return {"x": none, "given": given, "y": none.copy(), "z": none.copy()}, wanted


def without_tags(x):
    return (x.view(np.int32) & ~15).view(np.float32)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), blocks=st.integers(1, 3))
def test_random_programs_compute_what_their_instructions_do_in_order(dynamic, seed, count, blocks):
    program = cells(blocks, dynamic)
    tensors, wanted = filled(program, seed, count)
    tensors = {name: x for name, x in tensors.items() if name in used(program)}
    schedule = program.scheduled(**tensors)
    assert is_right(schedule)
    arguments = program.arguments(schedule, **tensors)
    kernel = program.kernel()
    for launch in range(3):
        kernel.emulate(pk.runtime.arguments.check(kernel.parameters, arguments, {}), launch)
        np.testing.assert_array_equal(without_tags(tensors["x"]), wanted)
        assert ((tensors["x"].view(np.int32) & 15) == 1 + launch % 2).all()


def used(program):
    return {name for kind in program.kinds for name in kind.tensors}


def test_tags_need_no_counters_and_are_free_of_races():
    program = cells(3)
    tensors, _ = filled(program, 5, 12)
    schedule = program.scheduled(**tensors)
    assert set(box[0] for boxes in schedule.reads.values() for box in boxes) == {
        "tensors.x",
        "tensors.y",
    }
    assert schedule.counters == sum(i.kind.name == "read" for i in program.instructions)
    report = pk.check(program.kernel(), *program.arguments(schedule, **tensors), schedules=6)
    assert report.ok, str(report)


def test_an_element_that_no_instruction_tags_is_refused():
    program = cells(2)
    kinds = {kind.name: kind for kind in program.kinds}
    tensors, _ = filled(cells(2), 0, 2)
    program.add(kinds["give"], out=0)
    program.add(kinds["add"], a=0, b=1, out=2)
    message = r"add\(a=0, b=1, out=2\) waits for the tags of x\[0:2, 0:.*\], some of which"
    with pytest.raises(LanguageError, match=message):
        program.scheduled(**tensors)


def test_a_wait_for_tags_that_never_come_is_a_deadlock():
    program = cells(2)
    tensors, _ = filled(program, 2, 6)
    schedule = program.scheduled(**tensors)
    program.instructions[0], program.instructions[-1] = (
        program.instructions[-1],
        program.instructions[0],
    )
    schedule.queues[0].reverse()
    schedule.queues[1].reverse()
    assert not is_right(schedule)
    with pytest.raises(ScheduleError, match="deadlock: "):
        prove(schedule)


def test_a_tensor_has_tags_in_all_instructions():
    program = cells(1)

    @program.instruction
    def plain(x, *, out):
        with pk.warps(2) as w:
            pk.store(x[out, w], pk.zeros(pk.f32, LENGTH // 2))

    tensors, _ = filled(cells(1), 0, 1)
    program.add(plain, out=0)
    with pytest.raises(LanguageError, match="plain: the elements of `x` have tags, and are"):
        program.scheduled(**tensors)


def test_the_tag_is_that_of_the_launch():
    program = Program(blocks=1)

    @program.instruction
    def give(x, *, out):
        with pk.warps(2) as w:
            pk.store_tagged(x[out, w], pk.zeros(pk.f32, LENGTH // 2), 1)

    program.add(give, out=0)
    with pytest.raises(LanguageError, match="give: the tag must be that of the launch"):
        program.scheduled(x=np.zeros((1, LENGTH), np.float32))


# -- kernels ---------------------------------------------------------------------------------------


@pk.kernel
def relay(x, links, y, *, n):
    """Block b waits for what block b - 1 has written, adds 1 and writes it on."""
    (b,) = pk.grid(y.shape[0])
    with pk.warpgroups(1):
        v = pk.load(x, cols=n)
        if b > 0:
            v = pk.load_tagged(links[b - 1, 0], b, cols=n) + 1.0
        pk.store_tagged(links[b, 0], v, b + 1)
        pk.store(y[b, 0], v)


@pytest.mark.parametrize("n", [1, 7, 64, 200, 2048])
def test_a_reader_waits_for_the_elements_that_it_reads(n):
    x, y = np.arange(n, dtype=np.float32), np.full((12, n), np.nan, np.float32)
    links = np.zeros((12, n), np.float32)
    relay(x, links, y, n=n)
    assert (y == x + np.arange(12)[:, None]).all()
    assert pk.check(relay, x, np.zeros((12, n), np.float32), y, n=n, schedules=4).ok


def test_all_but_the_low_bits_of_an_element_arrive():
    @pk.kernel
    def kernel(x, links, y):
        pk.grid(1)
        with pk.warps(1):
            pk.store_tagged(links, pk.load(x, cols=64), 21)
            pk.store(y, pk.load_tagged(links, 5, cols=64, spread=pk.per_column))

    x = np.concatenate([np.random.default_rng(0).standard_normal(60), [np.inf, -np.inf, np.nan, 0]])
    x, y, links = x.astype(np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    kernel(x, links, y)
    assert ((links.view(np.int32) & 15) == 5).all()
    assert np.isnan(y[62])
    np.testing.assert_allclose(y, x, rtol=2.0**-19)


def test_a_tag_that_never_comes_is_a_deadlock():
    @pk.kernel
    def kernel(links):
        pk.grid(1)
        with pk.warps(1):
            v = pk.load_tagged(links, 2, cols=64)
            pk.store_tagged(links, v, 3)

    with pytest.raises(pk.KernelError, match="for 64 elements of links.* to have the tag 2"):
        kernel(np.zeros(64, np.float32))


@pytest.mark.parametrize(
    ("dtype", "tag", "message"),
    [
        (np.int32, 1, "`dst` must be f32, not int32"),
        (np.float32, 1.5, "`tag` must be an int32, not 1.5"),
    ],
)
def test_what_cannot_have_tags_is_refused(dtype, tag, message):
    @pk.kernel
    def kernel(x):
        pk.grid(1)
        pk.store_tagged(x, pk.zeros(x.dtype, 64), tag)

    with pytest.raises(TypeMismatch, match=message):
        recorded(kernel, np.zeros(64, dtype))
