"""Linear attention with a gate for each channel, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.linear import gated_linear_attention as attend
from pykittens.kernels.linear import gated_linear_attention_backward
from pykittens.kernels.linear.call import make_outputs
from pykittens.kernels.linear.gated import check_gated
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.linear_attention import recurrence_flops


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """scale S^T q at each position, with S = diag(exp(decay)) S + k v^T, of bf16 or f16; sums in f32.

    q, k: (batch, groups, n, d), v: (batch, heads, n, width), in any strides; d is at most 256. Head h of v goes with
    group h // (heads / groups). The result (batch, heads, n, width) has their dtype. decay: f32, bf16 or f16, (batch,
    gates, n, d), the logarithm of what is kept of each row of the state, at most 0; with the heads of q and k, or those
    of v, or a number between. scale: 1 / sqrt(d) if None. initial_state: f32 (batch, heads, d, width). With
    return_state the result is (out, state), f32, the state after the last position. ends: int32 (sequences + 1,), where
    each of several sequences in a batch of 1 starts, and where the last one ends, as of linear_attention. All that is
    given has a gradient, of its dtype. Raises ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 32, dtype=torch.bfloat16)
        >>> gated_linear_attention(x, x, x, torch.full((1, 2, 8, 32), -0.1)).shape
        torch.Size([1, 2, 8, 32])
    """
    given = q, k, v, decay, initial_state, ends
    return GATED_LINEAR_ATTENTION.call(given, (scale, return_state))


GATED_LINEAR_ATTENTION = Differentiable(
    "gated_linear_attention",
    "q k v decay initial_state?",
    "float? scale=None",
    constants="ends?",
    forward=attend,
    backward=gated_linear_attention_backward,
    check=lambda of, scale: check_gated(of),
    outputs=lambda of, scale, return_state: make_outputs(of, return_state),
    like="v",
    flops=recurrence_flops,
    times=3,
    casts="q k v",
)
