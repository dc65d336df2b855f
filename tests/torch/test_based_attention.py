"""Based linear attention as an operator of PyTorch: gradients beside those of its explicit form, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import based_attention  # noqa: E402
from tests.based_random import BasedProblem, check, problem, tensors  # noqa: E402
from tests.tiers import halved  # noqa: E402

SMALL = BasedProblem(1, 2, 20, 8, 16, True, True, False, False)


@pytest.mark.parametrize("seed", halved(range(6)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(2):
        check(problem(draw, longest=200, most=2), "cpu")


@pytest.mark.parametrize("normalize", [False, True])
def test_packed_sequences(normalize):
    torch.manual_seed(0)
    how = {"lengths": (30, 0, 65, 17), "first": 5}
    check(BasedProblem(1, 2, 120, 8, 16, normalize, True, False, False, **how), "cpu")


@pytest.mark.parametrize("normalize", [False, True])
def test_an_operator_is_what_pytorch_expects(normalize):
    torch.manual_seed(0)
    q, k, v, state = tensors(SMALL, "cpu")
    state = state if normalize else state[..., :16].contiguous()
    leaves = [x.requires_grad_() for x in (q, k, v, state)]
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    op = torch.ops.pykittens.based_attention.default
    for ends in (None, torch.tensor([0, 20], dtype=torch.int32)):
        args = (*leaves, ends, 0.5, normalize, 1e-6, True)
        torch.library.opcheck(op, args, test_utils=tests)


def test_it_is_compiled_whole():
    torch.manual_seed(0)
    given = tensors(SMALL, "cpu")[:3]

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(q, k, v):
        return based_attention(q, k, v, normalize=True) * 2

    own, compiled = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    (based_attention(*own, normalize=True) * 2).sum().backward()
    layer(*compiled).sum().backward()
    for x, y in zip(own, compiled, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    q, k, v, state = tensors(SMALL, "cpu")
    for words, how, message in (
        ((q.float(), k, v), {}, "`k` must have the dtype of `q`|`q` must be bf16 or f16"),
        ((v.repeat(1, 1, 1, 3), v.repeat(1, 1, 1, 3), v), {}, "d must be from 1 to 32, not 48"),
        ((q, k, v), {"initial_state": state}, "`initial_state` must have the shape"),
    ):
        with pytest.raises(ArgumentError, match=message):
            based_attention(*words, **how)
