"""Causal convolution along lines of positions: the lanes of a warp hold neighbours of one channel.

`pk.shifted` finds the positions before, or behind in the gradients, mostly in the registers of the same lane. The
gradients are found from the end: those of x need the sums of the positions behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.causal_conv.activation import activated, of_sum, scale_of, scaled
from pykittens.kernels.causal_conv.ring import Ring, begin, fill, ring_of, taken
from pykittens.kernels.causal_conv.sequences import blocks_of, is_whole, of_sequence, place_of
from pykittens.types.dtypes import f32

WARPS, POSITIONS = (
    4,
    256,
)  # of a block, each with a channel, and positions that a warp has at a time
AT_ONCE = 4  # times as many positions are loaded


def is_flat(x: Any) -> bool:
    """Whether all lines of a tensor are one, so that any 16 bytes of it are a chunk."""
    return len(x.shape) == 1


def place_in(x: Any, c: Any, i: Any) -> Any:
    """Place i of a channel."""
    return x[i] if is_flat(x) else x[c, i]


def line_of(x: Any, c: Any, i: Any) -> Any:
    """Some positions of a channel."""
    return pk.load(place_in(x, c, i), cols=POSITIONS)


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


@dataclass(frozen=True)
class Line:
    """A sequence of channel c: of batch b, or from `start` on and `length` long with `ends`, and its shift.

    like: a tensor of the shape of x, which may be flat.
    """

    like: Any
    ends: Any
    b: Any
    c: Any
    start: Any
    length: Any
    shift: Any

    def of(self, x: Any, shift: Any, stop: Any) -> Any:
        """The matrix of a tensor, or its line if it is flat, whose positions are `shift` behind the sequence's."""
        if is_flat(x):
            _, channels, n = self.like.shape
            first = (self.b * channels + self.c) * n
            return x.window(0, first - shift, x.shape[0] if stop is None else first + stop)
        found = of_sequence(x, self.ends, self.b, 1, self.start, self.length)
        return found if stop is None or is_zero(shift) else found.window(1, -shift, stop)

    def inside(self, x: Any) -> Any:
        """Its positions, and none around them."""
        return self.of(x, self.shift, self.length)

    def around(self, x: Any) -> Any:
        """What the copy engine copies of: a flat tensor goes on after the line."""
        return self.of(x, self.shift, None)


def is_zero(shift: Any) -> bool:
    """Whether a shift is known to be none."""
    return isinstance(shift, int) and shift == 0


@pk.function
def clear(stage: Any, first: Any, stop: Any) -> None:
    """Set the positions of a stage before `first` and from `stop` on, which are of other lines, to 0."""
    for k in pk.range(AT_ONCE):
        part, at = stage.parts(POSITIONS)[k], pk.iota(POSITIONS) + k * POSITIONS
        line = pk.load(part)
        is_own = (at >= first) & (at < stop)
        pk.store(part, pk.where(is_own, line, pk.zeros(line.dtype, POSITIONS)))
    pk.fence_async()


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


def ring_for(stages: int, *tensors: Any) -> Ring | None:
    """A ring of stages of AT_ONCE times POSITIONS of a line of each tensor."""
    return ring_of(stages, WARPS, *(pk.sv(t.dtype, AT_ONCE * POSITIONS) for t in tensors))


def lines_at(stage: Any, k: Any, x: Any, c: Any, j: Any, turns: int) -> list[Any]:
    """Some lines: from line k of a stage on, or from line j of a channel on."""
    if stage is None:
        return [line_of(x, c, j + turn) for turn in range(turns)]
    return [pk.load(stage.parts(POSITIONS)[k + turn]) for turn in range(turns)]


