"""A debug program says which instructions its groups were at when it stopped."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AssertError, DeadlockError, KernelError
from pykittens.mega import Program
from pykittens.runtime import report
from pykittens.targets.emit import emit
from tests.running import recorded


def stuck(steps: int = 5, dynamic: bool = False) -> tuple[Program, dict[str, np.ndarray]]:
    """A program in which an instruction whose field is 3 fills a ring that it never drains."""
    program = Program(blocks=2, dynamic=dynamic)

    @program.instruction
    def copy(x, y, *, part):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        with pk.producer():
            with ring.fill() as s:
                pk.load_async(s, x[part])
            if part == 3:
                for _ in range(2):
                    with ring.fill() as s:
                        pk.load_async(s, x[part])
        with pk.warps(1):
            with ring.drain() as s:
                v = pk.load(s)
            pk.assert_(part < 90, "the part is too large")
            pk.store(y[part], v)

    for part in range(steps):
        program.add(copy, part=part, block=None if dynamic else part % 2)
    return program, {"x": np.ones(64 * steps, np.float32), "y": np.zeros(64 * steps, np.float32)}


def stopped(program, tensors, text: str, block: int, place: int, numbers=(0, 1)) -> KernelError:
    """What the program tells if a thread of the first group stops at the site with a text; the others run."""
    schedule = program.scheduled(**tensors)
    made = recorded(program.kernel(), *program.arguments(schedule, **tensors))
    source = emit(made, "sm_90a", debug=True)
    site = next(i for i, s in enumerate(source.sites) if text in s.text)
    told = (*numbers, place, *(0,) * (6 - len(numbers)))
    standing = ((site + 1, *told),) * len(source.groups)
    stop = report.Stop(site, block, source.groups[0].first_warp * 32, told, standing)
    return program._told(report.error_of(stop, source, {}), schedule)


def test_a_wait_that_never_ends_names_the_instruction_with_its_fields():
    program, tensors = stuck()
    error = stopped(program, tensors, "ring.fill() at", block=1, place=1)
    assert isinstance(error, DeadlockError)
    assert set(error.operands) == {"producer", "warps"}
    for standing in error.operands.values():
        assert re.search(r"stage 0 to be free, phase 1, in copy\(part=3\)$", standing)


def test_an_assertion_that_fails_names_the_instruction_with_its_fields():
    program, tensors = stuck()
    error = stopped(program, tensors, "the part is too large", block=0, place=2, numbers=())
    assert isinstance(error, AssertError)
    assert error.message == "the part is too large, in copy(part=4)"


def test_the_emulator_stops_at_the_same_line():
    program, tensors = stuck()
    with pytest.raises(DeadlockError, match=r"ring.fill\(\) at .*test_debug.py"):
        program.debug(**tensors)


def test_a_program_that_is_right_runs():
    program, tensors = stuck(steps=3)
    program.debug(**tensors)
    assert (tensors["y"] == 1).all()
