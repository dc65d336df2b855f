"""Hedgehog attention as an operator of PyTorch: results, compilers, errors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import hedgehog_attention  # noqa: E402
from tests.hedgehog_random import HedgehogProblem, check, explicit, tensors  # noqa: E402

SMALL = HedgehogProblem(1, 2, 150, 16, 24, 8, True, False, False)


@pytest.mark.parametrize("n", [1, 64, 200])
def test_results_are_those_of_the_explicit_form(n):
    torch.manual_seed(0)
    check(HedgehogProblem(2, 2, n, 16, 24, 8, True, True, False), "cpu")


def test_an_operator_is_what_pytorch_expects():
    torch.manual_seed(0)
    tests = "test_schema", "test_faketensor"
    args = (*tensors(SMALL, "cpu"), 0.5, True)
    torch.library.opcheck(torch.ops.pykittens.hedgehog_attention.default, args, test_utils=tests)


def test_it_is_compiled_whole():
    torch.manual_seed(0)
    *given, state = tensors(SMALL, "cpu")
    layer = torch.compile(hedgehog_attention, fullgraph=True, backend="aot_eager")
    found = layer(*given[:5], factors=given[5], initial_state=state)
    wanted = explicit(*(x.double() for x in (*given, state)))[0]
    assert (found - wanted).abs().max() <= 2**-7 * wanted.abs().max()


def test_what_does_not_fit_is_refused():
    q, k, v, query_map, key_map, *_ = tensors(SMALL, "cpu")
    for words, message in (
        ((q, k, v, query_map[:, :8], key_map), "`query_map` must have the shape"),
        ((q.float(), k, v, query_map, key_map), "`k` must have the dtype of|`q` must be bf16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hedgehog_attention(*words)
    with pytest.raises(ArgumentError, match="there is no gradient"):
        hedgehog_attention(q.requires_grad_(), k, v, query_map, key_map)
