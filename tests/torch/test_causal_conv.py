"""Causal convolution as an operator of PyTorch: gradients beside those of conv1d, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import causal_conv  # noqa: E402
from tests.conv_random import check, problem  # noqa: E402
from tests.tiers import halved  # noqa: E402


def given(n=20, channels=9, taps=4, batch=2):
    torch.manual_seed(0)
    shapes = (batch, n, channels), (channels, taps), (channels,), (batch, taps - 1, channels)
    return [torch.randn(s).bfloat16() for s in shapes]


@pytest.mark.parametrize("seed", halved(range(8)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(2):
        check(problem(draw, longest=300, widest=64), "cpu")


def test_only_the_state_or_only_the_result_is_needed():
    for index, wanted in ((0, 4.0), (1, 0.0)):
        x, weight, _, _ = (t.clone() for t in given())
        weight = torch.ones_like(weight).requires_grad_()
        x.requires_grad_()
        causal_conv(x, weight, return_state=True)[index].float().sum().backward()
        assert torch.equal(x.grad[:, 0], torch.full_like(x.grad[:, 0], wanted))
        assert torch.equal(x.grad[:, -1], torch.ones_like(x.grad[:, -1]))


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_operator_is_what_pytorch_expects(is_packed):
    x, weight, bias, state = given(batch=1)
    ends = torch.tensor([0, 20], dtype=torch.int32) if is_packed else None
    leaves = [t.requires_grad_() for t in (x, weight, bias, state)]
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    op = torch.ops.pykittens.causal_conv.default
    for args in ((*leaves, ends, "silu", False, True), (x, weight)):
        torch.library.opcheck(op, args, test_utils=tests)


@pytest.mark.parametrize("channels_first", [False, True])
def test_it_is_compiled_whole(channels_first):
    x, weight, bias, _ = given()
    x = x.mT.contiguous() if channels_first else x

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x, weight, bias):
        return causal_conv(x, weight, bias, activation="silu", channels_first=channels_first) * 2

    own, compiled = ([t.clone().requires_grad_() for t in (x, weight, bias)] for _ in range(2))
    out = causal_conv(*own, activation="silu", channels_first=channels_first) * 2
    out.sum().backward()
    layer(*compiled).sum().backward()
    for a, b in zip(own, compiled, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_what_does_not_fit_is_refused():
    x, weight, bias, state = given()
    for words, how, message in (
        ((x.int(), weight), {}, "`x` must be bf16, f16 or f32"),
        ((x, weight[:, :1]), {}, "`weight` must have 2 to 8 taps, not 1"),
        ((x, weight, bias[:3]), {}, "`bias` must have the shape"),
        ((x, weight), {"initial_state": state[:1]}, "`initial_state` must have the shape"),
        ((x, weight), {"activation": "gelu"}, '`activation` must be "" or "silu"'),
    ):
        with pytest.raises(ArgumentError, match=message):
            causal_conv(*words, **how)
