"""States at the starts of segments of a sequence, so that many blocks share it: what each adds, and a scan of that."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    bounds_of,
    chunk_products,
    chunks_of,
    drained_gates,
    fill_gates,
    gates_ring,
    keep,
    rows_of,
    values_in,
    zeros,
)
from pykittens.kernels.linear.sequences import own_registers, sequence_of

COLUMNS = 16  # of a state that a block of the scan takes
AT_ONCE = 8  # segments that it loads at a time


@pk.kernel
def segment_states(  # type: ignore[no-untyped-def]
    K,
    V,
    decay,
    rate,
    bias,
    states,
    totals,
    ends,
    *,
    config,
    reverse=False,
    exact=False,
    softplus=False,
):
    """The state that each segment of chunks would end with if it began with 0, and the sum of its decay.

    ends: as of `chunk_outputs`.
    """
    batch, heads, segments, d, width = states.shape
    n, d, width, dtype = V.shape[2], pk.static(d), pk.static(width), V.dtype
    rows, groups, columns = rows_of(d), config.groups, config.columns
    pk.resident(config.resident)
    pk.overlap()
    ring: Any = pk.pipeline(
        config.stages, k=pk.st(dtype, CHUNK, rows), v=pk.st(dtype, CHUNK, columns * groups)
    )
    gates = None if decay is None else gates_ring(config.stages, rate is not None)
    tiles = values_in(decay, exact)
    scaled: Any = [pk.shared(pk.st(dtype, CHUNK, columns), count=groups) for _ in range(tiles)]
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            k, v = (here.matrix(x, h, heads) for x in (K, V))
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.v, v[i, part])

    if gates is not None:
        with pk.producer(registers=own_registers(ends, config)):
            for b, h, part, segment in tasks:
                here = sequence_of(ends, b, n, chunks)
                span = bounds_of(here.chunks, segments, segment)
                sums = fill_gates(gates, (decay, rate, bias), softplus, here, h, span, reverse)
                if part == 0:
                    pk.store(totals[b, h, segment], sums)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state = zeros(rows // ROWS, columns)
            for _ in chunks_of(here.chunks, segments, segment, reverse):
                _, part_of, total, *_ = drained_gates(gates, reverse, rate is not None)
                with ring.drain() as t:
                    v, memory = t.v.tiles(CHUNK, columns)[0, w], (None, [x[w] for x in scaled])
                    *_, state = chunk_products(None, t.k, v, state, (part_of, total), memory, False)
            keep(state, states.at(b, h, segment), part * groups + w)


@pk.kernel
def clear(x):  # type: ignore[no-untyped-def]
    """0 in place of all elements."""
    batch, heads, n, width = x.shape
    b, h, i, c = pk.grid(batch, heads, pk.cdiv(n, CHUNK), pk.cdiv(width, ROWS))
    pk.store(x[b, h, i, c], pk.zeros(pk.f32, CHUNK, ROWS).to(x.dtype))


@pk.function
def log_of_segment(totals: Any, b: Any, h: Any, segment: Any, r: Any) -> Any:
    """The sum of the decay of a segment, or that of each row of a state."""
    if totals is None:
        return 0.0
    if len(totals.shape) == 3:
        return pk.load(totals[b, h, segment])
    return pk.load(totals[b, h, segment, r], cols=ROWS, spread=pk.per_row)


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
        # Those past the last are loaded, too, so that no load waits for a branch.
        some = [pk.minimum(first + i, segments - 1) for i in range(AT_ONCE)]
        some = [segments - 1 - i for i in some] if reverse else some
        added = [pk.load(states[b, h, i, r, c], rows=ROWS, cols=COLUMNS) for i in some]
        logs = [log_of_segment(totals, b, h, i, r) for i in some]
        for i in range(AT_ONCE):
            if first + i < segments:
                pk.store(states[b, h, some[i], r, c], state)
                kept = state if totals is None else state * pk.exp2(logs[i])
                state = kept + added[i] * unit
    if after is not None:
        pk.store(after[b, h, r, c], state)
