"""Shared by the tests of all operators: inputs, gradients, and the same call faked and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

BF16, F16 = torch.bfloat16, torch.float16


def normal(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    """Random normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def whole(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    """Small whole numbers: sums of some tens of their products are exact in bf16."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype)


def gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """The result, and the gradients of inputs that are floats, for a gradient of the result of small whole numbers."""
    leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    result = function(*leaves)
    given = whole(*result.shape, seed=99).to(result)
    result.backward(given)
    return [result.detach(), *(x.grad for x in leaves if x.is_floating_point())]


def assert_exact_gradients(
    ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Any
) -> None:
    """Result and gradients are those of another function in float64, to the last bit; inputs are whole numbers."""
    found = gradients(ours, *inputs)
    exact = gradients(theirs, *(x.double() if x.is_floating_point() else x for x in inputs))
    for f, e in zip(found, exact, strict=True):
        assert f.shape == e.shape
        assert f.dtype == inputs[0].dtype
        assert e.abs().max() <= 256, "the numbers are too large to be exact"
        assert torch.equal(f.double(), e)


def assert_exact_second_gradients(
    ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Any
) -> None:
    """The gradients of the first gradient are those of another function in float64, to the last bit."""

    def second(function: Callable[..., Any], dtype: Any) -> Any:
        leaves = [x.to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs]
        wanted = [x for x in leaves if x.requires_grad]
        result = function(*leaves).square().sum()
        first = torch.autograd.grad(result, wanted[0], create_graph=True)[0]
        return torch.autograd.grad(first.sum(), wanted)

    exact = second(theirs, torch.float64)
    for f, e in zip(second(ours, inputs[0].dtype), exact, strict=True):
        assert 0 < e.abs().max() <= 256, "the numbers are too large to be exact, or nothing"
        assert torch.equal(f.double(), e)


def assert_batched_gradients(function: Callable[..., Any], *inputs: Any) -> None:
    """The gradients for many gradients of the result at once are those for one after another."""
    leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    wanted = [x for x in leaves if x.requires_grad]
    result = function(*leaves)
    given = whole(3, *result.shape, seed=99).to(result)
    many = torch.autograd.grad(result, wanted, given, retain_graph=True, is_grads_batched=True)
    for i, one in enumerate(given):
        alone = torch.autograd.grad(result, wanted, one, retain_graph=True)
        for found, expected in zip(many, alone, strict=True):
            assert expected.abs().max() > 0
            assert torch.equal(found[i], expected)


def negated(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    """Small whole numbers as a view whose memory has the other sign, as the imaginary part of a conjugate."""
    x = torch._neg_view(whole(*shape, dtype=dtype, seed=seed))
    assert x.is_neg()
    return x


def assert_signs(function: Callable[..., Any], *inputs: Any) -> None:
    """Views that negate their memory count as what they say, in the result and in the gradients."""
    plain = [x.resolve_neg() for x in inputs]
    assert torch.equal(function(*inputs), function(*plain))
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = function(*leaves)
    given = whole(*result.shape, seed=99).to(result)
    found = torch.autograd.grad(result, leaves, given)
    for f, e in zip(found, gradients(function, *plain)[1:], strict=True):
        assert torch.equal(f, e)


def assert_fake_agrees(function: Callable[..., Any], *inputs: Any) -> None:
    """Shape, strides and dtype of the result are known without computing it."""
    real = function(*inputs)
    with FakeTensorMode() as mode:
        fake = function(
            *(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs)
        )
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def assert_compiles(function: Callable[..., Any], *inputs: Any) -> None:
    """Compiled in one graph, also for extents that were not known, it gives the results and gradients of eager mode."""
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for found, expected in zip(
            gradients(compiled, *inputs), gradients(function, *inputs), strict=True
        ):
            assert torch.equal(found, expected)


def assert_operator(operator: Any, *inputs: Any) -> None:
    """PyTorch's own checks of an operator: schema, fake implementation, autograd, tracing."""
    found = torch.library.opcheck(operator, inputs)
    assert set(found.values()) == {"SUCCESS"}, found
