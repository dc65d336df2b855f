"""pykittens.torch.linear against float64 and against torch.nn.functional."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import linear  # noqa: E402
from pykittens.torch.operands import name_of  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_batched_gradients,
    assert_compiles,
    assert_exact_gradients,
    assert_exact_second_gradients,
    assert_fake_agrees,
    assert_operator,
    assert_signs,
    gradients,
    negated,
    normal,
    whole,
)

# An activation in PyTorch, and a bound on its derivative.
ACTIVATIONS = {
    "": (lambda x: x, 1.0),
    "relu": (functional.relu, 1.0),
    "gelu": (functional.gelu, 1.13),
    "silu": (functional.silu, 1.1),
}
LEADS = [(), (4,), (2, 3)]


def layer(x, weight, bias=None, activation="", residual=None):
    """linear in PyTorch."""
    found = ACTIVATIONS[activation][0](functional.linear(x, weight, bias))
    return found if residual is None else found + residual


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_all_is_rounded_once(activation, dtype):
    x, weight, bias = normal(20, 33, dtype=dtype), normal(17, 33, dtype=dtype), normal(17)
    residual = normal(20, 17, dtype=dtype, seed=1)
    found = linear(x, weight, bias, activation, residual)
    function, slope = ACTIVATIONS[activation]
    sums = Bounded.of(x) @ Bounded.of(weight.mT) + Bounded.of(bias)
    (sums.through(function, slope) + Bounded.of(residual)).rounded(dtype).check(found)


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("activation", ["", "relu"])
def test_gradients_are_those_of_torch(activation, lead):
    given = whole(*lead, 9), whole(7, 9, seed=1), whole(7, seed=2), whole(*lead, 7, seed=3)
    assert_exact_gradients(
        lambda x, w, b, r: linear(x, w, b, activation, r),
        lambda x, w, b, r: layer(x, w, b, activation, r),
        *given,
    )
    assert_exact_gradients(linear, layer, *given[:2])
    assert_exact_gradients(linear, layer, *given[:3])


@pytest.mark.parametrize(
    ("activation", "second"), [("gelu", 0.8), ("silu", 0.5)], ids=["gelu", "silu"]
)
def test_an_activation_has_a_gradient_within_its_bounds(activation, second):
    x, weight, bias = normal(20, 33), normal(17, 33, seed=1), normal(17, seed=2)
    found, *of = gradients(lambda *given: linear(*given, activation), x, weight, bias)
    function, slope = ACTIVATIONS[activation]
    sums = (Bounded.of(x) @ Bounded.of(weight.mT) + Bounded.of(bias)).rounded(BF16)
    sums.through(function, slope).rounded(BF16).check(found)
    inner = (Bounded.of(whole(*found.shape, seed=99)) * derivative(function, sums, second)).rounded(
        BF16
    )
    (inner @ Bounded.of(weight)).rounded(BF16).check(of[0])
    (inner.mT @ Bounded.of(x)).rounded(BF16).check(of[1])
    ones = Bounded.of(torch.ones(1, 20))
    (ones @ inner).rounded(BF16).check(of[2][None])


def derivative(function, x, slope):
    """function'(x), whose own derivative `slope` bounds."""

    def first(exact):
        leaf = exact.clone().requires_grad_()
        return torch.autograd.grad(function(leaf).sum(), leaf)[0]

    return x.through(first, slope)


def test_a_wide_bias_and_residual_keep_their_precision():
    x, weight = whole(5, 9), whole(7, 9, seed=1)
    bias, residual = torch.full((7,), 2.0**-10), normal(5, 7, dtype=torch.float32)
    found = linear(x, weight, bias, residual=residual)
    exact = x.double() @ weight.double().mT + bias.double() + residual.double()
    assert found.dtype == BF16
    Bounded(exact, 2.0**-22 * (1 + exact.abs())).rounded(BF16).check(found)
    leaves = [x, weight, *(t.clone().requires_grad_() for t in (bias, residual))]
    result = linear(*leaves[:3], residual=leaves[3])
    result.sum().backward()
    assert [t.grad.dtype for t in leaves[2:]] == [torch.float32, torch.float32]
    assert torch.equal(leaves[2].grad, torch.full((7,), 5.0))
    assert torch.equal(leaves[3].grad, torch.ones(5, 7))


def test_only_what_gradients_need_is_kept():
    x, weight, bias = whole(5, 9), whole(7, 9, seed=1), whole(7).requires_grad_()
    result = linear(x, weight, bias)
    assert [t for t in result.grad_fn.saved_tensors if t is not None] == []
    result.sum().backward()
    assert torch.equal(bias.grad, torch.full((7,), 5.0, dtype=BF16))


