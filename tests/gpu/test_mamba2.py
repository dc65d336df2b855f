"""Mamba-2 on a GPU: random calls with all gradients, beside those of all pairs of positions in float64."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from tests.mamba2_random import check, problem  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(8))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(8):
        check(problem(draw), "cuda")
