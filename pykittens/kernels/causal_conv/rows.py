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
FORWARD = 64  # rows of a block at most, so that blocks at the same time read rows near one another


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


def row_at(stage: Any, row: Any, ahead: list[Any], i: int) -> Any:
    """A row of a stage, or row i of those that lanes have loaded."""
    return ahead[i] if stage is None else pk.load(stage.row(row))


@pk.kernel
def conv_rows(  # type: ignore[no-untyped-def]
    x, weight, bias, y, before, after, ends, *, span, activation, stages=0
):
    """Some positions of some channels a warp; `after` is the last rows of `before` and x together.

    stages: of a ring of rows, or 0 for loads by lanes.
    """
    lead, n, channels = x.shape
    taps, scale = pk.static(weight.shape[1]), scale_of(activation, x.dtype)
    most = (4 if taps > 4 else 5) if before is None else 4 if taps <= 6 else 3
    pk.resident(most if is_whole(x, y, before) else 2)
    ring = ring_of(stages, WARPS, pk.st(x.dtype, ROWS, CHANNELS))
    parts = pk.cdiv(channels, CHANNELS * WARPS)
    # Blocks that run at the same time take whole rows, which lie in one page of memory.
    b, block, part = pk.grid(lead, blocks_of(n, span, ends), parts)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y = (of_sequence(t, ends, b, 0, start, length, first + span) for t in (x, y))
        rounds = pk.cdiv(pk.minimum(first + span, length) - first, ROWS)

        def sources(k: Any) -> Any:
            return (x.at(b)[block * (span // ROWS) + k, c],)

        begin(ring, w, rounds, sources)
        state = None if before is None else before.at(sequence)
        past = [row_of(of_x, state, first - taps + 1 + i, c) for i in range(taps - 1)]
        ahead = rows_at(of_x, first, c, AT_ONCE if ring is None else 0)
        factors, bias_of = factors_of(weight, bias, c, scale)
        for k in pk.range(rounds):
            (stage,) = (None,) if ring is None else taken(ring, w, k)
            for some in pk.range(ROWS // AT_ONCE):
                t = first + k * ROWS + some * AT_ONCE
                for i in range(AT_ONCE):
                    past = [*past, row_at(stage, some * AT_ONCE + i, ahead, i).to(f32)]
                    if ring is None:
                        ahead[i] = pk.load(of_x[t + AT_ONCE + i, c], cols=CHANNELS)
                    total = weighted(bias_of, factors, past[-taps:])
                    pk.store(of_y[t + i, c], activated(activation, total, scale).to(y.dtype))
                past = past[AT_ONCE:]
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
    pk.resident(3 if taps <= 6 and is_whole(x, dy, dx) else 2)
    ring = ring_of(stages, WARPS, *(pk.st(t.dtype, ROWS, CHANNELS) for t in (x, dy)))
    b, block, part = pk.grid(lead, blocks, pk.cdiv(channels, CHANNELS * WARPS))
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        stop = first + (span + taps - 1)
        of_x, of_y = (of_sequence(t, ends, b, 0, start, length, stop) for t in (x, dy))
        # Rows before those of the block are not stored.
        of_dx = of_sequence(dx, ends, b, 0, start, length, first + span).window(
            0, first, first + span
        )
        at_once = AT_ONCE if ring is not None else 4 if taps <= 6 else 2
        rounds = pk.cdiv(pk.minimum(first + span, length) - first, ROWS)

        def sources(k: Any) -> Any:
            at = block * (span // ROWS) + k
            return x.at(b)[at, c], dy.at(b)[at, c]

        begin(ring, w, rounds, sources)
        state = None if before is None else before.at(sequence)
        past = [row_of(of_x, state, first - taps + 1 + i, c) for i in range(taps - 1)]
        count = at_once if ring is None else 0
        ahead, of_ahead = (rows_at(y, first, c, count) for y in (of_x, of_y))
        factors, bias_of = factors_of(weight, bias, c, scale)
        sums: list[Any] = [pk.zeros(f32, CHANNELS)] * (taps + 1)
        of_past: list[Any] = [pk.zeros(f32, CHANNELS)] * (taps - 1)

        def of_sums(rows: list[Any], of_result: Any) -> Any:
            """dz, by the rows of x that it is of and its row of dy."""
            return of_sum(activation, of_result.to(f32), weighted(bias_of, factors, rows), scale)

        def found(of_rows: list[Any], t: Any) -> Any:
            """A row of dx, or of d_before at negative positions, by the rows of dz that there are from its own on."""
            zero = pk.zeros(f32, CHANNELS)
            row = weighted(zero, factors[: len(of_rows)], of_rows[::-1])
            if d_after is None:
                return row
            return row + pk.load(d_after[sequence, t - length + taps - 1, c], cols=CHANNELS).to(f32)

        def store_row(of_rows: list[Any], t: Any) -> None:
            """Store a row of dx, if it is one of the block."""
            pk.store(of_dx[t - first, c], found(of_rows, t).to(dx.dtype))

        if d_before is not None and first == 0:
            rows, of_rows = list(past), list[Any]()
            for i in range(taps - 1):
                rows = [*rows, pk.load(of_x[i, c], cols=CHANNELS).to(f32)]
                of_rows = [*of_rows, of_sums(rows[i:], pk.load(of_y[i, c], cols=CHANNELS))]
                own = found(of_rows, i - taps + 1)
                pk.store(d_before[sequence, i, c], own.to(d_before.dtype))
        for k in pk.range(rounds):
            held = (None, None) if ring is None else taken(ring, w, k)
            for some in pk.range(ROWS // at_once):
                t = first + k * ROWS + some * at_once
                for i in range(at_once):
                    row, of_result = (
                        row_at(stage, some * at_once + i, rows, i)
                        for stage, rows in zip(held, (ahead, of_ahead), strict=True)
                    )
                    if ring is None:
                        ahead[i], of_ahead[i] = (
                            pk.load(y[t + at_once + i, c], cols=CHANNELS) for y in (of_x, of_y)
                        )
                    past = [*past, row.to(f32)]
                    own = of_sums(past[-taps:], of_result)
                    of_taps = [s + own * row for s, row in zip(sums, past[-taps:], strict=False)]
                    sums, of_past = [*of_taps, sums[taps] + own], [*of_past, own]
                    store_row(of_past[-taps:], t + i - taps + 1)
                past, of_past = past[at_once:], of_past[at_once:]
            if ring is not None:
                fill(ring, w, k + stages, rounds, sources)
        # The last rows need those of dz behind, which the next block counts.
        t = first + rounds * ROWS
        if ring is not None or taps - 1 > at_once:
            ahead, of_ahead = (rows_at(y, t, c, taps - 1) for y in (of_x, of_y))
        for i in range(taps - 1):
            past = [*past, ahead[i].to(f32)]
            of_past = [*of_past, of_sums(past[-taps:], of_ahead[i])]
            store_row(of_past[-taps:], t + i - taps + 1)
        for i in range(taps + 1):
            pk.store(parts[b * blocks + block, i, c], scaled(sums[i], scale))
