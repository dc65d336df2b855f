"""Hedgehog attention on a GPU: random calls, and long sequences in segments."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import hedgehog_attention  # noqa: E402
from tests.hedgehog_random import HedgehogProblem, check, explicit, problem, tensors  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(20):
        check(problem(draw), "cuda")


def test_segments_of_a_long_sequence_are_one():
    torch.manual_seed(0)
    p = HedgehogProblem(1, 4, 6000, 128, 128, 64, True, False, False)
    *words, factors, state = given = tensors(p, "cuda")
    wanted = explicit(*(x.double() for x in given))
    for segments in (1, 2, 7, 32, None):
        how = {"factors": factors, "initial_state": state, "return_state": True}
        found = hedgehog_attention(*words, **how, segments=segments)
        for x, y in zip(found, wanted, strict=True):
            assert (x - y).abs().max() <= 2**-6 * y.abs().max()
