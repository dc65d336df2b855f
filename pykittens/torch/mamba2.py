"""Mamba-2, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.linear import mamba2 as scan
from pykittens.kernels.linear import mamba2_backward
from pykittens.kernels.linear.call import check_width, make_outputs
from pykittens.kernels.linear.mamba2 import check_mamba2
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.operands import Operands


def mamba2(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    *,
    softplus: bool = False,
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """y = S^T C + D x at each position, with the state S = exp(A dt) S + B (dt x)^T, of bf16 or f16; sums in f32.

    x: (batch, heads, n, width), B, C: (batch, groups, n, d), in any strides; d and width are at most 256. Head h goes
    with group h // (heads / groups). dt: (batch, heads, n), bf16, f16 or f32; dt_bias (heads,) is added to it, and the
    softplus of that is taken if `softplus`; the result must be at least 0. A, at most 0, and D: (heads,), f32. The
    result has the shape and dtype of x. initial_state: f32 (batch, heads, d, width). With return_state the result is
    (out, state), f32, the state after the last position. ends: int32 (sequences + 1,), where each of several sequences
    in a batch of 1 starts, and where the last one ends, as of linear_attention. All but `ends` has a gradient. Raises
    ArgumentError for a call without a kernel.

        >>> x, dt = torch.ones(1, 1, 3, 16, dtype=torch.bfloat16), torch.ones(1, 1, 3)
        >>> mamba2(x, dt, torch.zeros(1), x, x)[0, 0, :, 0]
        tensor([16., 32., 48.], dtype=torch.bfloat16)
    """
    arrays = (x, dt, A, B, C, D, dt_bias, initial_state, ends)
    return MAMBA2.call(arrays, (softplus, return_state))


def _check(of: Operands, softplus: Any) -> None:
    check_mamba2(of)
    check_width(of)  # of the gradients, before a call is recorded for them


def _flops(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, *_: Any) -> int:
    """The products of the recurrence: of each position with the state, and its part of that."""
    flops: int = 4 * x.numel() * B.shape[3]
    return flops


MAMBA2 = Differentiable(
    "mamba2",
    "x dt A B C D? dt_bias? initial_state?",
    "bool softplus=False",
    constants="ends?",
    forward=scan,
    backward=mamba2_backward,
    check=_check,
    outputs=lambda of, softplus, return_state: make_outputs(of, return_state, "x"),
    like="x",
    flops=_flops,
    times=3,
    casts="x B C",
)
