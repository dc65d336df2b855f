"""The gradients of causal convolutions: those of weights are summed by each block, and by a second launch over all."""

from __future__ import annotations

import functools
from typing import Any

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.causal_conv.call import check, skew_of, span_of, stages_of
from pykittens.kernels.causal_conv.columns import conv_columns_backward
from pykittens.kernels.causal_conv.rows import conv_rows_backward
from pykittens.kernels.causal_conv.sequences import blocks_of
from pykittens.kernels.library import host_function
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

SIDE = 64  # partial sums and channels that a block takes at a time


@pk.kernel
def sum_parts(parts, d_weight, d_bias):  # type: ignore[no-untyped-def]
    """The gradient of a tap of some channels, or of the bias, by partial sums (parts, taps + 1, channels)."""
    count, _, channels = parts.shape
    taps = d_weight.shape[1]
    tap, c = pk.grid(taps if d_bias is None else taps + 1, pk.cdiv(channels, SIDE))
    total = pk.zeros(pk.f32, SIDE, SIDE)
    for i in pk.range(pk.cdiv(count, SIDE)):
        total = total + pk.load(parts[:, tap][i, c], rows=SIDE, cols=SIDE)
    sums = pk.col_sum(total)
    if tap < taps:
        pk.store(d_weight[:, tap][c], sums.to(d_weight.dtype))
    elif d_bias is not None:
        pk.store(d_bias[c], sums.to(d_bias.dtype))


@functools.partial(host_function, numbers={})
def causal_conv_backward(
    x: Any,
    weight: Any,
    gradient: Any,
    bias: Any = None,
    *,
    activation: str = "",
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    channels_first: bool = False,
) -> Plan:
    """The gradients of x and weight, and then those of bias and of initial_state if these are given.

    gradient: that of the result, of the shape and dtype of x. state_gradient: that of the state after the last
    position, or None. The other arguments are those of causal_conv. The gradients have the shapes and dtypes of what
    they are of. Sums are in f32 and in one order, so equal calls have equal results. An ArgumentError for other
    arguments.

        >>> x, weight = np.ones((1, 5, 64), np.float32), np.ones((64, 3), np.float32)
        >>> dx, d_weight = causal_conv_backward(x, weight, x)
        >>> dx[0, :, 0], d_weight[0]
        (array([3., 3., 3., 2., 1.], dtype=float32), array([3., 4., 5.], dtype=float32))
    """
    given = {"x": x, "weight": weight, "gradient": gradient, "bias": bias, "ends": ends}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("causal_conv_backward", **given)
    check(arrays, activation, channels_first)
    dims, result = arrays.dims, arrays.gradients("x", "weight", "bias", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    skew, taps = skew_of(arrays, channels_first), int(dims["taps"])
    of_lines = (4 if taps <= 4 else 3) - bool(skew)
    resident = of_lines if channels_first else 3 if taps <= 6 else 2
    span = span_of(arrays, channels_first, resident, more=2 * (taps + 1))
    positions = dims["n"] + skew.get("skewed", 0)
    blocks = dims["batch"] * blocks_of(positions, span, arrays.views.get("ends"))
    scratch = {"parts": Scratch((blocks, dims["taps"] + 1, dims["channels"]))}
    names = "bias", "initial_state", "state_gradient", "ends"
    of_bias, before, behind, of_ends = arrays.present(*names)
    d_bias, d_before = "d_bias" if of_bias else None, "d_initial_state" if before else None
    args = ("x", "weight", of_bias, "gradient", before, behind, of_ends, "dx", d_before, "parts")
    stages = stages_of(arrays, channels_first, span, skew, "x", "gradient")
    constants = {"span": span, "activation": activation, "stages": stages, **skew}
    steps = [
        PlanStep(conv_columns_backward if channels_first else conv_rows_backward, args, constants),
        PlanStep(sum_parts, ("parts", "d_weight", d_bias)),
    ]
    return Plan(arrays, steps, scratch, result)
