"""The gated delta rule on a GPU: random calls with all gradients, long sequences in segments, and steps."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.delta import gated_delta_rule as apply  # noqa: E402
from pykittens.kernels.delta import gated_delta_rule_step  # noqa: E402
from pykittens.torch import gated_delta_rule  # noqa: E402
from tests.delta_random import check, problem, recurrence, tensors  # noqa: E402
from tests.linear_random import LinearProblem  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(12):
        check(problem(draw), "cuda", gated_delta_rule)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("decay", ["none", "head", "position"])
def test_segments_of_a_long_sequence_are_one(decay, alike):
    """Also with keys that are all equal, whose values replace one another."""
    p = LinearProblem(1, 4, 4, 3000, 128, 128, decay, 0.1, True, False, False)
    torch.manual_seed(0)
    *given, state = tensors(p, "cuda")
    if alike:
        given[1][...] = given[1][:, :, :1]
    wanted = recurrence(*(x if x is None else x.double() for x in (*given, state)))
    for segments in (1, 2, 7, 16, None):
        found = apply(*given, initial_state=state, return_state=True, segments=segments)
        for x, y in zip(found, wanted, strict=True):
            assert (x - y).abs().max() <= 2**-5 * y.abs().max()


@pytest.mark.parametrize(("d", "width"), [(16, 48), (64, 64), (128, 256), (256, 256)])
def test_many_heads(d, width):
    """So that two warpgroups, or two blocks, share a multiprocessor, and blocks take several heads."""
    p = LinearProblem(4, 80, 20, 300, d, width, "position", 0.1, True, True, False)
    torch.manual_seed(0)
    check(p, "cuda", gated_delta_rule)


def test_steps_on_the_gpu():
    p = LinearProblem(8, 6, 2, 16, 128, 192, "position", 0.1, True, True, False)
    q, k, v, beta, log, state = tensors(p, "cuda")
    wanted, last = recurrence(*(x.double() for x in (q, k, v, beta, log, state)))
    for i in range(p.n):
        some = (x[:, :, i] for x in (q, k, v, beta))
        out = gated_delta_rule_step(*some, state, log[:, :, i])
        assert (out - wanted[:, :, i]).abs().max() <= 2**-7 * wanted.abs().max()
    assert (state - last).abs().max() <= 1e-5 * last.abs().max()
