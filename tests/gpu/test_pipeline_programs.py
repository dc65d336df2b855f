"""Random pipeline programs give on a GPU what they give in the emulator, as nearly as rounding allows."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

from pykittens.runtime import driver
from tests.gpu.test_cases import on_gpu, on_host
from tests.pipeline_parts import Program
from tests.pipeline_programs import arguments, larger, seeded
from tests.pipeline_reference import exact
from tests.pipeline_source import kernel_of, source
from tests.tolerance import assert_within
from tools.soak.programs import pipeline_fault

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

NUMBERS = range(60)
PERSISTENT = [n for n in NUMBERS if seeded(n).order is not None][:20]
MOST_PROCESSES = 8


def compile_programs(numbers: Sequence[int], arch: str) -> None:
    """Compile programs into the cache, so that the tests find them there."""
    for number in numbers:
        program = seeded(number)
        try:
            kernel_of(program).compile(*arguments(program).values(), arch=arch)
        except Exception:  # the test of the program tells it
            continue


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """All programs, compiled before the first is run."""
    workers = min(max((os.cpu_count() or 2) - 1, 1), MOST_PROCESSES)
    parts = [NUMBERS[i::workers] for i in range(workers)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(compile_programs, parts, [driver.device(0).arch] * workers))


def run(program: Program) -> np.ndarray:
    """The output of a program on the GPU."""
    found = arguments(program)
    values: list[Any] = [on_gpu(a) if isinstance(a, np.ndarray) else a for a in found.values()]
    kernel_of(program)(*values)
    torch.cuda.synchronize()
    return on_host(values[list(found).index("out")], found["out"])


@pytest.mark.parametrize("number", NUMBERS)
def test_a_random_pipeline_program_is_right_on_the_gpu(number):
    program = seeded(number)
    assert pipeline_fault(program, on_gpu=True) == "", source(program)


@pytest.mark.parametrize("number", PERSISTENT)
def test_a_program_of_more_tasks_than_blocks_is_right_on_the_gpu(number):
    program = larger(seeded(number), 20, 40)
    known = exact(program, arguments(program))
    assert_within(run(program), known.value, known.error)


@pytest.mark.parametrize("number", NUMBERS[::6])
def test_a_random_pipeline_program_gives_the_same_bits_again(number):
    first = run(seeded(number))
    for _ in range(20):
        assert np.array_equal(run(seeded(number)).view(np.uint8), first.view(np.uint8))
