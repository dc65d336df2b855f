"""Which block an instruction goes to."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.mega import Program


def program_of_runs(blocks):
    program = Program(blocks)

    @program.instruction
    def one(x, *, part):
        """x[part] = 1."""
        with pk.warps(1):
            pk.store(x[part], pk.full(pk.f32, 1.0, 64))

    @program.instruction
    def some(x, *, first, last):
        """x[first] to x[last - 1] = 1."""
        with pk.warps(1):
            for part in pk.range(first, last):
                pk.store(x[part], pk.full(pk.f32, 1.0, 64))

    return program, one, some


def test_instructions_go_to_the_block_with_the_least_cost():
    program, one, _ = program_of_runs(3)
    for part, cost in enumerate([5, 1, 1, 1, 1, 3, 1]):
        program.add(one, part=part, cost=cost)
    program.add(one, part=7, block=0)
    program.add(one, part=8)
    assert [step.block for step in program.instructions] == [0, 1, 2, 1, 2, 1, 2, 0, 2]
    alike, one, _ = program_of_runs(4)
    for part in range(9):
        alike.add(one, part=part)
    assert [step.block for step in alike.instructions] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 11])
def test_runs_are_neighbours_of_nearly_equal_length(count):
    program, _, some = program_of_runs(4)
    program.add_runs(some, count)
    runs = [(step.block, *step.fields) for step in program.instructions]
    assert [unit for _, first, last in runs for unit in range(first, last)] == [*range(count)]
    assert len({block for block, *_ in runs}) == len(runs) == min(count, 4)
    lengths = [last - first for _, first, last in runs]
    assert not lengths or max(lengths) - min(lengths) <= 1
    if count:
        x = np.zeros((count + 1) * 64, np.float32)
        program.run(x=x)
        assert x.sum() == count * 64


def test_the_blocks_with_the_least_cost_take_the_longer_runs():
    program, one, some = program_of_runs(4)
    program.add(one, part=9, block=1, cost=3)
    program.add_runs(some, 6, cost=2)
    assert program.costs == [4, 5, 4, 2]
    program.add_runs(some, 1)
    steps = [(step.block, *step.fields) for step in program.instructions[5:]]
    assert steps == [(3, 0, 1)]
    assert program.costs == [4, 5, 4, 3]


def test_units_go_to_the_blocks_that_end_first_with_them():
    program, _, some = program_of_runs(4)
    program.add_runs(some, 6, cost=2, busy=[5, 1, 0, 2.5])
    assert [(step.block, *step.fields) for step in program.instructions] == [
        (1, 0, 2),
        (2, 2, 5),
        (3, 5, 6),
    ]
    # Of those that end at the same time the one with the least cost before is first.
    program.add_runs(some, 1, busy=[4, 0, 0, 0])
    assert program.costs == [0, 4, 6, 3]


def test_placements_are_checked():
    program, one, some = program_of_runs(2)
    for wrong in (-1, float("nan"), float("inf"), "1"):
        with pytest.raises(ArgumentError, match="`cost` must be a number of at least 0"):
            program.add(one, part=0, cost=wrong)
    for wrong in (-1, 1.5):
        with pytest.raises(ArgumentError, match="`count` must be an int"):
            program.add_runs(some, wrong)
    for wrong in ([0], [0, 1, 2]):
        with pytest.raises(ArgumentError, match="`busy` must be 2 numbers"):
            program.add_runs(some, 3, busy=wrong)
    with pytest.raises(ArgumentError, match="`first` is that of each run"):
        program.add_runs(some, 3, first=0)
    with pytest.raises(ArgumentError, match="takes part, not first, last"):
        program.add_runs(one, 3)
    with pytest.raises(ArgumentError, match="`cost` is the time that it takes"):

        @program.instruction
        def priced(x, *, cost):
            """It has a cost."""

    assert program.instructions == []
