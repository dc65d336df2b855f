"""Mamba-2, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.linear import mamba2 as scan
from pykittens.kernels.linear import mamba2_backward
from pykittens.kernels.linear.call import OF_STATE, OF_V
from pykittens.kernels.linear.mamba2 import check_mamba2, make_gradients
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

_WAY = "compute it by products of PyTorch, in f32 or position by position"


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
    return_state: bool = False,
) -> Any:
    """y = S^T C + D x at each position, with the state S = exp(A dt) S + B (dt x)^T, of bf16 or f16; sums in f32.

    x: (batch, heads, n, width), B, C: (batch, groups, n, d), in any strides; d and width are at most 256. Head h goes
    with group h // (heads / groups). dt: (batch, heads, n), bf16, f16 or f32; dt_bias (heads,) is added to it, and the
    softplus of that is taken if `softplus`; the result must be at least 0. A, at most 0, and D: (heads,), f32. The
    result has the shape and dtype of x. initial_state: f32 (batch, heads, d, width). With return_state the result is
    (out, state), f32, the state after the last position. All that is given has a gradient. Raises ArgumentError for a
    call without a kernel.

        >>> x, dt = torch.ones(1, 1, 3, 16, dtype=torch.bfloat16), torch.ones(1, 1, 3)
        >>> mamba2(x, dt, torch.zeros(1), x, x)[0, 0, :, 0]
        tensor([16., 32., 48.], dtype=torch.bfloat16)
    """
    arrays = (x, B, C, dt, A, D, dt_bias, initial_state)
    found = MAMBA2.call(arrays, (softplus, return_state), False)
    return found if return_state else found[0]


def _check(of: Operands, softplus: bool, return_state: bool) -> None:
    check_mamba2(of)
    of.result(OF_V, of.found["x"].dtype)
    of.make("state", OF_STATE if return_state else "0", "f32")


def _run(
    x: Tensor,
    B: Tensor,
    C: Tensor,
    dt: Tensor,
    A: Tensor,
    D: Any = None,
    dt_bias: Any = None,
    initial_state: Any = None,
    softplus: bool = False,
    return_state: bool = False,
) -> Any:
    how: dict[str, Any] = {"softplus": softplus, "return_state": return_state}
    found = scan(x, dt, A, B, C, D, dt_bias, initial_state=initial_state, **how)
    return found if return_state else (found, x.new_empty(0, dtype=torch.float32))


def _setup(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*args[:8])
    ctx.softplus, returns_state = args[8:]
    if not returns_state:
        ctx.mark_non_differentiable(result[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, of_state: Tensor | None) -> tuple[Any, ...]:
    x, B, C, dt, A, *optional = ctx.saved_tensors
    gradient = torch.zeros_like(x) if gradient is None else gradient
    found = GRADIENTS.launch(x, dt, A, B, C, gradient, *optional, of_state, ctx.softplus)
    dx, ddt, dA, dB, dC = found[:5]
    own = (None if x is None else g for x, g in zip(optional, found[5:], strict=True))
    return dx, dB, dC, ddt, dA, *own, None, None


def _check_gradients(of: Operands, softplus: bool) -> None:
    check_mamba2(of)
    make_gradients(of, all_of_them=True)


def _run_gradients(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    gradient: Tensor,
    D: Any = None,
    dt_bias: Any = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    softplus: bool = False,
) -> Any:
    states = {"initial_state": initial_state, "state_gradient": state_gradient}
    args = (x, dt, A, B, C, gradient, D, dt_bias)
    found = [*mamba2_backward(*args, softplus=softplus, **states)]
    more = iter(found[5:])
    nothing = x.new_empty(0, dtype=torch.float32)
    return *found[:5], *(nothing if y is None else next(more) for y in (D, dt_bias, initial_state))


def _flops(x: Tensor, B: Tensor, *_: Any) -> int:
    """The products of the recurrence: of each position with the state, and its part of that."""
    flops: int = 4 * x.numel() * B.shape[3]
    return flops


MAMBA2 = Operator(
    "mamba2(Tensor x, Tensor B, Tensor C, Tensor dt, Tensor A, Tensor? D=None, Tensor? dt_bias=None,"
    " Tensor? initial_state=None, bool softplus=False, bool return_state=False) -> (Tensor, Tensor)",
    _check,
    _run,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts=3,
    way=_WAY,
)

GRADIENTS = Operator(
    "mamba2_backward(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor gradient,"
    " Tensor? D=None, Tensor? dt_bias=None, Tensor? initial_state=None, Tensor? state_gradient=None,"
    " bool softplus=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _check_gradients,
    _run_gradients,
    flops=lambda x, dt, A, B, *_: 3 * _flops(x, B),
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
    way=_WAY,
)
