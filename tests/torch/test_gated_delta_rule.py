"""The gated delta rule as an operator of PyTorch: gradients beside those of the recurrence, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import gated_delta_rule  # noqa: E402
from tests.delta_random import check, problem, recurrence, tensors  # noqa: E402
from tests.linear_random import LinearProblem  # noqa: E402
from tests.tiers import halved  # noqa: E402


def given(heads=2, groups=2, n=70, of_decay="position"):
    torch.manual_seed(0)
    return tensors(
        LinearProblem(1, heads, groups, n, 32, 32, of_decay, 0.1, True, False, False), "cpu"
    )


@pytest.mark.parametrize(("heads", "groups", "of_decay"), [(2, 2, "position"), (4, 2, "head")])
def test_gradients_are_those_of_the_recurrence(heads, groups, of_decay):
    p = LinearProblem(1, heads, groups, 70, 32, 32, of_decay, 0.1, True, False, False)
    torch.manual_seed(0)
    check(p, "cpu", gated_delta_rule)


def test_only_the_state_or_only_the_result_is_needed():
    *tensors, _ = given()
    for index in range(2):
        own = [x.clone().requires_grad_() for x in tensors]
        exact = [x.double().requires_grad_() for x in tensors]
        gated_delta_rule(*own, return_state=True)[index].float().sum().backward()
        recurrence(*exact, None)[index].sum().backward()
        for x, y in zip(own, exact, strict=True):
            assert x.grad.dtype == x.dtype
            wanted = torch.zeros_like(x) if y.grad is None else y.grad
            assert (x.grad - wanted).abs().max() <= 2**-5 * wanted.abs().max() + 1e-6


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_operator_is_what_pytorch_expects(is_packed):
    ends = torch.tensor([0, 20], dtype=torch.int32) if is_packed else None
    args = (*(x.requires_grad_() for x in given(n=20)), ends, 0.5, True)
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    torch.library.opcheck(torch.ops.pykittens.gated_delta_rule.default, args, test_utils=tests)


def test_it_is_compiled_whole():
    *tensors, _ = given(n=20)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(*args):
        return gated_delta_rule(*args, scale=1.0) * 2

    own, compiled = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    (gated_delta_rule(*own, scale=1.0) * 2).sum().backward()
    layer(*compiled).sum().backward()
    for x, y in zip(own, compiled, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    q, k, v, beta, decay, _ = given(n=20)
    for words, message in (
        ((q.float(), k, v, beta), "`k` must have the dtype of `q`|`q` must be bf16 or f16"),
        ((q, k, v, beta[:, :1]), "`beta` must have the shape"),
        ((q, k, v, beta.half()), "`beta` must be f32 or bf16"),
        ((q, k, v, beta, decay[:, :1]), "`decay` must have the shape"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_delta_rule(*words)


@pytest.mark.parametrize("seed", halved(range(6)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(3):
        check(problem(draw, longest=129, most=2), "cpu", gated_delta_rule)
