"""Causal convolution along lines of positions: the lanes of a warp hold neighbours of one channel.

`pk.shifted` finds the positions before, or behind in the gradients, mostly in the registers of the same lane. The
gradients are found from the end: those of x need the sums of the positions behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pykittens as pk
from pykittens.kernels.causal_conv.activation import activated, of_sum, scale_of, scaled
from pykittens.kernels.causal_conv.sequences import blocks_of, is_whole, of_sequence, place_of
from pykittens.types.dtypes import f32

WARPS, POSITIONS = (
    4,
    256,
)  # of a block, each with a channel, and positions that a warp has at a time
AT_ONCE = 4  # times as many positions are loaded
TURNS = 2  # times as many positions of gradients are found, after which values in registers change their places


def line_of(x: Any, c: Any, i: Any) -> Any:
    """Some positions of a channel."""
    return pk.load(x[c, i], cols=POSITIONS)


def state_line(before: Any, c: Any) -> Any:
    """The positions before the first, of which the last are those of a state."""
    count = pk.static(before.shape[1])
    return line_of(before.window(1, count - POSITIONS, count), c, 0).to(f32)


def shift_of(x: Any, b: Any, c: Any) -> Any:
    """How far the first position of a line lies past a multiple of 16 bytes, if lines lie one after another.

    Chunks begin as many positions before it, so that they move by 16 bytes. If lines lie otherwise, they do not.
    """
    unit = 16 // x.dtype.bytes
    _, channels, n = x.shape
    return (b * channels + c) % unit * (n % unit) % unit


def shifted_lines(tensors: Iterable[Any], shift: Any) -> list[Any]:
    """Matrices whose positions are `shift` behind those of their sequences."""
    return [t.window(1, -shift, t.shape[1]) for t in tensors]


def factors_of(weight: Any, bias: Any, c: Any, scale: float | None) -> tuple[list[Any], Any]:
    """The scaled factors of the taps of a channel, and what sums begin with."""
    taps = pk.static(weight.shape[1])
    factors = [scaled(pk.load(weight[c, i]), scale) for i in range(taps)]
    return factors, 0.0 if bias is None else scaled(pk.load(bias[c]), scale)


def taps_of(x: Any, before: Any, taps: int) -> list[Any]:
    """The positions that each tap of a line is multiplied with."""
    return [pk.shifted(x, before, taps - 1 - i) if i < taps - 1 else x for i in range(taps)]


def behind_of(x: Any, behind: Any, taps: int) -> list[Any]:
    """The positions that the taps of a line's gradient are multiplied with."""
    return [pk.shifted(x, behind, i + 1 - taps) if i < taps - 1 else x for i in range(taps)]


def weighted(start: Any, factors: list[Any], lines: list[Any]) -> Any:
    """start + the sum of factors times lines."""
    total = lines[0] * factors[0] + start
    for factor, line in zip(factors[1:], lines[1:], strict=True):
        total = total + line * factor
    return total


