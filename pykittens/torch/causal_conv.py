"""Causal convolution of each channel along a sequence, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.causal_conv import causal_conv as convolve
from pykittens.kernels.causal_conv import causal_conv_backward
from pykittens.kernels.causal_conv.call import check
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

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
    in a batch of 1 starts, and where the last one ends. All that is given has a gradient. Raises ArgumentError for a
    call without a kernel.

        >>> x = torch.ones(1, 5, 8, dtype=torch.bfloat16)
        >>> causal_conv(x, torch.ones(8, 3, dtype=torch.bfloat16))[0, :, 0]
        tensor([1., 2., 3., 3., 3.], dtype=torch.bfloat16)
    """
    how = activation, channels_first, return_state
    found = CAUSAL_CONV.call((x, weight, bias, initial_state, ends), how, False)
    return found if return_state else found[0]


def _check(of: Operands, activation: str, channels_first: bool, return_state: bool) -> None:
    of_x, of_state, dtype = check(of, activation, channels_first)
    of.result(of_x, dtype)
    of.make("state", of_state if return_state else "0", dtype)


def _run(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    initial_state: Any = None,
    ends: Any = None,
    activation: str = "",
    channels_first: bool = False,
    return_state: bool = False,
) -> Any:
    how: dict[str, Any] = {"activation": activation, "channels_first": channels_first}
    how |= {"initial_state": initial_state, "ends": ends, "return_state": return_state}
    found = convolve(x, weight, bias, **how)
    return found if return_state else (found, x.new_empty(0))


def _setup(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*args[:5])
    ctx.how, returns_state = args[5:7], args[7]
    if not returns_state:
        ctx.mark_non_differentiable(result[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, of_state: Tensor | None) -> tuple[Any, ...]:
    x, weight, bias, before, ends = ctx.saved_tensors
    gradient = torch.zeros_like(x) if gradient is None else gradient
    found = GRADIENTS.launch(x, weight, gradient, bias, before, of_state, ends, *ctx.how)
    dx, d_weight, d_bias, d_before = found
    d_bias = None if bias is None else d_bias
    return dx, d_weight, d_bias, None if before is None else d_before, None, None, None, None


def _check_gradients(of: Operands, activation: str, channels_first: bool) -> None:
    of_x, of_state, dtype = check(of, activation, channels_first)
    of.make("dx", of_x, dtype)
    of.make("d_weight", "channels taps", of.found["weight"].dtype)
    has_bias = "bias" in of
    of.make(
        "d_bias", "channels" if has_bias else "0", of.found["bias"].dtype if has_bias else dtype
    )
    of.make("d_initial_state", of_state if "initial_state" in of else "0", dtype)


def _run_gradients(
    x: Tensor,
    weight: Tensor,
    gradient: Tensor,
    bias: Any = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    activation: str = "",
    channels_first: bool = False,
) -> Any:
    how: dict[str, Any] = {"activation": activation, "channels_first": channels_first, "ends": ends}
    how |= {"initial_state": initial_state, "state_gradient": state_gradient}
    dx, d_weight, *more = causal_conv_backward(x, weight, gradient, bias, **how)
    d_bias = x.new_empty(0) if bias is None else more.pop(0)
    return dx, d_weight, d_bias, x.new_empty(0) if initial_state is None else more[0]


def _flops(x: Tensor, weight: Tensor, *_: Any) -> int:
    """A product and a sum for each tap."""
    flops: int = 2 * x.numel() * weight.shape[1]
    return flops


CAUSAL_CONV = Operator(
    "causal_conv(Tensor x, Tensor weight, Tensor? bias=None, Tensor? initial_state=None,"
    ' Tensor? ends=None, str activation="", bool channels_first=False,'
    " bool return_state=False) -> (Tensor, Tensor)",
    _check,
    _run,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    way=_WAY,
)

GRADIENTS = Operator(
    "causal_conv_backward(Tensor x, Tensor weight, Tensor gradient, Tensor? bias=None,"
    " Tensor? initial_state=None, Tensor? state_gradient=None, Tensor? ends=None,"
    ' str activation="", bool channels_first=False) -> (Tensor, Tensor, Tensor, Tensor)',
    _check_gradients,
    _run_gradients,
    flops=lambda x, weight, *_: 2 * _flops(x, weight),
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
    way=_WAY,
)
