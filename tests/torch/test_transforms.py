"""Operators inside the transforms of torch.func."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.torch import gated_mlp, grouped_mm, linear, matmul, op, scaled_mm  # noqa: E402
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


COMPILED = ["grad", "vjp", "jacrev", "grad of grad", "vmap of grad", "grad of vmap"]


@pytest.mark.parametrize("name", COMPILED)
def test_a_transform_is_compiled_in_one_graph(name):
    given = x_and_scale()
    expected = TRANSFORMS[name](scale_rows)(*given)
    for dynamic in (False, True):
        torch._dynamo.reset()
        call = TRANSFORMS[name](scale_rows)
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        assert all(map(torch.equal, compiled(*given), expected))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, when it compiles
def test_inductor_compiles_a_transform():
    x, scale = x_and_scale()
    call = torch.func.grad(lambda x: scale_rows(x.relu(), scale).sum())
    torch._dynamo.reset()
    assert torch.equal(torch.compile(call, fullgraph=True)(x), call(x))


# Functions of one tensor, with whole numbers, and the same in PyTorch.
X, WEIGHT, GROUPS = whole(3, 5), whole(3, 5, seed=1), whole(2, 5, 3, seed=3)
DOWN, OFFS = whole(2, 3, seed=4), torch.tensor([1, 3], dtype=torch.int32)


def mlp(x):
    hidden = functional.linear(x, WEIGHT.to(x))
    return functional.linear(hidden.relu() * hidden, DOWN.to(x))


PRODUCTS = {
    "matmul": (lambda x: matmul(x, WEIGHT.mT), lambda x: x @ WEIGHT.to(x).mT),
    "square": (lambda x: matmul(x, x.mT), lambda x: x @ x.mT),
    "vector": (lambda x: matmul(x[0], WEIGHT.mT), lambda x: x[0] @ WEIGHT.to(x).mT),
    "linear": (
        lambda x: linear(x, WEIGHT, WEIGHT[:, 0], "relu", x[:, :1].expand(3, 3)),
        lambda x: functional.linear(x, WEIGHT.to(x), WEIGHT[:, 0].to(x)).relu() + x[:, :1],
    ),
    "gated_mlp": (lambda x: gated_mlp(x, WEIGHT, WEIGHT, DOWN, "relu"), mlp),
    "grouped_mm": (
        lambda x: grouped_mm(x, GROUPS, OFFS),
        lambda x: torch.cat([x[:1] @ GROUPS[0].to(x), x[1:] @ GROUPS[1].to(x)]),
    ),
}


def summed(call):
    return lambda x: call(x).sum()


def squared(call):
    return lambda x: call(x).square().sum()


def pulled_back(call, x):
    y, pull = torch.func.vjp(call, x)
    with torch.no_grad():  # after the end of the transform, which has wrapped what is kept
        return pull(torch.ones_like(y))[0]


def of_two(call):
    return lambda x: call(torch.stack([x, x + 1]))


DERIVATIVES = {
    "grad": lambda call: torch.func.grad(summed(call)),
    "vjp": lambda call: lambda x: pulled_back(call, x),
    "jacrev": torch.func.jacrev,
    "jacrev of jacrev": lambda call: torch.func.jacrev(torch.func.jacrev(call)),
    "grad of grad": lambda call: torch.func.grad(summed(torch.func.grad(squared(call)))),
    "vmap of grad": lambda call: of_two(torch.vmap(torch.func.grad(summed(call)))),
    "grad of vmap": lambda call: of_two(torch.func.grad(summed(torch.vmap(call)))),
    "grad inside of another": lambda call: torch.func.grad(
        lambda x: torch.func.grad(lambda z: (call(x * z[0, 0]) * z.sum()).sum())(x).sum()
    ),
}


@pytest.mark.parametrize("transform", DERIVATIVES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_has_derivatives_inside_transforms(name, transform):
    ours, theirs = PRODUCTS[name]
    found = DERIVATIVES[transform](ours)(X)
    expected = DERIVATIVES[transform](theirs)(X.double())
    assert found.dtype == BF16
    assert torch.allclose(found.double(), expected, rtol=2**-6, atol=2**-6 * expected.abs().max())


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_derivative_of_a_product_is_compiled_in_one_graph(name):
    call = DERIVATIVES["vmap of grad"](PRODUCTS[name][0])
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), call(X))


def test_autocast_converts_before_a_transform_keeps_anything():
    x, weight = X.float(), WEIGHT.float()

    @op("pykittens_tests::autocast_product")
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return gemm(a, b)

    seen = []

    @product.setup_context
    def _(ctx, inputs, output):
        seen.append(inputs[0].dtype)
        ctx.save_for_backward(inputs[1])

    product.backward(lambda ctx, g: (matmul(g, *ctx.saved_tensors), None))
    product.definition.register_autocast("cpu", BF16)
    for call in (linear, lambda x, w: linear(x, w, None, "relu"), product):
        with torch.autocast("cpu", dtype=BF16):
            found = torch.func.grad(lambda x, call=call: call(x, weight).sum())(x)
            leaf = x.clone().requires_grad_()
            call(leaf, weight).sum().backward()
        assert found.dtype == torch.float32
        assert torch.equal(found, leaf.grad)
    assert set(seen) == {BF16}


def test_a_product_without_a_gradient_is_refused_inside_transforms():
    one, e4m3 = torch.ones(()), torch.float8_e4m3fn
    a, b, out = X.to(e4m3), WEIGHT.to(e4m3).mT, torch.zeros(3, 3, dtype=BF16)
    with pytest.raises(ArgumentError, match="^scaled_mm: a product of fp8 has no gradient"):
        torch.func.grad(lambda s: scaled_mm(a, b, s, one).sum())(one)
    with pytest.raises(ArgumentError, match="^matmul: a product that is written to `out` has no"):
        torch.func.grad(lambda x: matmul(x, WEIGHT.mT, out=out).sum())(X)
    found = torch.func.grad(lambda s: (scaled_mm(a, b, one, one) * s).sum())(one)
    assert found == scaled_mm(a, b, one, one).sum()


def test_functionalize_works_or_is_refused_in_a_sentence():
    x, scale = x_and_scale()
    for call in (
        lambda x: add_rows(x, scale, torch.zeros_like(x)),
        lambda x: matmul(X, WEIGHT.mT, out=torch.zeros(3, 3, dtype=BF16)),
    ):
        with pytest.raises(ArgumentError, match="functionalize does not go through an operator"):
            torch.func.functionalize(call)(x)
    for call in (loss(scale_rows), lambda x, scale: linear(x.bfloat16(), x.bfloat16()).sum()):
        with pytest.raises(ArgumentError, match="functionalize does not go around a transform"):
            torch.func.functionalize(torch.func.grad(call))(x, scale)
        found = torch.func.grad(torch.func.functionalize(call))(x, scale)
        assert torch.equal(found, torch.func.grad(call)(x, scale))
    row = torch.func.functionalize(torch.vmap(of_one_row(scale_rows)))(x, scale)
    assert torch.equal(row[:, 0], exact(x, scale))
    wide = torch.func.functionalize(lambda a: sums_of_rows(a, WEIGHT, wide=True))(X)
    assert all(map(torch.equal, wide, sums_of_rows(X, WEIGHT, wide=True)))


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
