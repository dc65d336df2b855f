"""What the host functions of causal convolutions share: checks, and the layout that kernels take."""

from __future__ import annotations

import math
from typing import Any

from pykittens.kernels.arrays import FLOATS, Arrays, has_lines, reshaped
from pykittens.kernels.causal_conv import columns, rows
from pykittens.kernels.causal_conv.activation import ACTIVATIONS
from pykittens.kernels.causal_conv.ring import STAGES
from pykittens.kernels.limits import limits_of
from pykittens.kernels.sequences import count_sequences
from pykittens.runtime.fakes import is_equal

TAPS = range(2, 9)
# Of blocks, in units of 16 rows or 1,024 positions of a line.
SPANS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 19, 22, 26, 32, 38, 44)

FLAT = 2**31 - 2**16  # elements, whose positions are int32


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


def unit_of(channels_first: bool) -> int:
    """Positions of a stage, of which a block has a number."""
    return columns.POSITIONS * columns.AT_ONCE if channels_first else rows.ROWS


def span_of(
    arrays: Arrays, channels_first: bool, resident: int, more: int = 0, most: int = FLAT
) -> int:
    """Positions of a block, at most `most`, so that blocks take the least time if `resident` share a multiprocessor.

    A block takes the time of its positions and of some more: it loads weights, and positions before its own; `more` is
    that of what it stores once. The last blocks take less if fewer of them share a multiprocessor, but half of the time
    at least. Some blocks take longer than others, which an eighth of one stands for. A kernel is compiled for each of
    few spans.
    """
    batch, n, channels = (int(arrays.dims[axis]) for axis in ("batch", "n", "channels"))
    of_block, own, unit = rows.CHANNELS * rows.WARPS, 16, unit_of(channels_first)
    if channels_first:
        of_block, own = columns.WARPS, 512
    parts, count = batch * -(-channels // of_block), limits_of(arrays.like).multiprocessors

    def time(span: int) -> float:
        turns, rest = divmod(-(-parts * -(-n // span) // count), resident)
        return (turns + bool(rest) * max(rest / resident, 0.5)) * (span + own + more) + span / 8

    return min((unit * units for units in SPANS if unit * units <= most), key=time)


def skew_of(arrays: Arrays, channels_first: bool) -> dict[str, int]:
    """The constant `skewed` of kernels for lines, if these start at any position and no state or sequence in them does.

    A line lies past a multiple of 16 bytes by less than that; so many positions more have blocks.
    """
    others = arrays.present("initial_state", "state_gradient", "ends")
    unit = 16 // arrays.found["x"].itemsize
    if not channels_first or any(others) or int(arrays.dims["n"]) % unit == 0:
        return {}
    return {"skewed": unit - 1}


def stages_of(
    arrays: Arrays, channels_first: bool, span: int, skew: dict[str, int], *names: str
) -> int:
    """The stages of a ring for these arrays, or 0: the copy engine of Hopper moves 16-bit elements of aligned lines.

    Of lines that start at any position it moves what lies around them, if arrays can be taken as one line. For a span
    of one stage a ring is of no use.
    """
    if (
        span == unit_of(channels_first)
        or "ends" in arrays
        or arrays.found["x"].itemsize != 2
        or not limits_of(arrays.like).warpgroups
    ):
        return 0
    own = {name: arrays.views[name] for name in names}
    if skew:
        shape = (math.prod(arrays.found["x"].shape),)
        views = [None if name in arrays.copies else reshaped(x, shape) for name, x in own.items()]
        ends_at = shape[0] + columns.WARPS * int(arrays.dims["n"])  # of the last block's lines
        if ends_at >= FLAT or not all(view is not None and has_lines(view) for view in views):
            return 0
        for name, view in zip(names, views, strict=True):
            arrays.view(name, view)
    if all(map(arrays.reachable, names)):
        return STAGES
    for name, view in own.items():
        arrays.view(name, view)
    return 0
