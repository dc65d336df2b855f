"""Causal convolution of each channel along a sequence: y_t = activation(bias + sum over i of w_i x_(t - taps + 1 + i)).

State space models and gated linear attention have one in front, of 2 to 8 taps. One pass over memory: a warp goes along
the positions of some channels and keeps the last rows in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import FLOATS, Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime.arrays import numpy_dtype
from pykittens.types.dtypes import f32

TAPS = range(2, 9)
WARPS, CHANNELS = 4, 128  # of a block, and channels of a warp
AT_ONCE = 4  # rows that are loaded at a time
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"": lambda x: x, "silu": pk.silu}


def reference(
    x: Any, weight: Any, bias: Any = None, *, activation: str = "", initial_state: Any = None
) -> Any:
    """The same in float64."""
    taps, wide = weight.shape[1], x.astype(np.float64)
    before = (
        np.zeros((x.shape[0], taps - 1, x.shape[2])) if initial_state is None else initial_state
    )
    rows = np.concatenate([before.astype(np.float64), wide], axis=1)
    y = sum(rows[:, i : i + x.shape[1]] * weight[:, i].astype(np.float64) for i in range(taps))
    y = y if bias is None else y + bias.astype(np.float64)
    return y / (1 + np.exp(-y)) if activation else y


@pk.kernel
def conv_rows(x, weight, bias, y, before, after, *, rows, activation):  # type: ignore[no-untyped-def]
    """Some positions of some channels a warp; `after` is the last rows of `before` and x together."""
    batch, n, channels = x.shape
    taps = pk.static(weight.shape[1])
    b, part, block = pk.grid(batch, pk.cdiv(channels, CHANNELS * WARPS), pk.cdiv(n, rows))

    def row_of(t: Any, c: Any) -> Any:
        """A row of x, or of what is before it."""
        row = pk.load(x[b, t, c], cols=CHANNELS).to(f32)
        if before is None:
            return row
        return pk.where(t < 0, pk.load(before[b, t + taps - 1, c], cols=CHANNELS).to(f32), row)

    with pk.warps(WARPS) as w:
        c, first = part * WARPS + w, block * rows
        factors = [pk.load(weight[:, i][c], cols=CHANNELS).to(f32) for i in range(taps)]
        start: Any = pk.zeros(f32, CHANNELS)
        if bias is not None:
            start = pk.load(bias[c], cols=CHANNELS).to(f32)
        past = [row_of(first - taps + 1 + i, c) for i in range(taps - 1)]
        for t in pk.range(first, pk.minimum(first + rows, n), AT_ONCE):
            past = past + [pk.load(x[b, t + i, c], cols=CHANNELS).to(f32) for i in range(AT_ONCE)]
            for i in range(AT_ONCE):
                total = start
                for k in range(taps):
                    total = total + factors[k] * past[i + k]
                pk.store(y[b, t + i, c], activation(total).to(y.dtype))
            past = past[AT_ONCE:]
        if after is not None and block == 0:
            for i in range(taps - 1):
                pk.store(after[b, i, c], row_of(n - taps + 1 + i, c).to(after.dtype))


CASES = (
    {"batch": 8, "length": 4096, "channels": 4096, "taps": 4},
    {"batch": 1, "length": 16384, "channels": 2560, "taps": 4},
    {"batch": 2, "length": 100, "channels": 72, "taps": 4},
    {"batch": 1, "length": 3, "channels": 600, "taps": 8},
    {"batch": 1, "length": 65, "channels": 130, "taps": 2, "dtype": "f32"},
)


def inputs(
    rng: np.random.Generator,
    batch: int,
    length: int,
    channels: int,
    taps: int,
    dtype: str = "bf16",
) -> dict[str, Any]:
    """Random normal x, weight and bias."""
    shapes = {"x": (batch, length, channels), "weight": (channels, taps), "bias": (channels,)}
    return {n: rng.standard_normal(s).astype(numpy_dtype(dtype)) for n, s in shapes.items()}


def work(
    batch: int, length: int, channels: int, taps: int, dtype: str = "bf16"
) -> tuple[float, Any]:
    """The bytes of x and of the result."""
    return 2.0 * batch * length * channels * numpy_dtype(dtype).itemsize, "bytes"


def rival(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    """PyTorch's convolution of groups of one channel."""
    fill, groups = weight.shape[1] - 1, x.shape[2]
    conv = torch.nn.functional.conv1d
    y = conv(x.mT, weight[:, None], bias, padding=fill, groups=groups)
    return y[..., : x.shape[1]].mT


@entry(reference=reference, cases=CASES, inputs=inputs, rival=rival, work=work)
def causal_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    out: Any = None,
    *,
    activation: str = "",
    initial_state: Any = None,
    return_state: bool = False,
) -> Plan:
    """activation(bias + the convolution of each channel of x with the last positions), along a sequence.

    x: (batch, n, channels), weight: (channels, taps) with 2 to 8 taps, of which the last is that of the position, bias:
    (channels,); bf16, f16 or f32, NumPy or PyTorch. activation: "" or "silu". initial_state: (batch, taps - 1,
    channels), the rows before the first, by default 0. The result has the shape and dtype of x; it is written to `out`
    if that is given. With return_state it is (out, state), the last rows, with which a sequence goes on. Sums are in
    f32. An ArgumentError for other arguments.

        >>> causal_conv(np.ones((1, 5, 64), np.float32), np.ones((64, 3), np.float32))[0, :, 0]
        array([1., 2., 3., 3., 3.], dtype=float32)
    """
    given = {"x": x, "weight": weight, "bias": bias, "initial_state": initial_state, "out": out}
    arrays, of_x = Arrays("causal_conv", **given), "batch n channels"
    arrays.shapes(x=of_x, weight="channels taps", bias="channels")
    dims, dtype = arrays.dims, arrays.dtypes("x", "initial_state", among=FLOATS)
    arrays.dtypes("weight", "bias", among=FLOATS, same=False)
    if dims["taps"] not in TAPS:
        raise arrays.fail(f"`weight` must have 2 to 8 taps, not {dims['taps']}")
    if activation not in ACTIVATIONS:
        raise arrays.fail(f'`activation` must be "" or "silu", not {activation!r}')
    dims["before"] = dims["taps"] - 1
    arrays.shapes(initial_state="batch before channels")
    arrays.result(of_x, dtype, among=FLOATS)
    result: tuple[str, ...] = ("out",)
    if return_state:
        arrays.make("state", "batch before channels", dtype)
        result = ("out", "state")
    if 0 in (dims["batch"], dims["n"], dims["channels"]):
        raise arrays.fail(f"`x` must have elements, not the shape {arrays.found['x'].shape}")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    of_bias, before = (name if name in arrays else None for name in ("bias", "initial_state"))
    args = ("x", "weight", of_bias, "out", before, "state" if return_state else None)
    rows = rows_of(dims, limits_of(x).multiprocessors)
    constants = {"rows": rows, "activation": ACTIVATIONS[activation]}
    return Plan(arrays, [PlanStep(conv_rows, args, constants)], result=result)


def rows_of(dims: dict[str, Any], multiprocessors: int) -> int:
    """Positions of a block: as few as give each multiprocessor 8 blocks, from 16 on; rows before are loaded twice."""
    parts = dims["batch"] * -(-dims["channels"] // (CHANNELS * WARPS))
    rows: int = 16 * (dims["n"] * parts // (8 * multiprocessors) // 16)
    return max(16, min(256, rows))
