"""Programs on a GPU compute what their instructions do one after another, on any blocks and in any order of these."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mega.programs import LENGTH, added, cells, random_steps, sequential

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.gpu

INPUTS = 4


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_equal_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(1, 133))
    steps = random_steps(rng, INPUTS, int(rng.integers(1, 400)), blocks)
    x = np.full((INPUTS + len(steps), LENGTH), np.nan, np.float32)
    x[:INPUTS] = rng.integers(-4, 5, (INPUTS, LENGTH))
    with np.errstate(over="ignore"):
        wanted = sequential(steps, x)
    program = added(cells(blocks), steps)
    y = torch.from_numpy(x).cuda()
    schedule = program.scheduled(x=y)
    arguments, kernel = program.arguments(schedule, x=y), program.kernel()
    for _ in range(50):
        y[INPUTS:] = torch.nan
        kernel(*arguments)
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)
