"""Causal convolution of each channel along a sequence, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.causal_conv import causal_conv as convolve
from pykittens.kernels.causal_conv import causal_conv_backward
from pykittens.kernels.causal_conv.call import check, make_outputs
from pykittens.torch.differentiable import Differentiable

_WAY = "compute it with torch.nn.functional.conv1d"


def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "",
    initial_state: Tensor | None = None,
    ends: Tensor | None = None,
    channels_first: bool = False,
    return_state: bool = False,
) -> Any:
    """activation(bias + the convolution of each channel of x with the last positions), along a sequence.

    x: (batch, n, channels), weight: (channels, taps) with 2 to 8 taps, of which the last is that of the position, bias:
    (channels,); bf16, f16 or f32; sums are in f32. activation: "" or "silu". initial_state: (batch, taps - 1,
    channels), the rows before the first, of the dtype of x. The result has the shape and dtype of x. With return_state
    it is (out, state), the last rows, with which a sequence goes on. channels_first: x and the result are (batch,
    channels, n), and states (batch, channels, taps - 1). ends: int32 (sequences + 1,), where each of several sequences
    in a batch of 1 starts, and where the last one ends. Results and gradients of positions outside of all sequences are
    what memory held: let a last sequence take the padding. All but `ends` has a gradient. Raises ArgumentError for a
    call without a kernel.

        >>> x = torch.ones(1, 5, 8, dtype=torch.bfloat16)
        >>> causal_conv(x, torch.ones(8, 3, dtype=torch.bfloat16))[0, :, 0]
        tensor([1., 2., 3., 3., 3.], dtype=torch.bfloat16)
    """
    options = activation, channels_first, return_state
    return CAUSAL_CONV.call((x, weight, bias, initial_state, ends), options)


def _flops(x: Tensor, weight: Tensor, *_: Any) -> int:
    """A product and a sum for each tap."""
    flops: int = 2 * x.numel() * weight.shape[1]
    return flops


CAUSAL_CONV = Differentiable(
    "causal_conv",
    "x weight bias? initial_state?",
    'str activation="", bool channels_first=False',
    constants="ends?",
    forward=convolve,
    backward=causal_conv_backward,
    check=check,
    outputs=lambda of, activation, *how: make_outputs(of, *how),
    like="x",
    flops=_flops,
    times=2,
    way=_WAY,
)
