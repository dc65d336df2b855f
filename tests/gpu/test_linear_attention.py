"""Linear attention on a GPU: random calls with all gradients, long sequences in segments, and steps."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import linear_attention as attend  # noqa: E402
from pykittens.kernels.linear import linear_attention_step  # noqa: E402
from tests.linear_random import LinearProblem, check, explicit, problem, tensors  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(20):
        check(problem(draw), "cuda")


@pytest.mark.parametrize("decay", ["none", "head", "position"])
def test_segments_of_a_long_sequence_are_one(decay):
    p = LinearProblem(1, 4, 4, 6000, 128, 128, decay, 0.1, True, False, False)
    q, k, v, log, state = tensors(p, "cuda")
    found = [
        attend(q, k, v, log, initial_state=state, return_state=True, segments=n)
        for n in (1, 2, 7, 32, None)
    ]
    wanted = explicit(*(x if x is None else x.double() for x in (q, k, v, log, state)))
    for some in found:
        for x, y in zip(some, wanted, strict=True):
            assert (x - y).abs().max() <= 2**-6 * y.abs().max()


def test_steps_on_the_gpu():
    p = LinearProblem(8, 6, 2, 16, 128, 192, "position", 0.1, True, True, False)
    q, k, v, log, state = tensors(p, "cuda")
    wanted, last = explicit(*(x.double() for x in (q, k, v, log, state)))
    for i in range(p.n):
        some = (x[:, :, i] for x in (q, k, v))
        out = linear_attention_step(*some, state, log[:, :, i])
        assert (out - wanted[:, :, i]).abs().max() <= 2**-7 * wanted.abs().max()
    assert (state - last).abs().max() <= 1e-5 * last.abs().max()


def test_steps_in_a_graph():
    """A state that is replaced by each replay."""
    p = LinearProblem(4, 2, 2, 1, 64, 64, "position", 0.1, True, False, False)
    q, k, v, log, state = tensors(p, "cuda")
    q, k, v, log = (x[:, :, 0].contiguous() for x in (q, k, v, log))
    own, out = state.clone(), torch.empty_like(v)
    linear_attention_step(q, k, v, own.clone(), log, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        linear_attention_step(q, k, v, own, log, out)
    own.copy_(state)
    for _ in range(3):
        graph.replay()
        linear_attention_step(q, k, v, state, log)
    torch.testing.assert_close(own, state)
