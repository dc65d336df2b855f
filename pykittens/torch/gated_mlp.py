"""The gated feed-forward layer of transformers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.nn import functional

from pykittens.kernels.arrays import NARROW
from pykittens.kernels.epilogue import check_activation
from pykittens.kernels.gemm import gemm
from pykittens.torch.linear import activated, linear
from pykittens.torch.matmul import matmul, stacked
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


def gated_mlp(
    x: Tensor,
    w1: Tensor,
    w3: Tensor,
    w2: Tensor,
    activation: str = "silu",
    *,
    fallback: bool = False,
    tune: bool = False,
) -> Tensor:
    """(activation(x @ w1.T) * (x @ w3.T)) @ w2.T of bf16 or f16; sums in f32.

    x: (..., k), w1 and w3: (hidden, k), w2: (n, hidden), as torch.nn.Linear keeps them; the result (..., n) has x's
    dtype. Two kernels compute it: x is multiplied by w1 and w3 at once. If a gradient is needed, the two products of x
    are stored and kept for it; that is faster than computing them again. activation: as for linear. fallback: let
    PyTorch compute calls without a kernel, which otherwise raise an ArgumentError. tune: measure configurations once.

        >>> x, w = torch.ones(50, 40).bfloat16(), torch.ones(60, 40).bfloat16()
        >>> gated_mlp(x, w, w, torch.ones(40, 60).bfloat16()).shape
        torch.Size([50, 40])
    """
    return GATED_MLP.call((x, w1, w3, w2), (activation, tune), fallback)


def _check(of: Operands, activation: str, tune: bool) -> None:
    of.activation(activation)
    of.shapes(x="*lead k", w1="hidden k", w3="hidden k", w2="n hidden")
    of.result("*lead n", of.dtypes("x", "w1", "w3", "w2", among=NARROW))
    of.matrices("x")


def _of_torch(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str, tune: bool) -> Tensor:
    check_activation("gated_mlp", activation)
    return _composed(functional.linear, x, w1, w3, w2, activation)


def _composed(
    linear: Any, x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str
) -> Tensor:
    """The layer in products of their own."""
    found: Tensor = linear(activated(linear(x, w1), activation) * linear(x, w3), w2)
    return found


def _of_vector(x: Tensor, *rest: Any) -> Tensor:
    return GATED_MLP.launch(x.unsqueeze(0), *rest).squeeze(0)


# -- gradients -------------------------------------------------------------------------------------


def _recorded(*args: Any) -> Tensor:
    if not _are_functorch_transforms_active():
        return GATED_MLP.apply(*args)
    # A transform keeps no more than arguments and results.
    return _composed(partial(linear, tune=args[-1]), *args[:-1])


def _forward(
    ctx: Any, x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str, tune: bool
) -> Tensor:
    """Keeps x @ w1.T and x @ w3.T; the gradients need only element-wise functions of these."""
    ctx.activation, ctx.tune = activation, tune
    first, gate = linear(x, w1, tune=tune), linear(x, w3, tune=tune)
    ctx.save_for_backward(x, w1, w3, w2, first, gate)
    return linear(activated(first, activation) * gate, w2, tune=tune)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, w1, w3, w2, first, gate = ctx.saved_tensors
    for_x, for_w1, for_w3, for_w2 = ctx.needs_input_grad[:4]
    tune = ctx.tune
    if torch.is_grad_enabled():  # a second gradient must pass through these products
        first, gate = linear(x, w1, tune=tune), linear(x, w3, tune=tune)
    act = activated(first, ctx.activation)
    of_w2 = _of_weight(gradient, act * gate, tune) if for_w2 else None
    of_x = of_w1 = of_w3 = None
    if for_x or for_w1 or for_w3:
        of_hidden = matmul(gradient, w2, tune=tune)
        of_gate = of_hidden * act
        of_first = _before_activation(of_hidden * gate, first, ctx.activation)
        of_w1 = _of_weight(of_first, x, tune) if for_w1 else None
        of_w3 = _of_weight(of_gate, x, tune) if for_w3 else None
        if for_x:
            of_x = linear(of_gate, w3.mT, residual=matmul(of_first, w1, tune=tune), tune=tune)
    return of_x, of_w1, of_w3, of_w2, None, None


def _before_activation(gradient: Tensor, x: Tensor, activation: str) -> Tensor:
    """The gradient of x from that of activation(x)."""
    if activation == "relu":
        return torch.ops.aten.threshold_backward(gradient, x, 0)
    if activation == "silu" and torch.is_grad_enabled():  # silu_backward has no gradient
        s = x.sigmoid()
        return gradient * (s * (1 + x * (1 - s)))
    if not activation:
        return gradient
    return getattr(torch.ops.aten, f"{activation}_backward")(gradient, x)


def _of_weight(gradient: Tensor, x: Tensor, tune: bool) -> Tensor:
    """The gradient of weight in x @ weight.T."""
    return matmul(stacked(gradient).mT, stacked(x), tune=tune)


GATED_MLP = Operator(
    "gated_mlp(Tensor x, Tensor w1, Tensor w3, Tensor w2, str activation='silu', bool tune=False)"
    " -> Tensor",
    _check,
    lambda x, w1, w3, w2, activation, tune: gemm(
        gemm(x, w1, gate=w3, activation=activation, tune=tune), w2, tune=tune
    ),
    fallback=_of_torch,
    rearranged=_of_vector,
    forward=_forward,
    backward=_backward,
    recorded=_recorded,
    flops=lambda x, w1, w3, w2, *_: (
        2 * math.prod(x.shape[:-1]) * (w1.numel() + w3.numel() + w2.numel())
    ),
    casts="x w1 w3 w2",
)
