"""Hedgehog attention as an operator of PyTorch: gradients beside those of its explicit form, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import hedgehog_attention  # noqa: E402
from tests.hedgehog_random import (  # noqa: E402
    HedgehogProblem,
    check,
    explicit,
    problem,
    tensors,
)
from tests.tiers import halved  # noqa: E402

SMALL = HedgehogProblem(1, 2, 150, 16, 24, 8, True, False, False)


@pytest.mark.parametrize("seed", halved(range(6)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(2):
        check(problem(draw, longest=200, most=2), "cpu")


@pytest.mark.parametrize("n", [1, 63, 64, 300])
def test_gradients_of_few_and_of_many_positions(n):
    torch.manual_seed(0)
    check(HedgehogProblem(2, 2, n, 16, 24, 8, True, True, False), "cpu")


def test_packed_sequences():
    torch.manual_seed(0)
    how = {"lengths": (30, 0, 165, 17), "first": 5}
    check(HedgehogProblem(1, 2, 220, 16, 24, 8, True, False, False, **how), "cpu")


def test_an_operator_is_what_pytorch_expects():
    torch.manual_seed(0)
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    leaves = [x.requires_grad_() for x in tensors(SMALL, "cpu")]
    op = torch.ops.pykittens.hedgehog_attention.default
    ends = torch.tensor([0, 150], dtype=torch.int32)
    for args in ((*leaves, ends, 0.5, True), (*leaves[:5], None, None, None, None, False)):
        torch.library.opcheck(op, args, test_utils=tests)


def test_only_what_needs_a_gradient_has_one():
    torch.manual_seed(0)
    q, k, v, query_map, key_map, *_ = tensors(SMALL, "cpu")
    query_map.requires_grad_()
    hedgehog_attention(q, k, v, query_map, key_map).sum().backward()
    assert query_map.grad.isfinite().all()
    assert q.grad is None


def test_it_is_compiled_whole():
    torch.manual_seed(0)
    given = tensors(SMALL, "cpu")

    def layer(q, k, v, query_map, key_map, factors, state):
        how = {"factors": factors, "initial_state": state}
        return hedgehog_attention(q, k, v, query_map, key_map, **how) * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    own, others = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    out = compiled(*own)
    wanted = explicit(*(x.double() for x in given))[0] * 2
    assert (out - wanted).abs().max() <= 2**-6 * wanted.abs().max()
    out.sum().backward()
    layer(*others).sum().backward()
    for x, y in zip(own, others, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    q, k, v, query_map, key_map, *_ = tensors(SMALL, "cpu")
    for words, message in (
        ((q, k, v, query_map[:, :8], key_map), "`query_map` must have the shape"),
        ((q.float(), k, v, query_map, key_map), "`k` must have the dtype of|`q` must be bf16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hedgehog_attention(*words)
