"""Instructions whose values have homes: beside those with roles, with the same schedule, right in all orders."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens import bf16, f32
from pykittens.errors import LanguageError
from pykittens.mega import Program
from tests.mega.homes_programs import STYLES, cells, random_cells, sequential, tagged_cells
from tests.mega.programs import LENGTH
from tests.mega.reachable import is_right

INPUTS = 3


def filled(program, steps, styles):
    """The program with these steps, each of a style; returns its tensor and what it computes."""
    kinds = {kind.name: kind for kind in program.kinds}
    for step, style in zip(steps, styles, strict=True):
        kind = kinds[f"{step['what']}_{style}"]
        program.add(kind, block=step["block"] % program.blocks, **step["fields"])
    x = np.full((INPUTS + len(steps), LENGTH), np.nan, np.float32)
    x[:INPUTS] = np.random.default_rng(0).integers(-4, 5, (INPUTS, LENGTH))
    return x, sequential(steps, x)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 14),
    blocks=st.integers(1, 3),
    fetchers=st.sampled_from([1, 2]),
)
def test_random_programs_of_both_compute_what_their_instructions_do_in_order(
    seed, count, blocks, fetchers
):
    rng = np.random.default_rng(seed)
    steps, program = random_cells(rng, INPUTS, count), cells(blocks, *STYLES, fetchers=fetchers)
    x, wanted = filled(program, steps, rng.choice(STYLES, count))
    schedule = program.scheduled(x=x)
    assert is_right(schedule)
    kernel = program.kernel()
    for order in range(3):
        y = x.copy()
        arguments = program.arguments(schedule, x=y)
        kernel.emulate(pk.runtime.arguments.check(kernel.parameters, arguments, {}), order)
        np.testing.assert_array_equal(y, wanted)


def test_programs_of_both_have_no_race_in_many_schedules():
    rng = np.random.default_rng(4)
    steps, program = random_cells(rng, INPUTS, 20), cells(3, *STYLES)
    x, _ = filled(program, steps, rng.choice(STYLES, 20))
    arguments = program.arguments(program.scheduled(x=x), x=x)
    report = pk.check(program.kernel(), *arguments, schedules=6)
    assert report.ok, str(report)
    assert program.kernel().source(*arguments)


@pytest.mark.parametrize("fetchers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_schedules_are_those_of_the_same_instructions_by_roles(seed, fetchers):
    steps = random_cells(np.random.default_rng(seed), INPUTS, 24)
    found = []
    for style in STYLES:
        program = cells(3, style, fetchers=fetchers)
        x, _ = filled(program, steps, [style] * len(steps))
        found.append(program.scheduled(x=x))
    homes, roles = found
    assert any(homes.waits.values())
    assert [homes.groups, homes.counters] == [roles.groups, roles.counters]
    assert homes.signals == roles.signals
    assert {e: w for e, w in homes.waits.items() if w} == {
        e: w for e, w in roles.waits.items() if w
    }


def without_tags(x):
    return (x.view(np.int32) & ~15).view(np.float32)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 10), fetchers=st.sampled_from([1, 2, 4]))
def test_random_programs_with_tags_compute_what_their_instructions_do(seed, count, fetchers):
    program, rng = tagged_cells(3, fetchers), np.random.default_rng(seed)
    kinds = {kind.name: kind for kind in program.kinds}
    wanted = np.zeros((INPUTS + count, LENGTH), np.float32)
    wanted[:INPUTS] = rng.integers(-4, 5, (INPUTS, LENGTH))
    for out in range(INPUTS):
        program.add(kinds["give"], out=out, block=int(rng.integers(3)))
    outs = []
    for out in range(INPUTS, INPUTS + count):
        a, b, block = (int(rng.integers(n)) for n in (out, out, 3))
        kind = str(rng.choice(["add_homes", "add_roles", "handed"]))
        program.add(kinds[kind], a=a, b=b, out=out, block=block)
        wanted[out] = wanted[a] + wanted[b]
        outs += [out] if kind == "handed" else []
    tensors = {name: np.full_like(wanted, np.nan) for name in "xy"} | {"given": wanted.copy()}
    tensors = {n: t for n, t in tensors.items() if any(n in k.tensors for k in program.kinds)}
    schedule = program.scheduled(**tensors)
    assert is_right(schedule)
    assert schedule.counters == 0
    arguments = program.arguments(schedule, **tensors)
    kernel = program.kernel()
    for launch in range(2):
        kernel.emulate(pk.runtime.arguments.check(kernel.parameters, arguments, {}), launch)
        np.testing.assert_array_equal(without_tags(tensors["x"]), wanted)
        np.testing.assert_array_equal(tensors["y"][outs], wanted[outs])


def test_kinds_share_the_warps_of_their_homes():
    program = Program(1)

    @program.instruction
    def one(x, *, at):
        w = pk.homes(pk.warps(2))
        pk.store(x[at, w], pk.zeros(f32, LENGTH // 2))

    @program.instruction
    def two(x, *, at):
        pk.homes(pk.warps(1))
        pk.store(x[at, 0], pk.zeros(f32, LENGTH))

    program.add(one, at=0)
    with pytest.raises(
        LanguageError, match="two has one group of 1 warps, and one has 2 groups of 1 warps"
    ):
        program.run(x=np.zeros((4, LENGTH), np.float32))


def test_a_ring_of_the_program_serves_both():
    program = Program(1)
    pages = program.ring(2)

    @program.instruction
    def one(x, *, at):
        """x[at + 1] = x[at] + 1."""
        ring = pages.view(pk.sv(f32, LENGTH))
        w = pk.homes(pk.warps(2))
        pk.store(x[at + 1, w], pk.load(ring.fetch(x[at]).parts(LENGTH // 2)[w]) + 1)

    @program.instruction
    def two(x, *, at):
        """x[at + 1] = 2 x[at]."""
        ring = pages.view(pk.sv(f32, LENGTH))
        with pk.warps(1), ring.fill() as s:
            pk.load_async(s, x[at])
        with pk.warps(2) as w:
            with ring.drain() as s:
                y = pk.load(s.parts(LENGTH // 2)[w])
            pk.store(x[at + 1, w], 2 * y)

    for at in range(4):
        program.add((one, two)[at % 2], at=at)
    x = np.full((5, LENGTH), np.nan, np.float32)
    x[0] = 1
    program.run(x=x)
    assert (x == np.array([1, 2, 4, 5, 10])[:, None]).all()


def test_fetchers_divide_tiles_that_instructions_write():
    program, side = Program(3), 64

    @program.instruction
    def multiply(A, W, B, *, layer, row):
        """B[layer] = A[layer] W, a tile of it."""
        rings = [pk.pipeline(2, pk.st(bf16, side, side)) for _ in range(3)]
        pk.homes(pk.consumers(1), fetchers=4)
        acc = pk.zeros(f32, side, side)
        for k in pk.range(2):
            a, w = rings[0].fetch(A[layer, row, k]), rings[1].stream(W[k, 0])
            acc = pk.mma_AB(a, w, acc)
        pk.store_async(B[layer, row, 0], rings[2].hand(acc.to(bf16)))

    @program.instruction
    def copy(A, B, *, layer, row):
        """A[layer + 1] = B[layer] twice, side by side."""
        ring = pk.pipeline(2, pk.st(bf16, side, side))
        pk.homes(pk.consumers(1), fetchers=4)
        t = pk.load(ring.fetch(B[layer, row, 0]))
        for k in range(2):
            pk.store(A[layer + 1, row, k], t)

    rng, layers = np.random.default_rng(0), 3
    A = np.full((layers + 1, 2 * side, 2 * side), np.nan, ml_dtypes.bfloat16)
    A[0] = rng.integers(-2, 3, A.shape[1:])
    W = np.where(rng.random((2 * side, side)) < 0.03, 1, 0).astype(ml_dtypes.bfloat16)
    B = np.full((layers, 2 * side, side), np.nan, ml_dtypes.bfloat16)
    for layer in range(layers):
        for kind in (multiply, copy):
            for row in range(2):
                program.add(kind, layer=layer, row=row)
    schedule = program.scheduled(A=A, W=W, B=B)
    assert is_right(schedule)
    arguments = program.arguments(schedule, A=A, W=W, B=B)
    assert pk.check(program.kernel(), *arguments, schedules=3).ok
    program.run(A=A, W=W, B=B)
    for layer in range(layers):
        product = A[layer].astype(np.float32) @ W.astype(np.float32)
        np.testing.assert_array_equal(B[layer], product.astype(ml_dtypes.bfloat16))
        np.testing.assert_array_equal(A[layer + 1], np.hstack([B[layer]] * 2))
