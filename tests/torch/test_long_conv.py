"""Long convolutions as an operator of PyTorch: gradients, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import long_conv  # noqa: E402
from tests.long_conv_random import check, problem  # noqa: E402


def given(batch=2, channels=2, n=70, taps=20):
    torch.manual_seed(0)
    u, before, after = (torch.randn(batch, channels, n).bfloat16() for _ in range(3))
    return [u, torch.randn(channels, taps), before, after]


@pytest.mark.parametrize("seed", range(6))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(3):
        check(problem(draw, longest=5000, most=2**14), "cpu")


def test_an_operator_is_what_pytorch_expects():
    args = tuple(x.requires_grad_() for x in given())
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    operator = torch.ops.pykittens.long_conv.default
    torch.library.opcheck(operator, (*args, True), test_utils=tests)
    torch.library.opcheck(operator, (*args[:2], None, None, False), test_utils=tests)


def test_it_is_compiled_whole():
    u, filters, before, _ = given()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(u, filters, before):
        return long_conv(u, filters, gate_before=before) * 2

    own, compiled = ([x.clone().requires_grad_() for x in (u, filters, before)] for _ in range(2))
    (long_conv(own[0], own[1], gate_before=own[2]) * 2).sum().backward()
    layer(*compiled).sum().backward()
    for x, y in zip(own, compiled, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    u, filters, before, _ = given()
    for words, message in (
        ((u.float(), filters), "`u` must be bf16 or f16"),
        ((u, filters.bfloat16()), "`filter` must be f32"),
        ((u, torch.zeros(2, 71)), "`filter` must have from 1 to 70 taps"),
        ((u[:, :, :0], filters), "n must be from 1 to 1048576, not 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            long_conv(*words)
    with pytest.raises(ArgumentError, match="`gate_before` must have the shape"):
        long_conv(u, filters, gate_before=before[:1])