@pk.kernel
def conv_columns(  # type: ignore[no-untyped-def]
    x, weight, bias, y, before, after, ends, *, span, activation, skewed=0
):
    """Some positions of a channel a warp; `after` is the last positions of `before` and x together.

    skewed: positions that are added to those of a line, which then starts at any of them, or 0.
    """
    lead, channels, n = x.shape
    taps = pk.static(weight.shape[1])
    is_plain = x.dtype.bytes < 4 and is_whole(x, y) and ends is None and before is None
    pk.resident(6 if is_plain else 3)
    blocks = blocks_of(n + skewed, span, ends)
    b, part, block = pk.grid(lead, pk.cdiv(channels, WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y = (of_sequence(t, ends, b, 1, start, length) for t in (x, y))
        whole, stop = of_x, length
        if skewed:
            shift = shift_of(x, b, c)
            (of_x, of_y), stop = shifted_lines((of_x, of_y), shift), length + shift
        scale = scale_of(activation, x.dtype)
        factors, bias_of = factors_of(weight, bias, c, scale)
        i, stop = first // POSITIONS, pk.cdiv(pk.minimum(first + span, stop), POSITIONS)
        past = line_of(of_x, c, i - 1).to(f32)
        if before is not None:
            past = pk.where(first == 0, state_line(before.at(sequence), c), past)
        for j in pk.range(i, stop, AT_ONCE):
            for k, line in enumerate([line_of(of_x, c, j + k) for k in range(AT_ONCE)]):
                here = line.to(f32)
                total = weighted(bias_of, factors, taps_of(here, past, taps))
                pk.store(of_y[c, j + k], activated(activation, total, scale).to(y.dtype))
                past = here
        if after is not None and first == 0:
            count = taps - 1
            last = pk.load(whole.window(1, length - count, length)[c, 0], cols=count)
            if before is not None:
                earlier = before.at(sequence).window(1, length, length + count)
                is_earlier = pk.iota(count) < count - length
                last = pk.where(is_earlier, pk.load(earlier[c, 0], cols=count), last)
            pk.store(after[sequence, c, 0], last)


@pk.kernel
def conv_columns_backward(  # type: ignore[no-untyped-def]
    x, weight, bias, dy, before, d_after, ends, dx, d_before, parts, *, span, activation, skewed=0
):
    """dx of some positions of a channel a warp, d_before, and what they add to dw and the gradient of the bias."""
    lead, channels, n = x.shape
    taps, blocks = pk.static(weight.shape[1]), blocks_of(n + skewed, span, ends)
    is_plain = x.dtype.bytes < 4 and is_whole(x, dy, dx) and ends is None
    pk.resident(4 if is_plain and before is None and d_after is None and taps <= 4 else 2)
    b, part, block = pk.grid(lead, pk.cdiv(channels, WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        of_x, of_y, of_dx = (of_sequence(t, ends, b, 1, start, length) for t in (x, dy, dx))
        end = length
        if skewed:
            shift = shift_of(x, b, c)
            (of_x, of_y, of_dx), end = shifted_lines((of_x, of_y, of_dx), shift), length + shift
        scale = scale_of(activation, x.dtype)
        factors, bias_of = factors_of(weight, bias, c, scale)
        i, last = first // POSITIONS, pk.minimum(first + span, end)
        stop = i + pk.cdiv(last - first, TURNS * POSITIONS) * TURNS
        sums: list[Any] = [pk.zeros(f32, POSITIONS)] * (taps + 1)

        def of_sums(lines: list[Any], of_result: Any) -> Any:
            """dz, by the lines of x that it is of and its line of dy."""
            z = weighted(bias_of, factors, lines)
            return of_sum(activation, of_result.to(f32), z, scale)

        def with_own(line: Any, j: Any) -> Any:
            """A line of dx, or of d_before as the line before the first, with that of d_after."""
            if d_after is None:
                return line
            own = d_after.at(sequence).window(1, (j * POSITIONS + taps - 1) - length, taps - 1)
            return line + line_of(own, c, 0).to(f32)

        # The next line that is needed is on its way while one is computed with.
        here, past = line_of(of_x, c, stop).to(f32), line_of(of_x, c, stop - 1)
        behind = of_sums(taps_of(here, past.to(f32), taps), line_of(of_y, c, stop))
        here, past = past, line_of(of_x, c, stop - 2)
        of_result = line_of(of_y, c, stop - 1)
        for of_turns in pk.range(stop - 1, i - 1, -TURNS):
            for turn in range(TURNS):
                j = of_turns - turn
                next_past, next_of_result = line_of(of_x, c, j - 2), line_of(of_y, c, j - 1)
                earlier = past.to(f32)
                if before is not None:
                    earlier = pk.where(j == 0, state_line(before.at(sequence), c), earlier)
                lines = taps_of(here.to(f32), earlier, taps)
                own = of_sums(lines, of_result)
                of_taps = [s + own * line for s, line in zip(sums, lines, strict=False)]
                sums = [*of_taps, sums[taps] + own]
                line = with_own(weighted(0.0, factors, behind_of(own, behind, taps)), j)
                pk.store(of_dx[c, j], line.to(dx.dtype))
                behind, here, past, of_result = own, past, next_past, next_of_result
        if d_before is not None and first == 0:
            line = weighted(0.0, factors, behind_of(pk.zeros(f32, POSITIONS), behind, taps))
            state = d_before.at(sequence).window(1, taps - 1 - POSITIONS, taps - 1)
            pk.store(state[c, 0], with_own(line, -1).to(d_before.dtype))
        for k in range(taps + 1):
            pk.store(parts[b * blocks + block, k, c], scaled(pk.sum(sums[k]), scale))
