"""Operators inside the transforms of torch.func."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import linear, matmul, op  # noqa: E402
from tests.torch.operators import BF16, whole  # noqa: E402
from tests.torch.test_op import add_rows, exact, scale_rows, sums_of_rows, x_and_scale  # noqa: E402


def loss(call):
    return lambda x, scale: call(x, scale).square().sum()


def of_one_row(call):
    return lambda x, scale: call(x[None], scale[None])


TRANSFORMS = {
    "grad": lambda call: torch.func.grad(loss(call), (0, 1)),
    "vjp": lambda call: lambda x, s: torch.func.vjp(call, x, s)[1](x),
    "jacrev": lambda call: torch.func.jacrev(call, (0, 1)),
    "grad of grad": lambda call: torch.func.grad(
        lambda x, s: torch.func.grad(loss(call))(x, s).sum(), (0, 1)
    ),
    "vmap": lambda call: torch.vmap(of_one_row(call)),
    "vmap of vmap": lambda call: (
        lambda x, s: torch.vmap(torch.vmap(of_one_row(call)), in_dims=(2, None))(
            torch.stack([x, x + 1], 2), s
        )
    ),
    "vmap of grad": lambda call: torch.vmap(torch.func.grad(loss(of_one_row(call)), (0, 1))),
    "grad of vmap": lambda call: torch.func.grad(loss(torch.vmap(of_one_row(call))), (0, 1)),
    "functionalize": torch.func.functionalize,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_goes_through(name):
    given = x_and_scale()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = TRANSFORMS[name](scale_rows)(*given)
    expected = TRANSFORMS[name](exact)(*given)
    if isinstance(found, torch.Tensor):
        found, expected = (found,), (expected,)
    for f, e in zip(found, expected, strict=True):
        assert torch.allclose(f, e, rtol=1e-5, atol=1e-5)


def test_a_module_is_called_with_other_parameters():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(5))

        def forward(self, x):
            return scale_rows(x, self.scale)

    x, scale = x_and_scale()
    module = Scaled()

    def call(given):
        return torch.func.functional_call(module, given, (x,))

    assert torch.equal(call({"scale": scale}), exact(x, scale))
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled({"scale": scale}), exact(x, scale))
    found = torch.func.grad(lambda given: call(given).sum())({"scale": scale})
    assert torch.allclose(found["scale"], x.sum(1))
    layer = torch.nn.Linear(5, 7, bias=False, dtype=BF16)
    layer.forward = lambda x: linear(x, layer.weight)
    weight = whole(7, 5)
    found = torch.func.functional_call(layer, {"weight": weight}, (whole(3, 5, seed=1),))
    assert torch.equal(found, whole(3, 5, seed=1) @ weight.mT)


def test_several_results_and_keywords_go_through():
    a, b = whole(2, 3, 8), whole(4, 8, seed=1)
    product, sums = torch.vmap(lambda a: sums_of_rows(a, b, wide=True))(a)
    assert torch.equal(product, (a @ b.mT).float())
    assert torch.equal(sums, product.sum(2))

    def total(a):
        product, sums = sums_of_rows(a, b, wide=True)
        return product.sum() + 2 * sums.sum()

    assert torch.equal(torch.func.grad(total)(a[0]), 3 * b.sum(0).expand(3, 8))


def test_what_is_written_needs_the_axis_of_the_batch():
    x, scale = x_and_scale()
    batch, y = torch.stack([x, x + 1]), torch.zeros(2, *x.shape)
    torch.vmap(add_rows, in_dims=(0, None, 0), out_dims=None)(batch, scale, y)
    assert torch.equal(y[1], exact(x + 1, scale, 0.0))
    with pytest.raises(ArgumentError, match="all calls of the batch would write to one tensor"):
        torch.vmap(add_rows, in_dims=(0, None, None), out_dims=None)(batch, scale, y[0])
    a, out = whole(2, 3, 4), whole(3, 4)
    with pytest.raises(ArgumentError, match="all calls of the batch would write to one tensor"):
        torch.vmap(lambda a, b: matmul(a, b, out=out), (0, None))(a, whole(4, 4))


def test_an_empty_batch_is_refused():
    for call, given in ((matmul, (whole(0, 3, 4), whole(0, 4, 5))), (scale_rows, x_and_scale())):
        with pytest.raises(ArgumentError, match="the batch has the extent 0"):
            torch.vmap(call)(*(x[:0] for x in given))


def test_a_function_with_a_transform_that_takes_derivatives_is_not_compiled():
    x, scale = x_and_scale()
    torch._dynamo.reset()
    compiled = torch.compile(
        torch.func.grad(lambda x: scale_rows(x, scale).sum()), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(Exception, match="setup_context|functorch"):
        compiled(x)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_is_refused_in_a_sentence():
    x, scale = x_and_scale()
    with pytest.raises(ArgumentError, match="there is no derivative in forward mode") as e:
        torch.func.jvp(lambda x: scale_rows(x, scale), (x,), (x,))
    assert e.value.help == "torch.func.grad, vjp and jacrev work, and so does .backward()"


def test_an_operator_without_a_gradient_is_refused_in_a_sentence():
    @op("pykittens_tests::constant")
    def constant(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    x = torch.ones(3)
    with pytest.raises(ArgumentError, match="pykittens_tests::constant: there is no gradient"):
        torch.func.grad(lambda x: constant(x).sum())(x)
    found = torch.func.grad(lambda y: (constant(x) * y).sum())(x)
    assert torch.equal(found, x)


@pytest.mark.parametrize("call", [matmul, lambda a, b: scale_rows(a.float(), b[0].float())])
def test_vmap_is_compiled(call):
    a, b = whole(2, 4, 4), whole(2, 4, 4, seed=1)
    torch._dynamo.reset()
    compiled = torch.compile(torch.vmap(call), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b), torch.vmap(call)(a, b))
