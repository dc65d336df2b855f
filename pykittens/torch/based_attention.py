"""Based linear attention, with gradients of everything that is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.linear.based import based_attention as attend
from pykittens.kernels.linear.based import based_attention_backward
from pykittens.kernels.linear.based.call import OF_QK, OF_STATE, OF_V, check
from pykittens.kernels.linear.based.function import EPS
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

_WAY = "compute it by products of PyTorch, in f32 or position by position"


def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    normalize: bool = False,
    eps: float = EPS,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """The sum of (1 + s + s^2 / 2) v over all positions up to each, with s = scale q k; sums in f32.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), all bf16 or all f16, in any strides; d is at most 32. The
    result (batch, heads, n, width) has their dtype. scale: 1 / sqrt(d) if None. normalize: divide by the sum of the
    weights and eps. initial_state: f32 (batch, heads, d (d + 1) / 2 + d + 1, width), or width + 1 with `normalize`.
    With return_state the result is (out, state), f32, the state after the last position. All that is given has a
    gradient. Raises ArgumentError for a call without a kernel.

        >>> x = torch.ones(1, 2, 8, 16, dtype=torch.bfloat16)
        >>> based_attention(x, x, x, normalize=True)[0, 0, :3, 0]
        tensor([1., 1., 1.], dtype=torch.bfloat16)
    """
    how = scale, normalize, eps, return_state
    found = BASED_ATTENTION.call((q, k, v, initial_state), how, False)
    return found[:2] if return_state else found[0]


def _check(of: Operands, scale: Any, normalize: bool, eps: Any, return_state: bool) -> None:
    check(of, normalize)
    of.result(OF_V, of.found["v"].dtype)
    of.make("state", OF_STATE if return_state else "0", "f32")
    of.make("weights", "batch heads n" if normalize else "0", "f32")


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    initial_state: Any = None,
    scale: Any = None,
    normalize: bool = False,
    eps: float = EPS,
    return_state: bool = False,
) -> Any:
    how: dict[str, Any] = {"scale": scale, "normalize": normalize, "eps": eps}
    how |= {"initial_state": initial_state, "return_state": return_state}
    found = attend(q, k, v, **how, return_weights=normalize)
    out, *more = found if isinstance(found, tuple) else (found,)
    state = more.pop(0) if return_state else q.new_empty(0, dtype=torch.float32)
    return out, state, more[0] if normalize else q.new_empty(0, dtype=torch.float32)


def _setup(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, ...]) -> None:
    ctx.scale, ctx.is_divided = args[4:6]
    ctx.save_for_backward(*args[:4], *((result[0], result[2]) if ctx.is_divided else (None, None)))
    ctx.mark_non_differentiable(*(result[2:] if args[7] else result[1:]))
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, of_state: Tensor | None, *_: Any) -> Any:
    q, k, v, before, out, weights = ctx.saved_tensors
    gradient = torch.zeros_like(v) if gradient is None else gradient
    found = GRADIENTS.launch(q, k, v, gradient, out, weights, before, of_state, ctx.scale)
    return *found[:3], None if before is None else found[3], None, None, None, None


def _check_gradients(of: Operands, scale: Any) -> None:
    check(of, "weights" in of)
    for name, x in (("dq", OF_QK), ("dk", OF_QK), ("dv", OF_V)):
        of.make(name, x, of.found["v"].dtype)
    of.make("d_initial_state", OF_STATE if "initial_state" in of else "0", "f32")


def _run_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gradient: Tensor,
    out: Any = None,
    weights: Any = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    scale: Any = None,
) -> Any:
    how = {"initial_state": initial_state, "state_gradient": state_gradient, "scale": scale}
    found = based_attention_backward(q, k, v, gradient, out, weights, **how)
    nothing = q.new_empty(0, dtype=torch.float32)
    return found if initial_state is not None else (*found, nothing)


def _flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """The products of the recurrence: of the features of each position with the state, and its part of that."""
    d = q.shape[3]
    flops: int = 4 * v.numel() * (1 + d + d * d)
    return flops


BASED_ATTENTION = Operator(
    "based_attention(Tensor q, Tensor k, Tensor v, Tensor? initial_state=None, float? scale=None,"
    " bool normalize=False, float eps=1e-6, bool return_state=False) -> (Tensor, Tensor, Tensor)",
    _check,
    _run,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts=3,
    way=_WAY,
)

GRADIENTS = Operator(
    "based_attention_backward(Tensor q, Tensor k, Tensor v, Tensor gradient, Tensor? out=None,"
    " Tensor? weights=None, Tensor? initial_state=None, Tensor? state_gradient=None,"
    " float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)",
    _check_gradients,
    _run_gradients,
    flops=lambda q, k, v, *_: 3 * _flops(q, k, v),
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
    way=_WAY,
)
