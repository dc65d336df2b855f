"""Causal convolution along rows of channels: a warp goes from position to position, the last rows in its registers.

With z the sums before the activation, and dz_t = dy_t activation'(z_t),

    dx_s = sum over k of w_k dz_(s + taps - 1 - k)        dw_k = sum over t of dz_t x_(t - taps + 1 + k)

so a row of dx is done taps - 1 positions after its own.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.causal_conv.activation import activated, slope
from pykittens.kernels.causal_conv.sequences import blocks_of, of_sequence, place_of
from pykittens.types.dtypes import f32

WARPS, CHANNELS = 4, 128  # of a block, and channels of a warp
AT_ONCE, AT_ONCE_BACKWARD = 8, 4  # rows that are loaded at a time


def factors_of(weight: Any, bias: Any, c: Any) -> tuple[list[Any], Any]:
    """The factors of the taps of some channels, and what sums begin with."""
    taps = pk.static(weight.shape[1])
    factors = [pk.load(weight[:, i][c], cols=CHANNELS).to(f32) for i in range(taps)]
    if bias is None:
        return factors, pk.zeros(f32, CHANNELS)
    return factors, pk.load(bias[c], cols=CHANNELS).to(f32)


def weighted(start: Any, factors: list[Any], rows: list[Any]) -> Any:
    """start + the sum of factors times rows."""
    for factor, row in zip(factors, rows, strict=True):
        start = start + factor * row
    return start


def row_of(x: Any, before: Any, t: Any, c: Any) -> Any:
    """A row of a sequence, or of what is before it."""
    row = pk.load(x[t, c], cols=CHANNELS).to(f32)
    if before is None:
        return row
    return pk.where(t < 0, pk.load(before[t + before.shape[0], c], cols=CHANNELS).to(f32), row)


def rows_at(x: Any, t: Any, c: Any, count: int) -> list[Any]:
    """The rows of some positions, which are loaded while those before them are worked on."""
    return [pk.load(x[t + i, c], cols=CHANNELS) for i in range(count)]


@pk.kernel
def conv_rows(x, weight, bias, y, before, after, ends, *, span, activation):  # type: ignore[no-untyped-def]
    """Some positions of some channels a warp; `after` is the last rows of `before` and x together."""
    lead, n, channels = x.shape
    taps = pk.static(weight.shape[1])
    parts = pk.cdiv(channels, CHANNELS * WARPS)
    b, part, block = pk.grid(lead, parts, blocks_of(n, span, ends))
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y = (of_sequence(t, ends, b, 0, start, length) for t in (x, y))
        state = None if before is None else before.at(sequence)
        factors, bias_of = factors_of(weight, bias, c)
        past = [row_of(of_x, state, first - taps + 1 + i, c) for i in range(taps - 1)]
        ahead = rows_at(of_x, first, c, AT_ONCE)
        for t in pk.range(first, pk.minimum(first + span, length), AT_ONCE):
            past, ahead = (
                past + [row.to(f32) for row in ahead],
                rows_at(of_x, t + AT_ONCE, c, AT_ONCE),
            )
            for i in range(AT_ONCE):
                total = weighted(bias_of, factors, past[i : i + taps])
                pk.store(of_y[t + i, c], activated(activation, total, y.dtype).to(y.dtype))
            past = past[AT_ONCE:]
        if after is not None and first == 0:
            for i in range(taps - 1):
                row = row_of(of_x, state, length - taps + 1 + i, c)
                pk.store(after[sequence, i, c], row.to(after.dtype))


@pk.kernel
def conv_rows_backward(  # type: ignore[no-untyped-def]
    x, weight, bias, dy, before, d_after, ends, dx, d_before, parts, *, span, activation
):
    """dx of some positions of some channels a warp, d_before, and what they add to dw and the gradient of the bias."""
    lead, n, channels = x.shape
    taps, blocks = pk.static(weight.shape[1]), blocks_of(n, span, ends)
    pk.resident(4 if taps <= 4 else 2)
    b, part, block = pk.grid(lead, pk.cdiv(channels, CHANNELS * WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y, of_dx = (of_sequence(t, ends, b, 0, start, length) for t in (x, dy, dx))
        state = None if before is None else before.at(sequence)
        factors, bias_of = factors_of(weight, bias, c)
        is_first: Any = (first == 0).to(f32)
        sums: list[Any] = [pk.zeros(f32, CHANNELS)] * (taps + 1)

        def counted(rows: list[Any], sums: list[Any], of_result: Any, factor: Any) -> Any:
            """dz, by the rows of x that it is of and its row of dy; and the sums with `factor` times its own."""
            found = of_result * slope(activation, weighted(bias_of, factors, rows), x.dtype)
            own = found if factor is None else found * factor
            of_taps = [s + own * r for s, r in zip(sums, rows, strict=False)]
            return found, [*of_taps, sums[taps] + own]

        def with_own(row: Any, t: Any) -> Any:
            """A row of dx, or of d_before at negative positions, with that of d_after."""
            if d_after is None:
                return row
            at = d_after[sequence, t - length + taps - 1, c]
            return row + pk.load(at, cols=CHANNELS).to(f32)

        # Of the first positions here, which the block before has counted.
        past = [row_of(of_x, state, first - taps + 1 + i, c) for i in range(taps - 1)]
        of_past: list[Any] = []
        for i in range(taps - 1):
            past = [*past, pk.load(of_x[first + i, c], cols=CHANNELS).to(f32)]
            of_result = pk.load(of_y[first + i, c], cols=CHANNELS).to(f32)
            of_row, sums = counted(past[i : i + taps], sums, of_result, is_first)
            of_past = [*of_past, of_row]
        past = past[taps - 1 :]
        if d_before is not None and first == 0:
            for i in range(taps - 1):
                row = weighted(pk.zeros(f32, CHANNELS), factors[: i + 1], of_past[i::-1])
                row = with_own(row, i - taps + 1)
                pk.store(d_before[sequence, i, c], row.to(d_before.dtype))

        ahead, of_ahead = (rows_at(y, first + taps - 1, c, AT_ONCE_BACKWARD) for y in (of_x, of_y))
        for t in pk.range(first, pk.minimum(first + span, length), AT_ONCE_BACKWARD):
            past, of_results = past + [row.to(f32) for row in ahead], of_ahead
            following = t + AT_ONCE_BACKWARD + taps - 1
            ahead, of_ahead = (rows_at(y, following, c, AT_ONCE_BACKWARD) for y in (of_x, of_y))
            for i in range(AT_ONCE_BACKWARD):
                of_result = of_results[i].to(f32)
                of_row, sums = counted(past[i : i + taps], sums, of_result, None)
                of_past = [*of_past, of_row]
                later = weighted(pk.zeros(f32, CHANNELS), factors, of_past[i : i + taps][::-1])
                pk.store(of_dx[t + i, c], with_own(later, t + i).to(dx.dtype))
            past, of_past = past[AT_ONCE_BACKWARD:], of_past[AT_ONCE_BACKWARD:]
        for i in range(taps + 1):
            pk.store(parts[b * blocks + block, i, c], sums[i])