@pytest.mark.parametrize("activation", ["", "relu"])
def test_a_gradient_has_a_gradient(activation):
    assert_exact_second_gradients(
        lambda x, w: linear(x, w, None, activation),
        lambda x, w: layer(x, w, None, activation),
        *(whole(3, 5).sign(), whole(7, 5, seed=1).sign()),
    )


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_a_fake_result_is_like_a_real_one(lead):
    assert_fake_agrees(linear, normal(*lead, 9), normal(7, 9), normal(7), "gelu", normal(*lead, 7))


@pytest.mark.parametrize("activation", ["", "relu"])
def test_a_compiled_layer_is_the_same(activation):
    def compiled(x, weight, bias, residual):
        return linear(x, weight, bias, activation, residual)

    given = whole(2, 3, 9), whole(7, 9, seed=1), whole(7, seed=2), whole(2, 3, 7, seed=3)
    assert_compiles(compiled, *given)


def test_the_operator_passes_the_checks_of_torch():
    given = normal(6, 9), normal(7, 9), normal(7), normal(6, 7)
    for activation in ("", "silu"):
        leaves = [t.clone().requires_grad_() for t in given]
        assert_operator(torch.ops.pykittens.linear.default, *leaves, activation)
    assert_operator(torch.ops.pykittens.linear.default, *given[:2])


def test_what_has_no_kernel_falls_back_to_torch():
    x, weight, bias, residual = (
        normal(*shape, dtype=torch.float32) for shape in ((5, 9), (7, 9), (7,), (5, 7))
    )
    for activation in ACTIVATIONS:
        found = linear(x, weight, bias, activation, residual, fallback=True)
        assert torch.equal(found, layer(x, weight, bias, activation, residual))


def test_autocast_converts_all_but_the_residual():
    x, weight = whole(5, 9, dtype=torch.float32), whole(7, 9, dtype=torch.float32, seed=1)
    residual = torch.full((5, 7), 4097.0)  # f16 would round it before it is added
    product = x @ weight.mT
    with torch.autocast("cpu", dtype=F16):
        found = linear(x, weight.requires_grad_(), residual=residual)
    assert found.dtype == F16
    assert torch.equal(found, (product + residual).to(F16))
    assert not torch.equal(found, product.to(F16) + residual.to(F16))
    found.sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.equal(weight.grad, x.sum(0).expand(7, 9))


@pytest.mark.parametrize(
    ("lead", "n", "k"), [((5,), 0, 9), ((2, 3), 0, 9), ((5,), 7, 0), ((2, 0), 7, 9)]
)
@pytest.mark.parametrize("activation", ["", "gelu"])
def test_an_empty_layer_has_gradients(lead, n, k, activation):
    given = whole(*lead, k), whole(n, k), whole(n), whole(*lead, n)
    found = gradients(lambda x, w, b, r: linear(x, w, b, activation, r), *given)
    expected = gradients(lambda x, w, b, r: layer(x, w, b, activation, r), *given)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        assert torch.allclose(
            f.float(), e.float(), rtol=2**-6
        )  # PyTorch rounds the activation alone, too


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_many_gradients_at_once_are_those_one_by_one(activation):
    given = whole(5, 9), whole(7, 9, seed=1), whole(7, seed=2), whole(5, 7, seed=3)
    assert_batched_gradients(lambda x, w, b, r: linear(x, w, b, activation, r), *given)


def test_a_view_that_negates_its_memory_counts_as_it_says():
    given = whole(5, 9), whole(7, 9, seed=1), negated(7, seed=2), negated(5, 7, seed=3)
    assert_signs(lambda x, w, b, r: linear(x, w, b, residual=r), *given)
    assert_signs(linear, negated(5, 9), negated(7, 9, seed=1))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float8_e4m3fn, torch.float64])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_what_is_added_is_a_float_whether_a_gradient_is_asked_for_or_not(dtype, gradient, direct):
    x, weight = whole(5, 9).requires_grad_(gradient), whole(7, 9)
    layer = linear if direct else torch.ops.pykittens.linear
    for name, shape in (("bias", (7,)), ("residual", (5, 7))):
        with pytest.raises(ArgumentError) as fault:
            layer(x, weight, **{name: torch.ones(shape).to(dtype)})
        assert (
            fault.value.message
            == f"linear: `{name}` must be bf16, f16 or f32, not {name_of(dtype)}"
        )
