"""Based linear attention, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.linear.based import based_attention as attend
from pykittens.kernels.linear.based import based_attention_backward
from pykittens.kernels.linear.based.call import check, make_outputs
from pykittens.kernels.linear.based.function import EPS
from pykittens.torch.differentiable import Differentiable


def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    normalize: bool = False,
    eps: float = EPS,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """The sum of (1 + s + s^2 / 2) v over all positions up to each, with s = scale q k; sums in f32.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), all bf16 or all f16, in any strides; d is at most 32. The
    result (batch, heads, n, width) has their dtype. scale: 1 / sqrt(d) if None. normalize: divide by the sum of the
    weights and eps. initial_state: f32 (batch, heads, d (d + 1) / 2 + d + 1, width), or width + 1 with `normalize`.
    With return_state the result is (out, state), f32, the state after the last position. ends: int32 (sequences + 1,),
    where each of several sequences in a batch of 1 starts, and where the last one ends, as of linear_attention. All but
    `ends` has a gradient. Raises ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 16, dtype=torch.bfloat16)
        >>> based_attention(x, x, x, normalize=True)[0, 0, :3, 0]
        tensor([1., 1., 1.], dtype=torch.bfloat16)
    """
    options = scale, normalize, eps, return_state
    return BASED_ATTENTION.call((q, k, v, initial_state, ends), options)


def _attend(*, normalize: bool, return_state: bool, **given: Any) -> tuple[Any, ...]:
    how: dict[str, Any] = {"normalize": normalize, "return_state": return_state}
    found = attend(**given, **how, return_weights=normalize)
    out, *more = found if isinstance(found, tuple) else (found,)
    return out, more.pop(0) if return_state else None, more[0] if normalize else None


def _gradients(*, normalize: bool, eps: float, **given: Any) -> Any:
    return based_attention_backward(**given)  # the sums that divide have `eps`


def _flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """The products of the recurrence: of the features of each position with the state, and its part of that."""
    d = q.shape[3]
    flops: int = 4 * v.numel() * (1 + d + d * d)
    return flops


BASED_ATTENTION = Differentiable(
    "based_attention",
    "q k v initial_state?",
    f"float? scale=None, bool normalize=False, float eps={EPS}",
    constants="ends?",
    forward=_attend,
    backward=_gradients,
    check=lambda of, scale, normalize, eps: check(of, normalize),
    outputs=lambda of, scale, normalize, eps, *state: make_outputs(of, normalize, *state),
    like="v",
    kept="weights",
    flops=_flops,
    times=3,
    casts="q k v",
)
