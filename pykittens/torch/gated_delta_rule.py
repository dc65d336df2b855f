"""The gated delta rule, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.delta import gated_delta_rule as apply
from pykittens.kernels.delta import gated_delta_rule_backward
from pykittens.kernels.delta.call import check_shapes
from pykittens.kernels.linear.call import OF_QK, OF_STATE, OF_V
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

_WAY = "compute it by products of PyTorch, in f32 or position by position"


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    decay: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """scale S^T q at each position, with S = a S + beta k (v - a S^T k)^T and a = exp(decay), of bf16 or f16.

    q, k: (batch, groups, n, d), v: (batch, heads, n, width), in any strides; d and width are at most 256. Head h of v
    goes with group h // (heads / groups). The result (batch, heads, n, width) has their dtype. beta: f32 or the dtype
    of v, (batch, heads, n). decay: f32, (batch, heads, n) or (heads,), the logarithm of what is kept of the state, at
    most 0. Keys are not normalized; models take those of length 1. scale: 1 / sqrt(d) if None. initial_state: f32
    (batch, heads, d, width). With return_state the result is (out, state), f32, the state after the last position. All
    that is given has a gradient. Raises ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 32, dtype=torch.bfloat16)
        >>> gated_delta_rule(x, x / 8, x, torch.full((1, 2, 8), 0.5), torch.full((2,), -0.1)).shape
        torch.Size([1, 2, 8, 32])
    """
    given = q, k, v, beta, decay, initial_state
    found = GATED_DELTA_RULE.call(given, (scale, return_state), False)
    return found if return_state else found[0]


def _check(of: Operands, scale: Any, return_state: bool) -> None:
    check_shapes(of)
    of.result(OF_V, of.found["v"].dtype)
    of.make("state", OF_STATE if return_state else "0", "f32")


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    decay: Any = None,
    initial_state: Any = None,
    scale: Any = None,
    return_state: bool = False,
) -> Any:
    how = {"scale": scale, "initial_state": initial_state, "return_state": return_state}
    found = apply(q, k, v, beta, decay, **how)
    return found if return_state else (found, q.new_empty(0, dtype=torch.float32))


def _setup(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*args[:6])
    ctx.scale, returns_state = args[6:]
    if not returns_state:
        ctx.mark_non_differentiable(result[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, of_state: Tensor | None) -> tuple[Any, ...]:
    q, k, v, beta, decay, before = ctx.saved_tensors
    gradient = torch.zeros_like(v) if gradient is None else gradient
    found = GRADIENTS.launch(q, k, v, beta, gradient, decay, before, of_state, ctx.scale)
    of_decay, of_before = found[4:]
    return (
        *found[:4],
        None if decay is None else of_decay,
        None if before is None else of_before,
        None,
        None,
    )


def _check_gradients(of: Operands, scale: Any) -> None:
    check_shapes(of)
    for name, x in (("dq", OF_QK), ("dk", OF_QK), ("dv", OF_V)):
        of.make(name, x, of.found["v"].dtype)
    of.make("d_beta", "batch heads n", of.found["beta"].dtype)
    of_decay = "0"
    if "decay" in of:
        of_decay = "heads" if of.rank("decay") == 1 else "batch heads n"
    of.make("d_decay", of_decay, "f32")
    of.make("d_initial_state", OF_STATE if "initial_state" in of else "0", "f32")


def _run_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gradient: Tensor,
    decay: Any = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    scale: Any = None,
) -> Any:
    how = {"initial_state": initial_state, "state_gradient": state_gradient}
    found = gated_delta_rule_backward(q, k, v, beta, gradient, decay, scale=scale, **how)
    nothing, more = q.new_empty(0, dtype=torch.float32), [*found[4:]]
    of_decay = nothing if decay is None else more.pop(0)
    return *found[:4], of_decay, nothing if initial_state is None else more.pop(0)


def _flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """The products of the recurrence: of each position with the state, twice, and its part of that."""
    flops: int = 6 * v.numel() * q.shape[3]
    return flops


GATED_DELTA_RULE = Operator(
    "gated_delta_rule(Tensor q, Tensor k, Tensor v, Tensor beta, Tensor? decay=None,"
    " Tensor? initial_state=None, float? scale=None, bool return_state=False) -> (Tensor, Tensor)",
    _check,
    _run,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts=3,
    way=_WAY,
)

GRADIENTS = Operator(
    "gated_delta_rule_backward(Tensor q, Tensor k, Tensor v, Tensor beta, Tensor gradient,"
    " Tensor? decay=None, Tensor? initial_state=None, Tensor? state_gradient=None,"
    " float? scale=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _check_gradients,
    _run_gradients,
    flops=lambda q, k, v, *_: 3 * _flops(q, k, v),
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
    way=_WAY,
)
