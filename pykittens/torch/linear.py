"""Linear layers, with an epilogue on their product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pykittens.errors import KernelError
from pykittens.kernels.epilogue import ACTIVATIONS
from pykittens.kernels.gemm import gemm
from pykittens.torch.matmul import gradient_of_left, matmul, stacked
from pykittens.torch.operands import (
    FLOATS,
    NARROW,
    Refusal,
    check_transforms,
    refused_activation,
    refused_beside,
    refused_pair,
)
from pykittens.torch.registration import is_direct, needs_gradient, operator


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

    x: (..., k), weight: (n, k), bias: (n,), residual: (..., n); the result has x's dtype. activation: "", "relu",
    "gelu" or "silu". One kernel does it and rounds once; where a gradient is asked for, the activation is PyTorch's,
    behind a product that is kept. fallback: what has no kernel is left to PyTorch. tune: measure configurations once.
    """
    given = (x, weight, bias, residual)
    if (
        is_direct(*given, optional=2)
        and _is_usual(*given, activation)
        and not needs_gradient(*given)
    ):
        try:
            return _run(*given, activation, tune)
        except KernelError:
            if _refused(*given, activation) is None:
                raise
    refusal = _refused(*given, activation)
    if refusal is not None:
        if fallback:
            return _of_torch(*given, activation)
        if torch.compiler.is_compiling():
            return LINEAR(*given, activation, tune)  # the operator says it
        raise refusal.error("linear", x=x, weight=weight, bias=bias, residual=residual)
    if x.dim() == 1:
        row = None if residual is None else residual.unsqueeze(0)
        return linear(x.unsqueeze(0), weight, bias, activation, row, tune=tune).squeeze(0)
    if not is_direct(*given, optional=2):
        return LINEAR(*given, activation, tune)
    return _differentiable(*given, activation, tune)


def _is_usual(x: Tensor, weight: Tensor, bias: Any, residual: Any, activation: str) -> bool:
    """Whether gemm checks what else there is to check."""
    return (
        x.dtype in NARROW
        and x.dim() > 1
        and weight.dim() == 2
        and isinstance(activation, str)
        and activation in ACTIVATIONS
        and (bias is None or (bias.dim() == 1 and bias.dtype in FLOATS))
        and (residual is None or residual.dtype in FLOATS)
    )


def _refused(x: Any, weight: Any, bias: Any, residual: Any, activation: str) -> Refusal | None:
    """Why there is no kernel for a layer; None where there is."""
    refusal = refused_pair(("x", "weight"), x, weight, NARROW) or refused_activation(activation)
    if refusal is not None:
        return refusal
    if weight.dim() != 2:
        return Refusal(f"`weight` must have rank 2, not {weight.dim()}")
    if x.dim() == 0:
        return Refusal("`x` must have rank 1 or more, not 0")
    if x.shape[-1] != weight.shape[1]:
        return Refusal(
            f"`x` has {x.shape[-1]} columns and `weight` {weight.shape[1]}",
            "the rows of `weight` are the columns of the result, as in torch.nn.Linear",
        )
    refusal = refused_beside("bias", bias, x, weight.shape[:1])
    if refusal is None and residual is not None:
        return refused_beside("residual", residual, x, (*x.shape[:-1], weight.shape[0]))
    return refusal


def _of_torch(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    refusal = refused_activation(activation)
    if refusal is not None:  # PyTorch has none of that name either
        raise refusal.error("linear", x=x, weight=weight, bias=bias, residual=residual)
    found = activated(functional.linear(x, weight, bias), activation)
    return found if residual is None else found + residual


def activated(x: Tensor, activation: str) -> Tensor:
    """activation(x) in PyTorch."""
    if activation == "relu":
        return functional.relu(x)
    if activation == "gelu":
        return functional.gelu(x)
    if activation == "silu":
        return functional.silu(x)
    assert not activation, f"no PyTorch function for {activation}"
    return x


# -- the operator ----------------------------------------------------------------------------------


def _run(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "",
    tune: bool = False,
) -> Tensor:
    return gemm(x, weight, bias=bias, activation=activation, residual=residual, tune=tune)


def _run_checked(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "",
    tune: bool = False,
) -> Tensor:
    given = (x, weight, bias, residual, activation)
    if not _is_usual(*given):
        _check(*given)
    return _run(*given, tune)


def _check(*given: Any) -> None:
    refusal = _refused(*given)
    x, weight, bias, residual, _ = given
    if refusal is None and x.dim() < 2:
        refusal = Refusal("the operator takes matrices", "pykittens.torch.linear takes vectors")
    if refusal is not None:
        raise refusal.error("linear", x=x, weight=weight, bias=bias, residual=residual)


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "",
    tune: bool = False,
) -> Tensor:
    _check(x, weight, bias, residual, activation)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _recorded(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "",
    tune: bool = False,
) -> Tensor:
    _check(x, weight, bias, residual, activation)
    return _differentiable(x, weight, bias, residual, activation, tune)


def _differentiable(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "",
    tune: bool = False,
) -> Tensor:
    check_transforms("linear", x=x, weight=weight, bias=bias, residual=residual)
    if not activation:
        return _Linear.apply(x, weight, bias, residual, tune)
    found = activated(_Linear.apply(x, weight, bias, None, tune), activation)
    # Added in the wider of the two dtypes, and rounded to that of the product.
    return found if residual is None else (found + residual).to(x.dtype)


class _Linear(torch.autograd.Function):
    """x @ weight.T + bias + residual; keeps an operand only where the gradient of the other is asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        tune: bool,
    ) -> Tensor:
        ctx.tune, ctx.shape = tune, weight.shape
        ctx.dtypes = [None if t is None else t.dtype for t in (bias, residual)]
        for_x, for_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)
        if is_direct(x, weight, bias, residual, optional=2):
            return _run(x, weight, bias, residual, "", tune)
        return LINEAR(x, weight, bias, residual, "", tune)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias, for_residual, _ = ctx.needs_input_grad
        of_bias, of_residual = ctx.dtypes
        return (
            matmul(gradient, weight, tune=ctx.tune) if for_x else None,
            gradient_of_left(gradient.mT, x.mT, ctx.shape, ctx.tune) if for_weight else None,
            stacked(gradient).sum(0, dtype=of_bias) if for_bias else None,
            gradient.to(of_residual) if for_residual else None,
            None,
        )


LINEAR = operator(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, str activation='',"
    " bool tune=False) -> Tensor",
    run=_run_checked,
    fake=_fake,
    autograd=_recorded,
    casts=3,
)
