"""States at the starts of segments, of what each segment adds: found by a launch for all, or by each block for its own.

A block that needs the state before segment s loads what s segments add, some at a time; with few segments that takes
less time than a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import ROWS

COLUMNS = 16  # of a state that a block of the scan takes
AT_ONCE = 8  # segments that it loads at a time
# Elements of states that fit the registers of a warpgroup, with those that it loads.
MOST = 9 * ROWS * 32


def at_once(parts: int, columns: int) -> int:
    """From how many segments a warpgroup loads states at a time, which have so many times ROWS rows, as its own has."""
    return max((MOST // (ROWS * columns) - parts) // parts, 1)


@pk.function
def log_of_segment(totals: Any, b: Any, h: Any, segment: Any, r: Any) -> Any:
    """The sum of the decay of a segment, or that of each row of a state; None without decay."""
    if totals is None:
        return None
    if len(totals.shape) == 3:
        return pk.load(totals[b, h, segment])
    return pk.load(totals[b, h, segment, r], cols=ROWS, spread=pk.per_row)


def some_of(first: Any, count: Any, segments: Any, some: int, reverse: bool) -> list[Any]:
    """Some segments from the first on, in the order of the recurrence.

    Those past `count` are the last again: they are loaded, too, so that no load waits for a branch.
    """
    found = [pk.minimum(first + i, count - 1) for i in range(some)]
    return [segments - 1 - i for i in found] if reverse else found


@pk.function
def after_segment(state: Any, log: Any, added: Any) -> Any:
    """A state after a segment, of the one before it, the sum of the segment's decay or None, and what it adds."""
    return added + (state if log is None else state * pk.exp2(log))


@pk.function
def after_some(
    state: list[Any],
    count: Any,
    segments: Any,
    size: int,
    load: Callable[[Any, int], Any],
    log: Callable[[Any, int], Any],
) -> list[Any]:
    """The parts of a state after `count` segments of the recurrence, of which `size` are loaded at a time.

    load, log: what a segment adds to a part, and the sum of its decay or None.
    """
    parts = range(len(state))
    for first in pk.range(0, count, size):
        some = some_of(first, count, segments, size, False)
        own, logs = ([[f(i, r) for r in parts] for i in some] for f in (load, log))
        for i in range(size):
            if first + i < count:
                state = [after_segment(state[r], logs[i][r], own[i][r]) for r in parts]
    return state


@pk.kernel
def scan_states(states, totals, before, after, unit, *, reverse=False):  # type: ignore[no-untyped-def]
    """What segments add becomes the states at their starts, in place; `after` is the state at the end of all.

    totals: the sums of decay of the segments, or of each row of their states; None without decay. before, after: `unit`
    times the states of the kernel, as are those at the starts of segments.
    """
    batch, heads, segments, d, width = states.shape
    pk.overlap()
    b, h, r, c = pk.grid(batch, heads, pk.cdiv(d, ROWS), pk.cdiv(width, COLUMNS))
    state = pk.zeros(pk.f32, ROWS, COLUMNS)
    if before is not None:
        state = pk.load(before[b, h, r, c], rows=ROWS, cols=COLUMNS)
    for first in pk.range(0, segments, AT_ONCE):
        some = some_of(first, segments, segments, AT_ONCE, reverse)
        added = [pk.load(states[b, h, i, r, c], rows=ROWS, cols=COLUMNS) for i in some]
        logs = [log_of_segment(totals, b, h, i, r) for i in some]
        for i in range(AT_ONCE):
            if first + i < segments:
                pk.store(states[b, h, some[i], r, c], state)
                state = after_segment(state, logs[i], added[i] * unit)
    if after is not None:
        pk.store(after[b, h, r, c], state)


@pk.function
def after_segments(
    state: list[Any],
    added: Any,
    totals: Any,
    place: Any,
    column: Any,
    last: tuple[Any, Any],
) -> list[Any]:
    """Some columns of the state at the start of a segment, of those of the state before all.

    added, totals: as the states and totals of `scan_states`. place: of the sequence, its head and the segment. last:
    where the last segment stores what a scan leaves at the end, or None, and of which that is a multiple.
    """
    (b, h, segment), segments, columns = place, added.shape[2], state[0].cols
    size, (dst, unit) = at_once(len(state), columns), last

    def load(i: Any, r: int) -> Any:
        return pk.load(added[b, h, i, r, column], rows=ROWS, cols=columns)

    def log(i: Any, r: int) -> Any:
        return log_of_segment(totals, b, h, i, r)

    state = after_some(state, segment, segments, size, load, log)
    if dst is not None and segment == segments - 1:
        for r, x in enumerate(state):
            y = after_segment(x, log(segment, r), load(segment, r))
            pk.store(dst[r, column], y if unit is None else y * unit)
    return state


@pk.function
def column_after_segments(
    x: Any, added: Any, place: Any, column: int, p: int, dst: Any, spread: Any = pk.plain
) -> Any:
    """ROWS rows, of part p, of a column of the state at the start of a segment: see `after_segments`.

    place: also of the columns of the block, the first of which store the last.
    """
    (b, h, segment, part), segments = place, added.shape[2]

    def load(i: Any, _: int) -> Any:
        return pk.load(added.at(b, h, i)[:, column][p], cols=ROWS, spread=spread)

    (x,) = after_some([x], segment, segments, AT_ONCE, load, lambda *_: None)
    if dst is not None and (segment == segments - 1) & (part == 0):
        pk.store(dst[:, column][p], after_segment(x, None, load(segment, 0)))
    return x
