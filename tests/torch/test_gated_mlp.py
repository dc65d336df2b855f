"""pykittens.torch.gated_mlp against float64 and against torch.nn.functional."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from pykittens.torch import gated_mlp  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_batched_gradients,
    assert_compiles,
    assert_exact_gradients,
    assert_fake_agrees,
    assert_operator,
    assert_signs,
    gradients,
    negated,
    normal,
    whole,
)
from tests.torch.test_linear import ACTIVATIONS, derivative  # noqa: E402


def layer(x, w1, w3, w2, activation="silu"):
    """gated_mlp in PyTorch."""
    hidden = ACTIVATIONS[activation][0](functional.linear(x, w1)) * functional.linear(x, w3)
    return functional.linear(hidden, w2)


def weights(dtype=BF16):
    """x, w1, w3 and w2, scaled so that no number is large."""
    x, w1, w3, w2 = normal(10, 33), normal(19, 33, seed=1), normal(19, 33, seed=2), normal(21, 19)
    return x.to(dtype), (w1 / 6).to(dtype), (w3 / 6).to(dtype), w2.to(dtype)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_hidden_layer_is_rounded_once(activation, dtype):
    given = weights(dtype)
    x, w1, w3, w2 = map(Bounded.of, given)
    function, slope = ACTIVATIONS[activation]
    hidden = ((x @ w1.mT).through(function, slope) * (x @ w3.mT)).rounded(dtype)
    (hidden @ w2.mT).rounded(dtype).check(gated_mlp(*given, activation))


@pytest.mark.parametrize(
    ("activation", "second"), [("", 0.0), ("gelu", 0.8), ("silu", 0.5)], ids=["", "gelu", "silu"]
)
def test_gradients_lie_within_their_bounds(activation, second):
    given = weights()
    found, *of = gradients(lambda *t: gated_mlp(*t, activation), *given)
    function, slope = ACTIVATIONS[activation]
    x, w1, w3, w2 = map(Bounded.of, given)
    first, gate = (x @ w1.mT).rounded(BF16), (x @ w3.mT).rounded(BF16)
    act = first.through(function, slope).rounded(BF16)
    hidden = (act * gate).rounded(BF16)
    (hidden @ w2.mT).rounded(BF16).check(found)
    of_out = Bounded.of(whole(*found.shape, seed=99))
    (of_out.mT @ hidden).rounded(BF16).check(of[3])
    of_hidden = (of_out @ w2).rounded(BF16)
    of_gate = (of_hidden * act).rounded(BF16)
    of_first = (of_hidden * gate).rounded(BF16)
    of_first = (of_first * derivative(function, first, second)).rounded(BF16)
    (of_first.mT @ x).rounded(BF16).check(of[1])
    (of_gate.mT @ x).rounded(BF16).check(of[2])
    ((of_first @ w1).rounded(BF16) + of_gate @ w3).rounded(BF16).check(of[0])


def test_a_gradient_of_relu_is_that_of_torch():
    x, w1, w3 = whole(2, 3, 4).sign(), whole(5, 4, seed=1).sign(), whole(5, 4, seed=2).sign()
    assert_exact_gradients(
        lambda *t: gated_mlp(*t, "relu"),
        lambda *t: layer(*t, "relu"),
        *(x, w1, w3, whole(3, 5, seed=3).sign()),
    )


def test_a_vector_is_a_row():
    x, w1, w3, w2 = weights()
    assert torch.equal(gated_mlp(x[0], w1, w3, w2), gated_mlp(x[:1], w1, w3, w2)[0])


def test_only_the_gradients_that_are_asked_for_are_made():
    x, w1, w3, w2 = weights()
    w2.requires_grad_()
    gated_mlp(x, w1, w3, w2).sum().backward()
    assert w2.grad is not None
    assert [t.grad for t in (x, w1, w3)] == [None, None, None]


@pytest.mark.parametrize("activation", ["", "relu", "gelu", "silu"])
def test_a_gradient_has_a_gradient(activation):
    def second(function, *given):
        leaves = [t.clone().requires_grad_() for t in given]
        (first,) = torch.autograd.grad(
            function(*leaves, activation).sum(), leaves[0], create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), leaves)

    given = whole(4, 6), whole(5, 6, seed=1).sign(), whole(5, 6, seed=2).sign(), whole(3, 5).sign()
    exact = second(layer, *(t.double() for t in given))
    largest = second(layer, *(t.double().abs() for t in given))
    for found, e, size in zip(second(gated_mlp, *given), exact, largest, strict=True):
        assert e.abs().max() > 0
        # Some ten values are rounded one after another, and none of the sums is larger than that of magnitudes.
        assert ((found.double() - e).abs() <= 16 * 2**-8 * size.abs().max()).all()


def test_a_fake_result_is_like_a_real_one():
    assert_fake_agrees(gated_mlp, *weights(), "gelu")
    x, *rest = weights()
    assert_fake_agrees(gated_mlp, x[0], *rest)


def test_a_compiled_layer_is_the_same():
    assert_compiles(gated_mlp, *weights())


def test_the_operator_passes_the_checks_of_torch():
    assert_operator(torch.ops.pykittens.gated_mlp.default, *weights())
    leaves = [t.requires_grad_() for t in weights()]
    assert_operator(torch.ops.pykittens.gated_mlp.default, *leaves, "gelu")


def test_what_has_no_kernel_falls_back_to_torch():
    given = weights(torch.float32)
    assert torch.equal(gated_mlp(*given, fallback=True), layer(*given))


def test_autocast_converts_what_is_wider():
    given = weights(torch.float32)
    with torch.autocast("cpu", dtype=BF16):
        found = gated_mlp(*given)
    assert torch.equal(found, gated_mlp(*(t.to(BF16) for t in given)))


@pytest.mark.parametrize(("hidden", "n", "k"), [(0, 3, 4), (5, 0, 4), (5, 3, 0)])
@pytest.mark.parametrize("lead", [(2,), (2, 3), (0,)], ids=str)
def test_an_empty_layer_has_gradients(lead, hidden, n, k):
    shapes = [(*lead, k), (hidden, k), (hidden, k), (n, hidden)]
    result, *found = gradients(gated_mlp, *(whole(*s, seed=i) for i, s in enumerate(shapes)))
    assert result.shape == (*lead, n)
    assert [f.shape for f in found] == shapes
    assert not any(f.any() for f in (result, *found))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_many_gradients_at_once_are_those_one_by_one(activation):
    given = whole(4, 6), whole(5, 6, seed=1), whole(5, 6, seed=2), whole(3, 5, seed=3)
    assert_batched_gradients(lambda *t: gated_mlp(*t, activation), *given)


def test_a_view_that_negates_its_memory_counts_as_it_says():
    assert_signs(gated_mlp, *(negated(*s) for s in ((4, 6), (5, 6), (5, 6), (3, 5))))
