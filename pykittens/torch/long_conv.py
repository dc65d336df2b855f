"""Long convolutions of the channels of a sequence, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pykittens.kernels.long_conv import long_conv as convolve
from pykittens.kernels.long_conv import long_conv_backward
from pykittens.kernels.long_conv.call import OF_FILTER, OF_SEQUENCES, check_filter, check_sequences
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

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
    return LONG_CONV.call((u, filter, gate_before, gate_after), (circular,), False)


def _check(of: Operands, circular: bool) -> None:
    check_sequences(of, "u", "gate_before", "gate_after")
    check_filter(of, of.dims["n"])
    of.result(OF_SEQUENCES, of.found["u"].dtype)


def _run(
    u: Tensor,
    filter: Tensor,
    gate_before: Any = None,
    gate_after: Any = None,
    circular: Any = False,
) -> Any:
    gates = {"gate_before": gate_before, "gate_after": gate_after}
    return convolve(u, filter, **gates, circular=circular)


def _setup(ctx: Any, args: tuple[Any, ...], _: Tensor) -> None:
    ctx.save_for_backward(*args[:4])
    ctx.circular = args[4]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    u, filter, before, after = ctx.saved_tensors
    found = GRADIENTS.launch(u, filter, gradient, before, after, ctx.circular)
    of_gates = (
        None if gate is None else x for gate, x in zip((before, after), found[2:], strict=True)
    )
    return *found[:2], *of_gates, None


def _check_gradients(of: Operands, circular: bool) -> None:
    check_sequences(of, "u", "gradient", "gate_before", "gate_after")
    check_filter(of, of.dims["n"])
    dtype = of.found["u"].dtype
    of.make("du", OF_SEQUENCES, dtype)
    of.make("d_filter", OF_FILTER, "f32")
    for name in ("gate_before", "gate_after"):
        of.make(f"d_{name}", OF_SEQUENCES if name in of else "0", dtype)


def _run_gradients(
    u: Tensor,
    filter: Tensor,
    gradient: Tensor,
    gate_before: Any = None,
    gate_after: Any = None,
    circular: Any = False,
) -> Any:
    gates = {"gate_before": gate_before, "gate_after": gate_after}
    found = long_conv_backward(u, filter, gradient, **gates, circular=circular)
    more = [*found[2:]]
    of_gates = (
        u.new_empty(0) if gate is None else more.pop(0) for gate in (gate_before, gate_after)
    )
    return *found[:2], *of_gates


def _flops(u: Tensor, *_: Any) -> int:
    """Transforms of length n to and fro, of 5 n log2(n) operations each, for real sequences half of that."""
    n = u.shape[2]
    flops: int = 5 * u.numel() * max(n - 1, 1).bit_length()
    return flops


LONG_CONV = Operator(
    "long_conv(Tensor u, Tensor filter, Tensor? gate_before=None, Tensor? gate_after=None,"
    " bool circular=False) -> Tensor",
    _check,
    _run,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts=1,
    way=_WAY,
)

GRADIENTS = Operator(
    "long_conv_backward(Tensor u, Tensor filter, Tensor gradient, Tensor? gate_before=None,"
    " Tensor? gate_after=None, bool circular=False) -> (Tensor, Tensor, Tensor, Tensor)",
    _check_gradients,
    _run_gradients,
    flops=lambda u, *_: 3 * _flops(u),
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
    way=_WAY,
)
