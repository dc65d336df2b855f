"""Hedgehog attention, a softmax of near positions and linear attention of the others, with gradients of all."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.linear.hedgehog import hedgehog_attention as attend
from pykittens.kernels.linear.hedgehog import hedgehog_attention_backward
from pykittens.kernels.linear.hedgehog.call import check, make_outputs
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.operands import Operands


def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_map: Tensor,
    key_map: Tensor,
    *,
    factors: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """A softmax of a chunk of 64 positions and the one before, and linear attention of earlier ones; sums in f32.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), query_map, key_map: (heads, d, features), all bf16 or all
    f16, in any strides; d is at most 128, and features at most 64. The result (batch, heads, n, width) has their dtype.
    factors: f32 (2, heads), those of the softmax and of linear attention, by default 1. scale: 1 / sqrt(d) if None.
    initial_state: f32 (batch, heads, 2 features, width + 1). With return_state the result is (out, state). Features of
    x are softmax(x map) and softmax(-x map); all weights have one sum, by which results are divided. ends: int32
    (sequences + 1,), where each of several sequences in a batch of 1 starts, and where the last one ends, as of
    linear_attention. All but `ends` has a gradient; that of a largest score of the softmax goes to the first of equal
    ones. Raises ArgumentError for a call without a kernel.

        >>> x, to = torch.ones(1, 2, 200, 16).bfloat16(), torch.ones(2, 16, 32).bfloat16()
        >>> hedgehog_attention(x, x, x, to, to)[0, 0, ::99, 0]
        tensor([1., 1., 1.], dtype=torch.bfloat16)
    """
    tensors = q, k, v, query_map, key_map, factors, initial_state, ends
    return HEDGEHOG_ATTENTION.call(tensors, (scale, return_state))


def _attend(*, return_state: bool, **given: Any) -> tuple[Any, ...]:
    out, *state, rows = attend(**given, return_state=return_state, return_rows=True)
    return out, state[0] if state else None, rows


def _outputs(of: Operands, scale: Any, return_state: bool) -> None:
    make_outputs(of, return_state, True)


def _flops(q: Tensor, k: Tensor, v: Tensor, query_map: Tensor, *_: Any) -> int:
    """The products of features with maps and states, and of two chunks of keys and values."""
    d, width, features = q.shape[3], v.shape[3], query_map.shape[2]
    of_position = 4 * d * features + 8 * width * features + 4 * 64 * (d + width)
    flops: int = q.numel() // d * of_position
    return flops


HEDGEHOG_ATTENTION = Differentiable(
    "hedgehog_attention",
    "q k v query_map key_map factors? initial_state?",
    "float? scale=None",
    constants="ends?",
    forward=_attend,
    backward=hedgehog_attention_backward,
    check=lambda of, scale: check(of),
    outputs=_outputs,
    like="v",
    kept="rows",
    flops=_flops,
    times=3,
    casts="q k v query_map key_map",
    way="compute it by products of PyTorch",
)
