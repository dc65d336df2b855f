"""The gated delta rule, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.delta import gated_delta_rule as apply
from pykittens.kernels.delta import gated_delta_rule_backward
from pykittens.kernels.delta.call import check_shapes
from pykittens.kernels.linear.call import check_width, make_outputs
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.operands import Operands


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    decay: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """scale S^T q at each position, with S = a S + beta k (v - a S^T k)^T and a = exp(decay), of bf16 or f16.

    q, k: (batch, groups, n, d), v: (batch, heads, n, width), in any strides; d and width are at most 256. Head h of v
    goes with group h // (heads / groups). The result (batch, heads, n, width) has their dtype. beta: f32 or the dtype
    of v, (batch, heads, n). decay: f32, (batch, heads, n) or (heads,), the logarithm of what is kept of the state, at
    most 0. Keys are not normalized; models take those of length 1. scale: 1 / sqrt(d) if None. initial_state: f32
    (batch, heads, d, width). With return_state the result is (out, state), f32, the state after the last position.
    ends: int32 (sequences + 1,), where each of several sequences in a batch of 1 starts, and where the last one ends,
    as of linear_attention. All but `ends` has a gradient. Raises ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 32, dtype=torch.bfloat16)
        >>> gated_delta_rule(x, x / 8, x, torch.full((1, 2, 8), 0.5), torch.full((2,), -0.1)).shape
        torch.Size([1, 2, 8, 32])
    """
    given = q, k, v, beta, decay, initial_state, ends
    return GATED_DELTA_RULE.call(given, (scale, return_state))


def _check(of: Operands, scale: Any) -> None:
    check_shapes(of)
    check_width(of)  # of the gradients, before a call is recorded for them


def _flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """The products of the recurrence: of each position with the state, twice, and its part of that."""
    flops: int = 6 * v.numel() * q.shape[3]
    return flops


GATED_DELTA_RULE = Differentiable(
    "gated_delta_rule",
    "q k v beta decay? initial_state?",
    "float? scale=None",
    constants="ends?",
    forward=apply,
    backward=gated_delta_rule_backward,
    check=_check,
    outputs=lambda of, scale, return_state: make_outputs(of, return_state),
    like="v",
    flops=_flops,
    times=3,
    casts="q k v",
)
