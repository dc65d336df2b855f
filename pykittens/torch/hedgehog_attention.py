"""Hedgehog attention: a softmax of near positions and linear attention of the others; without gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.linear.call import make_outputs
from pykittens.kernels.linear.hedgehog import hedgehog_attention as attend
from pykittens.kernels.linear.hedgehog.function import OF_STATE, check
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


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
    return_state: bool = False,
) -> Any:
    """A softmax of a chunk of 64 positions and the one before, and linear attention of earlier ones; sums in f32.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), query_map, key_map: (heads, d, features), all bf16 or all
    f16, in any strides; d is at most 128, and features at most 64. The result (batch, heads, n, width) has their dtype.
    factors: f32 (2, heads), those of the softmax and of linear attention, by default 1. scale: 1 / sqrt(d) if None.
    initial_state: f32 (batch, heads, 2 features, width + 1). With return_state the result is (out, state). Features of
    x are softmax(x map) and softmax(-x map); all weights have one sum, by which results are divided. There are no
    gradients. Raises ArgumentError for a call without a kernel.

        >>> x, to = torch.ones(1, 2, 200, 16).bfloat16(), torch.ones(2, 16, 32).bfloat16()
        >>> hedgehog_attention(x, x, x, to, to)[0, 0, ::99, 0]
        tensor([1., 1., 1.], dtype=torch.bfloat16)
    """
    tensors = q, k, v, query_map, key_map, factors, initial_state
    found = HEDGEHOG_ATTENTION.call(tensors, (scale, return_state), False)
    return found if return_state else found[0]


def _check(of: Operands, scale: Any, return_state: bool) -> None:
    check(of)
    make_outputs(of, return_state, of_state=OF_STATE)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_map: Tensor,
    key_map: Tensor,
    factors: Any = None,
    initial_state: Any = None,
    scale: Any = None,
    return_state: bool = False,
) -> Any:
    how: dict[str, Any] = {"factors": factors, "scale": scale, "return_state": return_state}
    found = attend(q, k, v, query_map, key_map, **how, initial_state=initial_state)
    return found if return_state else (found, q.new_empty(0, dtype=torch.float32))


def _flops(q: Tensor, k: Tensor, v: Tensor, query_map: Tensor, *_: Any) -> int:
    """The products of features with maps and states, and of two chunks of keys and values."""
    d, width, features = q.shape[3], v.shape[3], query_map.shape[2]
    of_position = 4 * d * features + 8 * width * features + 4 * 64 * (d + width)
    flops: int = q.numel() // d * of_position
    return flops


HEDGEHOG_ATTENTION = Operator(
    "hedgehog_attention(Tensor q, Tensor k, Tensor v, Tensor query_map, Tensor key_map,"
    " Tensor? factors=None, Tensor? initial_state=None, float? scale=None,"
    " bool return_state=False) -> (Tensor, Tensor)",
    _check,
    _run,
    flops=_flops,
    casts="q k v query_map key_map",
    way="compute it by products of PyTorch",
)
