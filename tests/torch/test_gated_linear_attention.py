"""Linear attention with a gate for each channel as an operator of PyTorch: gradients, compilers, errors."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import gated_linear_attention  # noqa: E402
from tests.linear_random import (  # noqa: E402
    LinearProblem,
    by_channels,
    check,
    of_channels,
    problem,
    tensors,
)
from tests.tiers import halved  # noqa: E402

PLAIN = LinearProblem(1, 2, 2, 70, 32, 32, "channel", 0.1, True, False, False, gates=2)


def given(**changed):
    torch.manual_seed(0)
    return tensors(replace(PLAIN, **changed), "cpu")


@pytest.mark.parametrize(("heads", "groups", "gates"), [(2, 2, 2), (4, 2, 2), (4, 1, 2)])
def test_gradients_are_those_of_the_chunk_form(heads, groups, gates):
    torch.manual_seed(0)
    check(replace(PLAIN, heads=heads, groups=groups, gates=gates), "cpu")


def test_gradients_of_packed_sequences():
    """Of heads that share, one of them empty, and one of several chunks."""
    torch.manual_seed(0)
    lengths = (17, 0, 130, 1)
    check(replace(PLAIN, heads=4, n=sum(lengths), lengths=lengths), "cpu")


def test_the_chunk_form_is_the_recurrence():
    q, k, v, decay, state = (x.double() for x in given(n=40))
    wanted, last = by_channels(q, k, v, decay, state)
    for i in range(40):
        state = decay[:, :, i, :, None].exp() * state + k[:, :, i, :, None] * v[:, :, i, None]
        one = (q[:, :, i, None] @ state)[:, :, 0] * q.shape[3] ** -0.5
        torch.testing.assert_close(one, wanted[:, :, i])
    torch.testing.assert_close(state, last)


def test_only_the_state_or_only_the_result_is_needed():
    *tensors, _ = given()
    for index in range(2):
        own = [x.clone().requires_grad_() for x in tensors]
        exact = [x.double().requires_grad_() for x in tensors]
        gated_linear_attention(*own, return_state=True)[index].float().sum().backward()
        by_channels(*exact, None)[index].sum().backward()
        for x, y in zip(own, exact, strict=True):
            assert x.grad.dtype == x.dtype
            wanted = torch.zeros_like(x) if y.grad is None else y.grad
            assert (x.grad - wanted).abs().max() <= 2**-6 * wanted.abs().max() + 1e-6


def test_a_gradient_has_the_dtype_of_its_gates():
    q, k, v, decay, _ = given(n=20)
    decay = decay.bfloat16().requires_grad_()
    gated_linear_attention(q, k, v, decay).sum().backward()
    assert decay.grad.dtype is torch.bfloat16


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_operator_is_what_pytorch_expects(is_packed):
    ends = torch.tensor([0, 20], dtype=torch.int32) if is_packed else None
    args = (*given(n=20), ends, 0.5, True)
    is_float = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in args]
    args = tuple(x.requires_grad_() if y else x for x, y in zip(args, is_float, strict=True))
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    operator = torch.ops.pykittens.gated_linear_attention.default
    torch.library.opcheck(operator, args, test_utils=tests)


def test_it_is_compiled_whole():
    *tensors, _ = given(n=20)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(*args):
        return gated_linear_attention(*args, scale=1.0) * 2

    own, compiled = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    (gated_linear_attention(*own, scale=1.0) * 2).sum().backward()
    layer(*compiled).sum().backward()
    for x, y in zip(own, compiled, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    q, k, v, decay, _ = given(n=20)
    for words, message in (
        ((q.float(), k, v, decay), "`k` must have the dtype of `q`|`q` must be bf16 or f16"),
        ((q, k, v, decay[..., 0]), "`decay` must have the shape"),
        ((q, k, v, decay[:, :1]), "1 heads of decay do not share 2 of q and k, or 2 of v"),
        ((q, k, v, decay.double()), "`decay` must be bf16, f16 or f32"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_linear_attention(*words)


@pytest.mark.parametrize("seed", halved(range(6)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    check(of_channels(draw, problem(draw, longest=129, most=2)), "cpu")
