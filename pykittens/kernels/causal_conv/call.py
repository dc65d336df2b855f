"""What the host functions of causal convolutions share: checks, and the layout that kernels take."""

from __future__ import annotations

from typing import Any

from pykittens.kernels.arrays import FLOATS, Arrays
from pykittens.kernels.causal_conv import columns, rows
from pykittens.kernels.causal_conv.activation import ACTIVATIONS
from pykittens.kernels.limits import limits_of
from pykittens.kernels.sequences import count_sequences
from pykittens.runtime.fakes import is_equal

TAPS = range(2, 9)


def specs(channels_first: bool) -> tuple[str, str]:
    """The shapes of x and of a state."""
    if channels_first:
        return "batch channels n", "sequences channels before"
    return "batch n channels", "sequences before channels"


def make_outputs(arrays: Arrays, channels_first: bool, return_state: Any) -> tuple[str, ...]:
    """Add the result, and a state if it is returned, of the dtype of x; the names of both."""
    (of_x, of_state), dtype = specs(channels_first), arrays.found["x"].dtype
    arrays.result(of_x, dtype, among=FLOATS)
    return "out", *arrays.optional("state", of_state, dtype, return_state)


def check(arrays: Arrays, activation: Any, channels_first: Any) -> None:
    """Raise an ArgumentError unless all arguments fit one another."""
    dims = arrays.dims
    if activation not in ACTIVATIONS:
        raise arrays.fail(f'`activation` must be "" or "silu", not {activation!r}')
    of_x, of_state = specs(channels_first)
    arrays.shapes(x=of_x, gradient=of_x, weight="channels taps", bias="channels")
    arrays.dtypes("x", "gradient", "initial_state", "state_gradient", among=FLOATS)
    arrays.dtypes("weight", "bias", among=FLOATS, same=False)
    count_sequences(arrays, "x")
    if dims["taps"] not in TAPS:
        raise arrays.fail(f"`weight` must have 2 to 8 taps, not {dims['taps']}")
    dims["before"] = dims["taps"] - 1
    arrays.shapes(initial_state=of_state, state_gradient=of_state)
    if any(is_equal(dims[axis], 0) for axis in ("batch", "n", "channels")):
        raise arrays.fail(f"`x` must have elements, not the shape {arrays.found['x'].shape}")


def span_of(arrays: Arrays, channels_first: bool) -> int:
    """Positions of a block: as few as give each multiprocessor 8 blocks; some before them are loaded twice."""
    batch, n, channels = (arrays.dims[axis] for axis in ("batch", "n", "channels"))
    of_block, least, most = rows.CHANNELS * rows.WARPS, 16, 128
    if channels_first:
        least, most = columns.POSITIONS * columns.AT_ONCE, 4096
        of_block = columns.WARPS
    parts = batch * -(-channels // of_block)
    span = least * (n * parts // (8 * limits_of(arrays.like).multiprocessors) // least)
    return max(least, min(most, int(span)))
