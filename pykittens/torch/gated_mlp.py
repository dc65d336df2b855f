"""The gated feed-forward layer of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.errors import KernelError
from pykittens.kernels.epilogue import ACTIVATIONS
from pykittens.kernels.gemm import gemm
from pykittens.torch.linear import activated, linear
from pykittens.torch.matmul import matmul, stacked
from pykittens.torch.operands import (
    NARROW,
    Refusal,
    check_transforms,
    refused_activation,
    refused_pair,
)
from pykittens.torch.registration import is_direct, needs_gradient, operator


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
    dtype. Two kernels do it: x is multiplied by w1 and w3 at once. Where a gradient is asked for, the two products of x
    are stored and kept for it; that is faster than computing them again. fallback: what has no kernel is left to
    PyTorch. tune: measure configurations once.
    """
    given = (x, w1, w3, w2)
    if is_direct(*given) and _is_usual(*given, activation) and not needs_gradient(*given):
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
            return GATED_MLP(*given, activation, tune)  # the operator says it
        raise refusal.error("gated_mlp", x=x, w1=w1, w3=w3, w2=w2)
    if x.dim() == 1:
        return gated_mlp(x.unsqueeze(0), w1, w3, w2, activation, tune=tune).squeeze(0)
    if not is_direct(*given):
        return GATED_MLP(*given, activation, tune)
    return _differentiable(*given, activation, tune)


def _is_usual(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str) -> bool:
    """Whether gemm checks what else there is to check."""
    ranks = x.dim() > 1 and w1.dim() == w2.dim() == 2
    known = isinstance(activation, str) and activation in ACTIVATIONS
    return ranks and known and x.dtype in NARROW


def _refused(x: Any, w1: Any, w3: Any, w2: Any, activation: str) -> Refusal | None:
    """Why there is no kernel for a layer; None where there is."""
    for name, weight in (("w1", w1), ("w3", w3), ("w2", w2)):
        refusal = refused_pair(("x", name), x, weight, NARROW)
        if refusal is not None:
            return refusal
        if weight.dim() != 2:
            return Refusal(f"`{name}` must have rank 2, not {weight.dim()}")
    if x.dim() == 0:
        return Refusal("`x` must have rank 1 or more, not 0")
    if w3.shape != w1.shape:
        return Refusal("`w3` must have the shape of `w1`")
    if x.shape[-1] != w1.shape[1]:
        return Refusal(f"`x` has {x.shape[-1]} columns and `w1` {w1.shape[1]}")
    if w2.shape[1] != w1.shape[0]:
        return Refusal(f"`w2` has {w2.shape[1]} columns and `w1` {w1.shape[0]} rows")
    return refused_activation(activation)


def _of_torch(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str) -> Tensor:
    refusal = refused_activation(activation)
    if refusal is not None:  # PyTorch has none of that name either
        raise refusal.error("gated_mlp", x=x, w1=w1, w3=w3, w2=w2)
    hidden = activated(torch.nn.functional.linear(x, w1), activation)
    return torch.nn.functional.linear(hidden * torch.nn.functional.linear(x, w3), w2)


# -- the operator ----------------------------------------------------------------------------------


def _run(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str = "silu", tune: bool = False
) -> Tensor:
    hidden = gemm(x, w1, gate=w3, activation=activation, tune=tune)
    return gemm(hidden, w2, tune=tune)


def _run_checked(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str = "silu", tune: bool = False
) -> Tensor:
    given = (x, w1, w3, w2, activation)
    if not _is_usual(*given):
        _check(*given)
    return _run(*given, tune)


def _check(*given: Any) -> None:
    refusal = _refused(*given)
    x, w1, w3, w2, _ = given
    if refusal is None and x.dim() < 2:
        refusal = Refusal("the operator takes matrices", "pykittens.torch.gated_mlp takes vectors")
    if refusal is not None:
        raise refusal.error("gated_mlp", x=x, w1=w1, w3=w3, w2=w2)


def _fake(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str = "silu", tune: bool = False
) -> Tensor:
    _check(x, w1, w3, w2, activation)
    return x.new_empty((*x.shape[:-1], w2.shape[0]))


def _recorded(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str = "silu", tune: bool = False
) -> Tensor:
    _check(x, w1, w3, w2, activation)
    return _differentiable(x, w1, w3, w2, activation, tune)


def _differentiable(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str = "silu", tune: bool = False
) -> Tensor:
    check_transforms("gated_mlp", x=x, w1=w1, w3=w3, w2=w2)
    return _GatedMLP.apply(x, w1, w3, w2, activation, tune)


class _GatedMLP(torch.autograd.Function):
    """Keeps x @ w1.T and x @ w3.T; what else the gradients need is made of these element by element."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: str, tune: bool
    ) -> Tensor:
        ctx.activation, ctx.tune = activation, tune
        first, gate = linear(x, w1, tune=tune), linear(x, w3, tune=tune)
        ctx.save_for_backward(x, w1, w3, w2, first, gate)
        return linear(activated(first, activation) * gate, w2, tune=tune)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, w1, w3, w2, first, gate = ctx.saved_tensors
        for_x, for_w1, for_w3, for_w2 = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            return _again(gradient, ctx)
        tune, act = ctx.tune, activated(first, ctx.activation)
        of_w2 = _weight_gradient(gradient, act * gate, tune) if for_w2 else None
        of_x = of_w1 = of_w3 = None
        if for_x or for_w1 or for_w3:
            of_hidden = matmul(gradient, w2, tune=tune)
            of_gate = of_hidden * act
            of_first = _before_activation(of_hidden * gate, first, ctx.activation)
            of_w1 = _weight_gradient(of_first, x, tune) if for_w1 else None
            of_w3 = _weight_gradient(of_gate, x, tune) if for_w3 else None
            if for_x:
                part = matmul(of_first, w1, tune=tune)
                of_x = linear(of_gate, w3.mT, residual=part, tune=tune)
        return of_x, of_w1, of_w3, of_w2, None, None


def _again(gradient: Tensor, ctx: Any) -> tuple[Tensor | None, ...]:
    """The gradients for a gradient of theirs, which must not end at the products that were kept."""
    leaves = ctx.saved_tensors[:4]
    x, w1, w3, w2 = leaves
    hidden = activated(linear(x, w1, tune=ctx.tune), ctx.activation) * linear(x, w3, tune=ctx.tune)
    wanted = [t for t, needed in zip(leaves, ctx.needs_input_grad, strict=False) if needed]
    result = linear(hidden, w2, tune=ctx.tune)
    made = iter(torch.autograd.grad(result, wanted, gradient, create_graph=True))
    return (*(next(made) if needed else None for needed in ctx.needs_input_grad[:4]), None, None)


def _weight_gradient(gradient: Tensor, x: Tensor, tune: bool) -> Tensor:
    """The gradient of weight in x @ weight.T."""
    return matmul(stacked(gradient).mT, stacked(x), tune=tune)


def _before_activation(gradient: Tensor, x: Tensor, activation: str) -> Tensor:
    """The gradient of x from that of activation(x)."""
    if activation == "relu":
        return torch.ops.aten.threshold_backward(gradient, x, 0)
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(gradient, x)
    if activation == "silu":
        return torch.ops.aten.silu_backward(gradient, x)
    assert not activation, f"no gradient of {activation}"
    return gradient


GATED_MLP = operator(
    "gated_mlp(Tensor x, Tensor w1, Tensor w3, Tensor w2, str activation='silu', bool tune=False)"
    " -> Tensor",
    run=_run_checked,
    fake=_fake,
    autograd=_recorded,
    casts=4,
)
