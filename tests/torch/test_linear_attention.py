"""Linear attention as an operator of PyTorch: gradients beside those of the recurrence, compilers, errors."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import linear_attention  # noqa: E402
from tests.linear_random import check, problem  # noqa: E402
from tests.tiers import halved  # noqa: E402

ENDS = torch.tensor([0, 20], dtype=torch.int32)


def given(heads=2, groups=2, n=70, d=32, width=32, of_decay="position"):
    torch.manual_seed(0)
    shapes = (1, groups, n, d), (1, groups, n, d), (1, heads, n, width)
    q, k, v = (torch.randn(s).bfloat16() for s in shapes)
    shape = (1, heads, n) if of_decay == "position" else (heads,)
    return [q, k, v, -0.1 * torch.rand(shape), torch.randn(1, heads, d, width)]


def recurrence(q, k, v, decay, state, scale=None):
    """The same in float64, position by position."""
    q, k, v, decay, state = (x.double() for x in (q, k, v, decay, state))
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    decay = decay[None, :, None].expand(v.shape[:3]) if decay.dim() == 1 else decay
    found = []
    for i in range(v.shape[2]):
        added = k[:, :, i, :, None] * v[:, :, i, None, :]
        state = decay[:, :, i, None, None].exp() * state + added
        found.append((q[:, :, i, None, :] @ state)[:, :, 0])
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return scale * torch.stack(found, dim=2), state


@pytest.mark.parametrize(("heads", "groups", "of_decay"), [(2, 2, "position"), (4, 2, "head")])
def test_gradients_are_those_of_the_recurrence(heads, groups, of_decay):
    tensors = given(heads, groups, of_decay=of_decay)
    own, exact = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    *words, before = own
    out, state = linear_attention(*words, initial_state=before, return_state=True)
    wanted = recurrence(*exact)
    weights = [torch.randn(x.shape) for x in (out, state)]
    for found in ((out, state), wanted):
        sum((x * w).sum() for x, w in zip(found, weights, strict=True)).backward()
    for found, other in zip((out, state), wanted, strict=True):
        assert (found - other).abs().max() <= 2**-6 * other.abs().max()
    for x, y in zip(own, exact, strict=True):
        assert x.grad.dtype == x.dtype
        assert (x.grad - y.grad).abs().max() <= 2**-5 * y.grad.abs().max()


def test_only_the_state_or_only_the_result_is_needed():
    tensors = given()
    for index in range(2):
        q, k, v, decay, _ = own = [x.clone().requires_grad_() for x in tensors]
        exact = [x.clone().requires_grad_() for x in tensors]
        exact[4] = torch.zeros_like(tensors[4])
        linear_attention(q, k, v, decay, return_state=True)[index].float().sum().backward()
        recurrence(*exact)[index].sum().backward()
        for x, y in zip(own[:4], exact[:4], strict=True):
            wanted = torch.zeros_like(x) if y.grad is None else y.grad
            assert (x.grad - wanted).abs().max() <= 2**-5 * wanted.abs().max() + 1e-6


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_operator_is_what_pytorch_expects(is_packed):
    leaves = [x.requires_grad_() for x in given(n=20)]
    args = (*leaves, ENDS if is_packed else None, 0.5, True)
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    torch.library.opcheck(torch.ops.pykittens.linear_attention.default, args, test_utils=tests)


@pytest.mark.parametrize("ends", [None, ENDS, torch.tensor([0, 3, 9, 20], dtype=torch.int32)])
def test_it_is_compiled_whole(ends):
    q, k, v, decay, _ = given(n=20)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(q, k, v, decay):
        return linear_attention(q, k, v, decay, scale=1.0, ends=ends) * 2

    own, compiled = ([x.clone().requires_grad_() for x in (q, k, v, decay)] for _ in range(2))
    (linear_attention(*own, scale=1.0, ends=ends) * 2).sum().backward()
    layer(*compiled).sum().backward()
    for x, y in zip(own, compiled, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_what_does_not_fit_is_refused():
    q, k, v, decay, _ = given(n=20)
    for words, message in (
        ((q.float(), k, v), "`k` must have the dtype of `q`|`q` must be bf16 or f16"),
        ((q, k, v, decay[:, :1]), "`decay` must have the shape"),
        ((q[:, :, :0], k[:, :, :0], v[:, :, :0]), "n must be at least 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            linear_attention(*words)


@pytest.mark.parametrize("seed", halved(range(6)))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(3):
        check(problem(draw, longest=200, most=2), "cpu")
