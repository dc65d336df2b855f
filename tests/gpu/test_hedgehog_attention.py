"""Hedgehog attention on a GPU: random calls with all gradients, and long sequences in segments."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import hedgehog_attention, hedgehog_attention_backward  # noqa: E402
from tests.gradients_random import with_gradients  # noqa: E402
from tests.hedgehog_random import (  # noqa: E402
    HedgehogProblem,
    check,
    explicit,
    problem,
    tensors,
)

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


def test_gradients_of_segments_of_a_long_sequence_are_one():
    torch.manual_seed(0)
    p = HedgehogProblem(1, 4, 3000, 128, 128, 64, True, False, False)
    *words, factors, state = given = tensors(p, "cuda")
    weights = [torch.randn_like(words[2]), torch.randn_like(state)]
    _, _, *wanted = with_gradients(explicit, [x.double() for x in given], weights)
    how = {"factors": factors, "initial_state": state}
    kept = hedgehog_attention(*words, **how, return_rows=True)
    for segments in (1, 2, 7, 23, None):
        more = how | {"state_gradient": weights[1], "segments": segments}
        found = hedgehog_attention_backward(*words, *kept, weights[0], **more)
        again = hedgehog_attention_backward(*words, *kept, weights[0], **more)
        for i, (x, y, z) in enumerate(zip(found, wanted, again, strict=True)):
            assert torch.equal(x, z), (segments, i)
            assert (x - y).abs().max() <= 2**-6 * y.abs().max(), (segments, i)
