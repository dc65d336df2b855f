"""Long convolutions of the channels of a sequence, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.long_conv import long_conv as convolve
from pykittens.kernels.long_conv import long_conv_backward
from pykittens.kernels.long_conv.call import OF_SEQUENCES, check_filter, check_sequences
from pykittens.torch.differentiable import Differentiable
from pykittens.torch.operands import Operands

_WAY = "compute it with torch.fft, in f32"


def long_conv(
    u: Tensor,
    filter: Tensor,
    *,
    gate_before: Tensor | None = None,
    gate_after: Tensor | None = None,
    circular: bool = False,
) -> Any:
    """gate_after * (the convolution of gate_before * u with the filter of each channel), by Fourier transforms.

    u, gate_before, gate_after: (batch, channels, n), all bf16 or all f16; n is at most 2^20. filter: f32 (channels,
    taps) of 1 to n taps. Without `circular`, u is 0 before its first position. The result has the shape and dtype of u.
    All that is given has a gradient; that of the filter is f32. Raises ArgumentError for a call without a kernel.

        >>> u, filter = torch.ones(1, 2, 100, dtype=torch.bfloat16), torch.ones(2, 100)
        >>> long_conv(u, filter).shape
        torch.Size([1, 2, 100])
    """
    return LONG_CONV.call((u, filter, gate_before, gate_after), (circular,))


def _check(of: Operands, circular: bool) -> None:
    check_sequences(of, "u", "gradient", "gate_before", "gate_after")
    check_filter(of, of.dims["n"])


def _flops(u: Tensor, *_: Any) -> int:
    """Transforms of length n to and fro, of 5 n log2(n) operations each, for real sequences half of that."""
    n = u.shape[2]
    flops: int = 5 * u.numel() * max(n - 1, 1).bit_length()
    return flops


LONG_CONV = Differentiable(
    "long_conv",
    "u filter gate_before? gate_after?",
    "bool circular=False",
    forward=convolve,
    backward=long_conv_backward,
    check=_check,
    outputs=lambda of, circular: of.result(OF_SEQUENCES, of.found["u"].dtype),
    like="u",
    has_state=False,
    flops=_flops,
    times=3,
    casts="u",
    way=_WAY,
)