@pk.kernel
def conv_columns(  # type: ignore[no-untyped-def]
    x, weight, bias, y, before, after, ends, *, span, activation, stages=0, skewed=0
):
    """Some positions of a channel a warp; `after` is the last positions of `before` and x together.

    stages: of a ring of lines, or 0 for loads by lanes. skewed: positions that are added to those of a line, which then
    starts at any of them, or 0.
    """
    lead, channels, n = y.shape
    taps = pk.static(weight.shape[1])
    is_plain = x.dtype.bytes < 4 and is_whole(x, y) and ends is None and before is None
    pk.resident(6 if is_plain else 4 if is_flat(x) else 3)
    ring, turns = ring_for(stages, x), 1 if is_flat(x) else AT_ONCE
    blocks = blocks_of(n + skewed, span, ends)
    b, part, block = pk.grid(lead, pk.cdiv(channels, WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        line = Line(y, ends, b, c, start, length, shift_of(y, b, c) if skewed else 0)
        of_x, of_y, stop = line.inside(x), line.inside(y), length + line.shift
        scale = scale_of(activation, x.dtype)
        i = first // POSITIONS
        rounds = pk.cdiv(pk.minimum(first + span, stop) - first, AT_ONCE * POSITIONS)

        def sources(k: Any) -> Any:
            return (place_in(line.around(x), c, block * (span // (AT_ONCE * POSITIONS)) + k),)

        begin(ring, w, rounds, sources)
        past = line_of(of_x, c, i - 1).to(f32)
        if before is not None:
            past = pk.where(first == 0, state_line(before.at(sequence), c), past)
        factors, bias_of = factors_of(weight, bias, c, scale)
        for k in pk.range(rounds):
            j = i + k * AT_ONCE
            (stage,) = (None,) if ring is None else taken(ring, w, k)
            if ring is not None and skewed and first + k == 0:
                clear(stage, line.shift, stop)
            for some in pk.range(0, AT_ONCE, turns):
                lines = lines_at(stage, some, of_x, c, j + some, turns)
                for turn, narrow in enumerate(lines):
                    here = narrow.to(f32)
                    total = weighted(bias_of, factors, taps_of(here, past, taps))
                    own = activated(activation, total, scale).to(y.dtype)
                    pk.store(of_y[c, j + some + turn], own)
                    past = here
            if ring is not None:
                fill(ring, w, k + stages, rounds, sources)
        if after is not None and first == 0:
            count = taps - 1
            whole = line.of(x, 0, length)
            last = whole.window(len(whole.shape) - 1, length - count, length)
            last = pk.load(place_in(last, c, 0), cols=count)
            if before is not None:
                earlier = before.at(sequence).window(1, length, length + count)
                is_earlier = pk.iota(count) < count - length
                last = pk.where(is_earlier, pk.load(earlier[c, 0], cols=count), last)
            pk.store(after[sequence, c, 0], last)


@pk.kernel
def conv_columns_backward(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    dy,
    before,
    d_after,
    ends,
    dx,
    d_before,
    parts,
    *,
    span,
    activation,
    stages=0,
    skewed=0,
):
    """dx of some positions of a channel a warp, d_before, and what they add to dw and the gradient of the bias."""
    lead, channels, n = dx.shape
    taps, blocks = pk.static(weight.shape[1]), blocks_of(n + skewed, span, ends)
    are_narrow = x.dtype.bytes < 4 and ends is None and before is None and d_after is None
    is_plain = are_narrow and is_whole(x, dy, dx)
    pk.resident(
        (4 if is_plain else 3) if taps <= 4 and (is_plain or is_flat(x)) else 3 if is_plain else 2
    )
    ring, turns = ring_for(stages, x, dy), 1 if is_flat(x) or (not stages and taps > 6) else 2
    b, part, block = pk.grid(lead, pk.cdiv(channels, WARPS), blocks)
    with pk.warps(WARPS) as w:
        c = part * WARPS + w
        sequence, first, start, length = place_of(ends, b, block, span, n)
        line = Line(dx, ends, b, c, start, length, shift_of(dx, b, c) if skewed else 0)
        of_x, of_y, of_dx = (line.inside(t) for t in (x, dy, dx))
        end = length + line.shift
        scale = scale_of(activation, x.dtype)
        i = first // POSITIONS
        rounds = pk.cdiv(pk.minimum(first + span, end) - first, AT_ONCE * POSITIONS)

        def sources(k: Any) -> Any:
            at = block * (span // (AT_ONCE * POSITIONS)) + k
            return tuple(place_in(line.around(t), c, at) for t in (x, dy))

        begin(ring, w, rounds, sources)
        past = line_of(of_x, c, i - 1).to(f32)
        if before is not None:
            past = pk.where(first == 0, state_line(before.at(sequence), c), past)
        factors, bias_of = factors_of(weight, bias, c, scale)
        sums: list[Any] = [pk.zeros(f32, POSITIONS)] * (taps + 1)
        own = pk.zeros(f32, POSITIONS)

        def of_sums(lines: list[Any], of_result: Any) -> Any:
            """dz, by the lines of x that it is of and its line of dy."""
            z = weighted(bias_of, factors, lines)
            return of_sum(activation, of_result.to(f32), z, scale)

        def found(own: Any, behind: Any, j: Any) -> Any:
            """A line of dx, or of d_before as the line before the first, by its dz and that of the line behind."""
            whole = weighted(0.0, factors, behind_of(own, behind, taps))
            if d_after is None:
                return whole
            of_last = d_after.at(sequence).window(1, (j * POSITIONS + taps - 1) - length, taps - 1)
            return whole + line_of(of_last, c, 0).to(f32)

        def store_state(line: Any) -> None:
            """Store the last positions of a line to d_before."""
            state = d_before.at(sequence).window(1, taps - 1 - POSITIONS, taps - 1)
            pk.store(state[c, 0], line.to(d_before.dtype))

        # A line of dx is found with the next one of dz.
        for k in pk.range(rounds):
            j = i + k * AT_ONCE
            of_stage, of_stage_y = (None, None) if ring is None else taken(ring, w, k)
            if ring is not None and skewed and (first + k == 0 or k == rounds - 1):
                for stage in (of_stage, of_stage_y):
                    at = first + k * (AT_ONCE * POSITIONS)
                    clear(stage, line.shift - at, end - at)
            for some in pk.range(0, AT_ONCE, turns):
                of_results = lines_at(of_stage_y, some, of_y, c, j + some, turns)
                of_lines = lines_at(of_stage, some, of_x, c, j + some, turns)
                for turn, narrow in enumerate(of_lines):
                    here = narrow.to(f32)
                    lines = taps_of(here, past, taps)
                    behind = of_sums(lines, of_results[turn])
                    of_taps = [s + behind * line for s, line in zip(sums, lines, strict=False)]
                    sums = [*of_taps, sums[taps] + behind]
                    if turn > 0 or k + some > 0:
                        at = j + some + turn - 1
                        pk.store(of_dx[c, at], found(own, behind, at).to(dx.dtype))
                    elif d_before is not None and first == 0:
                        store_state(found(own, behind, -1))
                    past, own = here, behind
            if ring is not None:
                fill(ring, w, k + stages, rounds, sources)
        if rounds > 0:
            j = i + rounds * AT_ONCE
            lines = taps_of(line_of(of_x, c, j).to(f32), past, taps)
            behind = of_sums(lines, line_of(of_y, c, j))
            pk.store(of_dx[c, j - 1], found(own, behind, j - 1).to(dx.dtype))
        elif d_before is not None and first == 0:
            store_state(found(own, own, -1))
        for tap in range(taps + 1):
            pk.store(parts[b * blocks + block, tap, c], scaled(pk.sum(sums[tap]), scale))
