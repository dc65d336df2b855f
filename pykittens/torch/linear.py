"""Linear layers with an epilogue."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from pykittens.kernels.arrays import FLOATS, NARROW
from pykittens.kernels.epilogue import check_activation
from pykittens.kernels.gemm import gemm
from pykittens.torch.host_call import HostCall
from pykittens.torch.matmul import gradient_of_left, matmul, stacked
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    *,
    fallback: bool = False,
    tune: bool = False,
) -> Tensor:
    """activation(x @ weight.T + bias) + residual of bf16 or f16; sums in f32.

    x: (..., k), weight: (n, k), bias: (n,), residual: (..., n); the result (..., n) has x's dtype, which is that of
    weight, too; bias and residual may be bf16, f16 or f32. activation: "", "relu", "gelu" or "silu". One kernel
    computes it and rounds once; if a gradient is needed, PyTorch applies the activation to a product that is kept.
    fallback: let PyTorch compute calls without a kernel, which otherwise raise an ArgumentError. tune: measure
    configurations once.

        >>> x, weight = torch.ones(50, 40).bfloat16(), torch.ones(30, 40).bfloat16()
        >>> linear(x, weight, activation="relu").shape
        torch.Size([50, 30])
    """
    return LINEAR.call((x, weight, bias, residual), (activation, tune), fallback)


def _check(of: Operands, activation: str, tune: bool) -> None:
    of.activation(activation)
    of.shapes(x="*lead k", weight="n k", bias="n", residual="*lead n")
    of.result("*lead n", of.dtypes("x", "weight", among=NARROW))
    of.dtypes("bias", "residual", among=FLOATS, same=False)
    of.matrices("x")


def _of_torch(
    x: Tensor, weight: Tensor, bias: Any, residual: Any, activation: str, tune: bool
) -> Tensor:
    check_activation("linear", activation)
    found = activated(functional.linear(x, weight, bias), activation)
    return found if residual is None else found + residual


def activated(x: Tensor, activation: str) -> Tensor:
    """activation(x) in PyTorch, which has the same names."""
    return getattr(functional, activation)(x) if activation else x


def _of_vector(x: Tensor, weight: Tensor, bias: Any, residual: Any, *options: Any) -> Tensor:
    row = None if residual is None else residual.unsqueeze(0)
    return LINEAR.launch(x.unsqueeze(0), weight, bias, row, *options).squeeze(0)


# -- gradients -------------------------------------------------------------------------------------


def _recorded(
    x: Tensor, weight: Tensor, bias: Any, residual: Any, activation: str, tune: bool
) -> Tensor:
    if not activation:
        return LINEAR.apply(x, weight, bias, residual, "", tune)
    found = activated(LINEAR.apply(x, weight, bias, None, "", tune), activation)
    # Added in the wider of the two dtypes, and rounded to that of the product.
    return found if residual is None else (found + residual).to(x.dtype)


def _setup(ctx: Any, args: tuple[Any, ...], result: Tensor) -> None:
    """Keeps an operand only for the gradient of the other."""
    x, weight, bias, residual, _, tune = args
    of_bias = None if bias is None else bias.dtype
    of_residual = None if residual is None else residual.dtype
    ctx.kept = weight.shape, of_bias, of_residual, tune
    for_x, for_weight, *_ = ctx.needs_input_grad
    ctx.save_for_backward(x if for_weight else None, weight if for_x else None)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    for_x, for_weight, for_bias, for_residual = ctx.needs_input_grad[:4]
    shape, of_bias, of_residual, tune = ctx.kept
    return (
        matmul(gradient, weight, tune=tune) if for_x else None,
        gradient_of_left(gradient.mT, x.mT, shape, tune) if for_weight else None,
        stacked(gradient).sum(0, dtype=of_bias) if for_bias else None,
        gradient.to(of_residual) if for_residual else None,
        None,
        None,
    )


LINEAR = Operator(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, str activation='',"
    " bool tune=False) -> Tensor",
    _check,
    HostCall(gemm, "a b bias residual", "activation tune"),
    fallback=_of_torch,
    rearranged=_of_vector,
    setup=_setup,
    backward=_backward,
    recorded=_recorded,
    flops=lambda x, weight, *_: 2 * x.numel() * weight.shape[0],
    casts="x weight bias",
)
