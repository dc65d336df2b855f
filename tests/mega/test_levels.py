"""Programs by launches one after another: each has instructions that need nothing of one another."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykittens.errors import ArgumentError
from pykittens.mega.levels import levels
from pykittens.runtime import nvrtc
from tests.mega.isa_models import llama
from tests.mega.programs import LENGTH, added, cells, random_rewrites, random_steps, sequential

CELLS = 6


def touched(step):
    """The cells that an instruction reads, and the one that it writes."""
    read = {"add": {step.a, step.b}, "double": {step.a}, "total": {*range(step.a, step.a + 3)}}
    return read[step.kind], step.out


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 16), st.integers(1, 3), st.booleans())
def test_random_programs_compute_the_same_by_launches(seed, count, blocks, rewrites):
    rng = np.random.default_rng(seed)
    make = random_rewrites if rewrites else random_steps
    steps = make(rng, CELLS, count, blocks)
    program = added(cells(blocks), steps)
    x = rng.integers(-4, 5, (CELLS + count, LENGTH)).astype(np.float32)
    wanted, y = sequential(steps, x), x.copy()
    schedule = program.scheduled(x=y)
    for launch in program.launches(schedule, x=y):
        program.kernel()(*launch, apart=True)
    np.testing.assert_array_equal(y, wanted)

    found = levels(schedule)
    of = {number: level for level, some in enumerate(found) for number in some}
    assert sorted(of) == [*range(count)]
    for later in range(count):
        reads, writes = touched(steps[later])
        needs = [
            earlier
            for earlier in range(later)
            if touched(steps[earlier])[1] in {*reads, writes}
            or writes in touched(steps[earlier])[0]
        ]
        # As early as can be, and not earlier.
        assert of[later] == max((of[n] + 1 for n in needs), default=0)


def token_program():
    m, _ = llama(layers=2, parts=2)
    return m, m.tensors()


def test_a_token_is_the_same_by_launches_any_number_of_times():
    m, tensors = token_program()
    apart, same = ({n: x.copy() for n, x in tensors.items()} for _ in range(2))
    by_launches = m.machine.launcher(apart, apart=True)
    at_once = m.machine.launcher(same)
    for position in range(3):
        for launch in (by_launches, at_once):
            launch(position=position, token=7 + position)
        np.testing.assert_array_equal(apart["chosen"], same["chosen"])
        np.testing.assert_array_equal(apart["cache"], same["cache"])


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
def test_weights_are_loaded_before_the_launch_in_front_has_ended():
    m, tensors = token_program()
    program = m.machine.program
    used = {name: tensors[name] for name in program.used}
    launch = program.launches(program.scheduled(**used), **used)[1]
    compiled = program.kernel().compile(*launch, apart=True, arch="sm_90a")
    roles = str(compiled.source.text).split("// producer\n")[1]
    producer, storer = roles.split("// storer\n")
    branches = re.split(r"if \(\(t\d+ == \d+\)\)", producer)[1:]
    assert all("copy_box" in branch for branch in branches)
    # Only keys and values are of earlier launches.
    waits = [branch for branch in branches if "earlier_launches_wait();" in branch]
    assert len(waits) == 1
    assert "tensors_cache_map" in waits[0]
    assert "next_launch_start();" in producer
    storer, consumers = storer.split("// consumers\n")
    consumers, fetchers = consumers.split("// warps\n")
    for role in (storer, consumers, fetchers):
        assert "earlier_launches_wait();" in role


def test_blocks_that_take_instructions_have_no_launches_of_their_own():
    program = added(cells(2, dynamic=True), random_steps(np.random.default_rng(0), CELLS, 3, 2))
    x = np.zeros((CELLS + 3, LENGTH), np.float32)
    with pytest.raises(ArgumentError, match="must not be dynamic"):
        program.launches(program.scheduled(x=x), x=x)


@pytest.mark.parametrize("apart", [False, True])
def test_runs_that_follow_one_another_take_the_token_chosen_last(apart):
    m, tensors = token_program()
    same = {n: x.copy() for n, x in tensors.items()}
    run = m.machine.repeater(tensors, apart=apart, token=11, position=4)
    launch, token = m.machine.launcher(same), 11
    for position in range(4, 7):
        run()
        launch(token=token, position=position)
        token = int(same["chosen"][0])
        bits = (x["V"].view(np.int32) & ~15 for x in (tensors, same))
        np.testing.assert_array_equal(*bits)
        found = "chosen" if position % 2 == 0 else "token"
        assert tensors[found][0] == token
    np.testing.assert_array_equal(tensors["cache"], same["cache"])
    with pytest.raises(ArgumentError, match="`token` must be"):
        m.machine.repeater(tensors, token=-1, position=0)
