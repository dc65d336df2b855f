"""A scale of 0: results are 0 or sums of values, and gradients those of states, which nothing is divided by."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import (  # noqa: E402
    based_attention_backward,
    gated_linear_attention_backward,
    linear_attention_backward,
)
from tests.based_random import features  # noqa: E402
from tests.linear_random import by_channels, explicit  # noqa: E402

SIZES = {"d": 24, "width": 40}


def given(d, width, n=200, heads=2):
    """q, k, v, the gradient of the result, a state, and that of the state after the last position."""
    torch.manual_seed(0)
    q, k, v, gradient = (torch.randn(1, heads, n, s).bfloat16() for s in (d, d, width, width))
    return q, k, v, gradient, *torch.randn(2, 1, heads, d, width)


def compare(found, leaves, wanted):
    """Some roundings of the largest; all is 0 that has no gradient."""
    for x, leaf, y in zip(found, leaves, wanted, strict=True):
        y = torch.zeros_like(leaf) if y is None else y
        assert x.isfinite().all()
        assert (x - y).abs().max() <= 2**-6 * y.abs().max()


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("is_gated", [False, True])
def test_gradients_are_those_of_the_state(is_gated, segments):
    q, k, v, gradient, state, of_state = given(**SIZES)
    decay = -0.1 * torch.rand(1, 2, 200, *((24,) if is_gated else ()))
    leaves = [x.double().requires_grad_() for x in (q, k, v, decay, state)]
    _, after = (by_channels if is_gated else explicit)(*leaves)
    wanted = torch.autograd.grad(after, leaves, of_state.double(), allow_unused=True)
    function = gated_linear_attention_backward if is_gated else linear_attention_backward
    states = {"initial_state": state, "state_gradient": of_state}
    found = function(q, k, v, gradient, decay, scale=0.0, **states, segments=segments)
    compare(found, leaves, wanted)


@pytest.mark.parametrize("segments", [1, 2])
def test_weights_of_based_are_1(segments):
    q, k, v, gradient, *_ = given(8, 40)
    state, of_state = torch.randn(2, 1, 2, 45, 40)
    leaves = [x.double().requires_grad_() for x in (q, k, v, state)]
    out = leaves[2].cumsum(dim=2) + leaves[3][:, :, -1:]
    after = features(leaves[1]).mT @ leaves[2] + leaves[3]
    given_back = [gradient.double(), of_state.double()]
    wanted = torch.autograd.grad((out, after), leaves, given_back, allow_unused=True)
    states = {"initial_state": state, "state_gradient": of_state}
    found = based_attention_backward(q, k, v, gradient, scale=0.0, **states, segments=segments)
    compare(found, leaves, wanted)
