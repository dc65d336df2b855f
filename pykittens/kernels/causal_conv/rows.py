"""Causal convolution along rows of channels: a warp goes from position to position, the last rows in its registers.

With z the sums before the activation, and dz_t = dy_t activation'(z_t),

    dx_s = sum over k of w_k dz_(s + taps - 1 - k)        dw_k = sum over t of dz_t x_(t - taps + 1 + k)

so a row of dx is done taps - 1 positions after its own.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.causal_conv.activation import activated, of_sum, scale_of, scaled
from pykittens.kernels.causal_conv.ring import begin, fill, ring_of, taken
from pykittens.kernels.causal_conv.sequences import blocks_of, is_whole, of_sequence, place_of
from pykittens.types.dtypes import f32

WARPS, CHANNELS = 4, 128  # of a block, and channels of a warp
AT_ONCE = 8  # rows that are worked on, or loaded by lanes, at a time
ROWS = 16  # of a stage


def factors_of(weight: Any, bias: Any, c: Any, scale: float | None) -> tuple[list[Any], Any]:
    """The scaled factors of the taps of some channels, and what sums begin with."""
    taps = pk.static(weight.shape[1])
    factors = [scaled(pk.load(weight[:, i][c], cols=CHANNELS), scale) for i in range(taps)]
    if bias is None:
        return factors, pk.zeros(f32, CHANNELS)
    return factors, scaled(pk.load(bias[c], cols=CHANNELS), scale)


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
def conv_rows(  # type: ignore[no-untyped-def]
    x, weight, bias, y, before, after, ends, *, span, activation, stages=0
):
    """Some positions of some channels a warp; `after` is the last rows of `before` and x together.

    stages: of a ring of rows, or 0 for loads by lanes.
    """
    lead, n, channels = x.shape
    taps, scale = pk.static(weight.shape[1]), scale_of(activation, x.dtype)
    most = 5 if taps <= 4 else 4 if taps <= 6 or before is None else 3
    pk.resident(most if is_whole(x, y, before) else 2)
    ring = ring_of(stages, WARPS, pk.st(x.dtype, ROWS, CHANNELS))
    parts = pk.cdiv(channels, CHANNELS * WARPS)
    b, part, block = pk.grid(lead, parts, blocks_of(n, span, ends))
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y = (of_sequence(t, ends, b, 0, start, length, first + span) for t in (x, y))
        at_once = AT_ONCE if ring is None else ROWS
        rounds = pk.cdiv(pk.minimum(first + span, length) - first, at_once)

        def sources(k: Any) -> Any:
            return (x.at(b)[block * (span // ROWS) + k, c],)

        begin(ring, w, rounds, sources)
        state = None if before is None else before.at(sequence)
        past = [row_of(of_x, state, first - taps + 1 + i, c) for i in range(taps - 1)]
        ahead = rows_at(of_x, first, c, AT_ONCE if ring is None else 0)
        factors, bias_of = factors_of(weight, bias, c, scale)
        for k in pk.range(rounds):
            t = first + k * at_once
            (rows,) = (None,) if ring is None else taken(ring, w, k)
            for i in range(at_once):
                if ring is None:
                    past = [*past, ahead[i].to(f32)]
                    ahead[i] = pk.load(of_x[t + at_once + i, c], cols=CHANNELS)
                else:
                    past = [*past, pk.load(rows.row(i)).to(f32)]
                total = weighted(bias_of, factors, past[-taps:])
                pk.store(of_y[t + i, c], activated(activation, total, scale).to(y.dtype))
            past = past[at_once:]
            if ring is not None:
                fill(ring, w, k + stages, rounds, sources)
        if after is not None and first == 0:
            whole = of_sequence(x, ends, b, 0, start, length)
            for i in range(taps - 1):
                row = row_of(whole, state, length - taps + 1 + i, c)
                pk.store(after[sequence, i, c], row.to(after.dtype))


@pk.kernel
def conv_rows_backward(  # type: ignore[no-untyped-def]
    x, weight, bias, dy, before, d_after, ends, dx, d_before, parts, *, span, activation, stages=0
):
    """dx of some positions of some channels a warp, d_before, and what they add to dw and the gradient of the bias."""
    lead, n, channels = x.shape
    taps, blocks = pk.static(weight.shape[1]), blocks_of(n, span, ends)
    scale = scale_of(activation, x.dtype)
    # After as many rows as there are taps, each row in registers is in the place of another.
    at_once = max(taps, 4)
    most = 3 if before is not None or d_after is not None else 4
    pk.resident((most if taps <= 4 else 3 if taps <= 6 else 2) if is_whole(x, dy, dx) else 2)
    b, part, block = pk.grid(lead, pk.cdiv(channels, CHANNELS * WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        stops = first + (span + taps - 1), first + (span + taps - 1), first + span
        of_x, of_y, of_dx = (
            of_sequence(t, ends, b, 0, start, length, stop)
            for t, stop in zip((x, dy, dx), stops, strict=True)
        )
        state = None if before is None else before.at(sequence)
        factors, bias_of = factors_of(weight, bias, c, scale)
        is_first: Any = (first == 0).to(f32)
        sums: list[Any] = [pk.zeros(f32, CHANNELS)] * (taps + 1)

        def counted(rows: list[Any], sums: list[Any], of_result: Any, factor: Any) -> Any:
            """dz, by the rows of x that it is of and its row of dy; and the sums with `factor` times its own."""
            found = of_sum(activation, of_result, weighted(bias_of, factors, rows), scale)
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

        ahead, of_ahead = (rows_at(y, first + taps - 1, c, at_once) for y in (of_x, of_y))
        stop = pk.minimum(first + span, length)
        for t in pk.range(first, stop, at_once):
            following = t + at_once + taps - 1
            for i in range(at_once):
                past, of_result = [*past, ahead[i].to(f32)], of_ahead[i].to(f32)
                ahead[i], of_ahead[i] = (
                    pk.load(y[following + i, c], cols=CHANNELS) for y in (of_x, of_y)
                )
                of_row, sums = counted(past[-taps:], sums, of_result, None)
                of_past = [*of_past, of_row]
                later = weighted(pk.zeros(f32, CHANNELS), factors, of_past[-1 : -taps - 1 : -1])
                pk.store(of_dx[t + i, c], with_own(later, t + i).to(dx.dtype))
            past, of_past = past[at_once:], of_past[at_once:]
        for i in range(taps + 1):
            pk.store(parts[b * blocks + block, i, c], scaled(sums[i], scale))
