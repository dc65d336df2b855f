"""The host function of causal convolutions, and its cases.

    y_t = activation(bias + sum over i of w_i x_(t - taps + 1 + i))

State space models and gated linear attention have one in front, of 2 to 8 taps. It is one pass over memory, along rows
of channels or along lines of positions, as x lies in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.causal_conv.call import check, make_outputs, skew_of, span_of, stages_of
from pykittens.kernels.causal_conv.columns import conv_columns
from pykittens.kernels.causal_conv.reference import reference
from pykittens.kernels.causal_conv.rows import FORWARD, conv_rows
from pykittens.kernels.library import entry
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime.arrays import numpy_dtype

CASES = (
    {"batch": 8, "length": 4096, "channels": 4096, "taps": 4},
    {"batch": 8, "length": 4096, "channels": 4096, "taps": 4, "channels_first": True},
    {"batch": 1, "length": 16384, "channels": 2560, "taps": 4},
    {"batch": 2, "length": 100, "channels": 72, "taps": 4},
    {"batch": 1, "length": 3, "channels": 600, "taps": 8},
    {"batch": 1, "length": 65, "channels": 130, "taps": 2, "dtype": "f32"},
    {"batch": 2, "length": 300, "channels": 6, "taps": 4, "channels_first": True},
)


def inputs(
    rng: np.random.Generator,
    batch: int,
    length: int,
    channels: int,
    taps: int,
    dtype: str = "bf16",
    channels_first: bool = False,
) -> dict[str, Any]:
    """Random normal x, weight and bias."""
    of_x = (batch, channels, length) if channels_first else (batch, length, channels)
    shapes = {"x": of_x, "weight": (channels, taps), "bias": (channels,)}
    found: dict[str, Any] = {
        n: rng.standard_normal(s).astype(numpy_dtype(dtype)) for n, s in shapes.items()
    }
    return found | ({"channels_first": True} if channels_first else {})


def work(
    batch: int,
    length: int,
    channels: int,
    taps: int,
    dtype: str = "bf16",
    channels_first: bool = False,
) -> tuple[float, Any]:
    """The bytes of x and of the result."""
    return 2.0 * batch * length * channels * numpy_dtype(dtype).itemsize, "bytes"


def rival(torch: Any, x: Any, weight: Any, bias: Any, channels_first: bool = False) -> Any:
    """PyTorch's convolution of groups of one channel."""
    x = x if channels_first else x.mT
    fill, groups, n = weight.shape[1] - 1, x.shape[1], x.shape[2]
    conv = torch.nn.functional.conv1d
    y = conv(x, weight[:, None], bias, padding=fill, groups=groups)[..., :n]
    return y if channels_first else y.mT


@entry(reference=reference, cases=CASES, inputs=inputs, rival=rival, work=work)
def causal_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    out: Any = None,
    *,
    activation: str = "",
    initial_state: Any = None,
    ends: Any = None,
    channels_first: bool = False,
    return_state: bool = False,
) -> Plan:
    """activation(bias + the convolution of each channel of x with the last positions), along a sequence.

    x: (batch, n, channels), weight: (channels, taps) with 2 to 8 taps, of which the last is that of the position, bias:
    (channels,); bf16, f16 or f32, NumPy or PyTorch. activation: "" or "silu". initial_state: (batch, taps - 1,
    channels), the rows before the first, by default 0. The result has the shape and dtype of x; it is written to `out`
    if that is given. With return_state it is (out, state), the last rows, with which a sequence goes on; one position
    after another is a sequence with n = 1. Sums are in f32.

    channels_first: x and the result are (batch, channels, n), and states (batch, channels, taps - 1); kernels then go
    along lines of positions. ends: int32 (sequences + 1,), where each of several sequences starts that lie one after
    another in a batch of 1, and where the last one ends; states are those of each sequence. An ArgumentError for other
    arguments.

        >>> causal_conv(np.ones((1, 5, 64), np.float32), np.ones((64, 3), np.float32))[0, :, 0]
        array([1., 2., 3., 3., 3.], dtype=float32)
    """
    given = {"x": x, "weight": weight, "bias": bias, "initial_state": initial_state}
    arrays = Arrays("causal_conv", **given, ends=ends, out=out)
    check(arrays, activation, channels_first)
    result = make_outputs(arrays, channels_first, return_state)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    of_bias, before, ends = arrays.present("bias", "initial_state", "ends")
    args = ("x", "weight", of_bias, "out", before, "state" if return_state else None, ends)
    skew = skew_of(arrays, channels_first)
    if channels_first:
        kernel, span = conv_columns, span_of(arrays, True, 4 if skew else 6)
    else:
        resident = 5 if arrays.dims["taps"] <= 4 else 4
        kernel, span = conv_rows, span_of(arrays, False, resident, most=FORWARD)
    stages = stages_of(arrays, channels_first, span, skew, "x")
    constants = {"span": span, "activation": activation, "stages": stages, **skew}
    return Plan(arrays, [PlanStep(kernel, args, constants)], result=result)
