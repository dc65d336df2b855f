"""Linear attention with a decay, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.linear import linear_attention as attend
from pykittens.kernels.linear import linear_attention_backward
from pykittens.kernels.linear.call import check_shapes, check_width, make_outputs
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.operands import Operands


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """scale S^T q at each position, with the state S = exp(decay) S + k v^T, of bf16 or f16; sums in f32.

    q, k: (batch, groups, n, d), v: (batch, heads, n, width), in any strides; d and width are at most 256. Head h of v
    goes with group h // (heads / groups). The result (batch, heads, n, width) has their dtype. decay: f32, (batch,
    heads, n) or (heads,), the logarithm of what is kept of the state, at most 0. scale: 1 / sqrt(d) if None.
    initial_state: f32 (batch, heads, d, width). With return_state the result is (out, state), f32, the state after the
    last position. ends: int32 (sequences + 1,), where each of several sequences in a batch of 1 starts, and where the
    last one ends; states are then (sequences, heads, d, width). Results and gradients of positions outside of all
    sequences are what memory held: let a last sequence take the padding. All but `ends` has a gradient. Raises
    ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 32, dtype=torch.bfloat16)
        >>> linear_attention(x, x, x, torch.full((2,), -0.1)).shape
        torch.Size([1, 2, 8, 32])
    """
    return LINEAR_ATTENTION.call((q, k, v, decay, initial_state, ends), (scale, return_state))


def _check(of: Operands, scale: Any) -> None:
    check_shapes(of)
    check_width(of)  # of the gradients, before a call is recorded for them


def recurrence_flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """The products of the recurrence: of each position with the state, and its part of that."""
    flops: int = 4 * v.numel() * q.shape[3]
    return flops


LINEAR_ATTENTION = Differentiable(
    "linear_attention",
    "q k v decay? initial_state?",
    "float? scale=None",
    constants="ends?",
    forward=attend,
    backward=linear_attention_backward,
    check=_check,
    outputs=lambda of, scale, return_state: make_outputs(of, return_state),
    like="v",
    flops=recurrence_flops,
    times=3,
    casts="q k v",
)
