"""The check of random calls: what it lets pass, and what not."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tests.gradients_random import check_gradients, quotient  # noqa: E402

PROBLEM = SimpleNamespace(lengths=(2, 3), first=1)


def product(x, y, fault=lambda x, y: 0):
    """The products of rows, and what sums of a fault have as a gradient, too."""
    hidden = fault(x, y)
    return [(x * y).sum(dim=-1) + (hidden - hidden.detach() if torch.is_tensor(hidden) else 0)]


def check(given, ours, **how):
    weights = [torch.randn(given[0].shape[:-1]).to(given[0].dtype)]
    check_gradients(PROBLEM, given, weights, ours, product, bound=2.0**-6, **how)


def normal(*shape):
    return torch.randn(*shape).bfloat16()


def test_a_function_that_rounds_each_step_is_near():
    torch.manual_seed(0)
    for _ in range(10):
        check([normal(1, 2, 6, 40), normal(1, 2, 6, 40)], product)


@pytest.mark.parametrize("which", [0, 1])
def test_a_wrong_gradient_is_found(which):
    torch.manual_seed(0)
    wrong = functools.partial(product, fault=lambda *x: 0.1 * x[which].sum(dim=-1))
    with pytest.raises(AssertionError):
        check([normal(1, 2, 6, 40), normal(1, 2, 6, 40)], wrong)


def test_a_wrong_result_is_found():
    torch.manual_seed(0)
    with pytest.raises(AssertionError):
        check([normal(1, 2, 6, 40)] * 2, lambda x, y: [1.05 * (x * y).sum(dim=-1)])


def test_terms_that_cancel_leave_their_roundings():
    """1024 terms with a sum near 0: it is off by what other roundings of them move it, and not by ten times that."""
    torch.manual_seed(0)
    x = normal(1, 1, 1, 1024)
    y = torch.cat([x[..., 512:], -x[..., :512]], dim=-1)
    check([x, y], lambda x, y: [(x * y).sum(dim=-1) + 0.1])
    with pytest.raises(AssertionError):
        check([x, y], lambda x, y: [(x * y).sum(dim=-1) + 10])


def test_positions_outside_of_packed_sequences_are_not_looked_at():
    torch.manual_seed(0)
    outside = torch.tensor([1.0, 0, 0, 0, 0, 0, 1])[:, None]
    wrong = functools.partial(product, fault=lambda x, y: (x * outside).sum(dim=-1))
    given = [normal(1, 2, 7, 40), normal(1, 2, 7, 40)]
    with pytest.raises(AssertionError):
        check(given, wrong)
    check(given, wrong, along=1)


def test_a_quotient_is_rounded_before_the_gradient_of_what_divides():
    """Weights of one position: the gradient of the weight is 0 but for the rounding of the result."""
    torch.manual_seed(0)

    def exact(w, v):
        return [quotient(w * v, w)]

    def ours(w, v, error=1):
        out = (w * v / w).to(v.dtype)
        of_divisor = out.detach().to(v.dtype) * error  # as a kernel has it
        return [
            out.detach() + (v * w - of_divisor * w - (v * w - of_divisor * w).detach()) / w.detach()
        ]

    given = [1 + torch.rand(1, 2, 6, 1).bfloat16(), normal(1, 2, 6, 40)]
    weights = [normal(1, 2, 6, 40)]
    words = {"bound": 2.0**-6}
    check_gradients(PROBLEM, given, weights, ours, exact, **words)
    with pytest.raises(AssertionError):
        check_gradients(PROBLEM, given, weights, functools.partial(ours, error=1.1), exact, **words)
