"""Random pipeline programs agree with their reference in the emulator, under every schedule, and compile."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings

import pykittens as pk
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from tests.pipeline_parts import Late, Odd, Product, Program, Take, walk
from tests.pipeline_programs import arguments, programs, seeded
from tests.pipeline_reference import exact
from tests.pipeline_source import kernel_of, source
from tests.targets.clean import spills
from tests.tolerance import assert_within

# The first two are the latest and the earliest schedule.
SCHEDULES = (0, 1, 2)
COMPILED = range(0, 1000, 25)
SERIALISED = "C751"
FOR_WANT_OF_REGISTERS = "C7512"  # not of what the program orders


def emulated(kernel: Any, program: Program, schedule: int) -> np.ndarray:
    """The output under a schedule."""
    found = arguments(program)
    kernel.emulate(check(kernel.parameters, tuple(found.values()), {}), seed=schedule)
    return found["out"]


def assert_right(program: Program) -> None:
    """The reference is met under the first schedule, and every other gives the same bits."""
    known, kernel = exact(program, arguments(program)), kernel_of(program)
    first, *others = (emulated(kernel, program, schedule) for schedule in SCHEDULES)
    assert_within(first, known.value, known.error)
    for schedule, found in zip(SCHEDULES[1:], others, strict=True):
        same = np.array_equal(first.view(np.uint8), found.view(np.uint8))
        assert same, f"schedule {schedule} gives other bits than schedule {SCHEDULES[0]}"


@settings(max_examples=12, derandomize=True)
@given(programs())
def test_a_random_pipeline_program_is_right_under_every_schedule(program):
    note(source(program))
    assert_right(program)


@settings(max_examples=5, derandomize=True)
@given(programs())
def test_the_checker_finds_no_fault_in_a_random_pipeline_program(program):
    note(source(program))
    assert faults(program, costs=False, compile=False) == []


@pytest.mark.parametrize("number", range(1))
def test_a_whole_report_on_a_random_pipeline_program_tells_no_fault(number):
    program = seeded(number)
    assert faults(program) == [], source(program)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(300))
def test_the_checker_finds_no_fault_in_many_pipeline_programs(number):
    program = seeded(number)
    assert faults(program) == [], source(program)


def faults(program: Program, **options: bool) -> list[str]:
    """What the checker calls an error."""
    given = arguments(program).values()
    report = pk.check(kernel_of(program), *given, schedules=len(SCHEDULES), **options)
    return [f"{f.kind.value}: {f.message}" for f in report.errors]


@pytest.mark.units
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("number", COMPILED)
def test_a_random_pipeline_program_compiles_for_hopper(number):
    program = seeded(number)
    compiled = kernel_of(program).compile(*arguments(program).values(), arch="sm_90a")
    told = [s for s in spills(compiled) if SERIALISED in s and FOR_WANT_OF_REGISTERS not in s]
    assert told == []


def test_a_number_names_a_program_and_its_text_can_be_run_again():
    program = seeded(7)
    assert program == seeded(7)
    assert source(program) == source(seeded(7))
    space: dict[str, object] = {}
    exec("from tests.pipeline_parts import *\nfrom pykittens.types.dtypes import *", space)
    assert eval(repr(program), space) == program


def test_the_programs_have_every_part_of_the_language_that_is_meant():
    found: Counter[str] = Counter()
    for number in range(400):
        found.update(parts(seeded(number)))
    assert {p: n for p, n in found.items() if n < 4} == {}
    assert set(found) >= PARTS


def test_the_bounds_tell_a_wrong_tile_from_a_right_one():
    """A missing step, or a tile of another step, would be outside the bounds of nine programs in ten."""
    told = [number for number in range(100) if is_tight(seeded(number))]
    assert len(told) >= 90


def is_tight(program: Program) -> bool:
    """Whether the bound is small beside the numbers that are not zero."""
    known = exact(program, arguments(program))
    size = np.abs(known.value)
    if not size.any():
        return program.step_count == 0 or not program.extents[2]
    return bool(np.median(known.error) < 0.1 * size[size > 0].mean())


PARTS = {
    *("mma_ABt", "mma_AB", "mma_AtB", "mma_AtBt", "register operand", "unmanaged", "late"),
    *("copy", "branch", "parts", "stores", "multicast", "alone", "middle", "by hand", "1 stage"),
    *("direct", "ring", "reuse", "staged", "flags", "turn", "add", "add_ring", "halves"),
    *("step", "odd", "before", "held", "after", "ahead", "together", "nested", "if", "grid"),
    *("row_major", "column_major", "supergroup(2)", "longest_first", "longest_first(2)"),
    *("bf16", "f16", "f32", "consumers", "warpgroups", "warps", "3 groups", "3 rings"),
    *("clusters of both ways", "no steps", "steps as an argument", "unaligned"),
}


def parts(program: Program) -> set[str]:
    """What a program has."""
    statements = [
        s
        for body in (program.before, program.head, program.tail, program.after)
        for s in walk(body)
    ]
    products = [s for s in statements if isinstance(s, Product)]
    takes = [s for s in statements if isinstance(s, Take)]
    tiles = [t for r in program.rings for t in r.tiles]
    found = {
        "register operand": any(isinstance(p.left, int) for p in products),
        "unmanaged": any(not p.managed for p in products),
        "late": any(isinstance(s, Late) for s in statements),
        "alone": any(r.alone for r in program.rings),
        "middle": any(r.middle is not None for r in program.rings),
        "by hand": any(r.by_hand for r in program.rings),
        "1 stage": any(r.stages == 1 for r in program.rings),
        "halves": program.halves,
        "ahead": program.ahead,
        "together": any(len(t.rings) > 1 for t in takes),
        "nested": any(isinstance(s, Take) for t in takes for s in t.body),
        "if": any(isinstance(s, Odd) for s in statements),
        "grid": program.order is None,
        "clusters of both ways": program.is_spread_both_ways,
        "3 groups": program.groups == 3,
        "3 rings": len(program.rings) >= 3,
        "no steps": program.step_count == 0,
        "steps as an argument": program.steps is not None,
        "unaligned": program.extents[2] % 8 != 0,
    }
    words = {p.op for p in products} | {t.way for t in tiles} | {r.when for r in program.rings}
    words |= {program.out, program.team, str(program.dtype)} | ({program.order} - {None})
    return {name for name, has in found.items() if has} | words
