"""Causal convolutions on a GPU: random calls with all gradients, large ones in both layouts, and steps."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.torch import causal_conv  # noqa: E402
from tests.conv_random import ConvProblem, check, problem  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(25):
        check(problem(draw), "cuda")


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("lengths", [(), (1, 0, 5000, 3, 7380)])
def test_a_large_call(lengths, channels_first):
    torch.manual_seed(0)
    n, how = 12384, ("silu", True, True, lengths, False)
    check(ConvProblem(1, n, 1024, 4, torch.bfloat16, channels_first, *how), "cuda")


def test_many_packed_sequences():
    torch.manual_seed(0)
    lengths = tuple(random.Random(0).randint(0, 9) for _ in range(1500))
    p = ConvProblem(
        1, sum(lengths), 64, 4, torch.float32, False, "silu", True, True, lengths, False
    )
    check(p, "cuda")


@pytest.mark.parametrize("channels_first", [False, True])
def test_steps_in_a_graph(channels_first):
    """A state that goes from step to step."""
    torch.manual_seed(0)
    axis = 2 if channels_first else 1
    x, weight = torch.randn(4, 6, 6, device="cuda").bfloat16(), torch.randn(6, 4, device="cuda")
    weight, state = weight.bfloat16(), torch.zeros(4, 3, 6, device="cuda").bfloat16()
    how = {"activation": "silu", "channels_first": channels_first, "return_state": True}
    state = state.mT.contiguous() if channels_first else state
    one = torch.empty_like(x.narrow(axis, 0, 1).contiguous())
    causal_conv(one, weight, initial_state=state, **how)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, following = causal_conv(one, weight, initial_state=state, **how)
        state.copy_(following)
    state.zero_()
    wanted = causal_conv(x, weight, **how)[0]
    for i in range(6):
        one.copy_(x.narrow(axis, i, 1))
        graph.replay()
        assert torch.equal(out, wanted.narrow(axis, i, 1))


def test_equal_calls_have_equal_gradients():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 5000, 512, device="cuda"), torch.randn(512, 4, device="cuda")
    found = []
    for _ in range(3):
        leaves = [t.clone().requires_grad_() for t in (x, weight)]
        found.append(torch.autograd.grad(causal_conv(*leaves).square().sum(), leaves))
    assert all(torch.equal(a, b) for some in found[1:] for a, b in zip(some, found[0], strict=True))
