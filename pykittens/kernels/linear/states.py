"""States at the starts of segments of a sequence, so that many blocks share it: what each adds, and a scan of that."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    chunks_of,
    drained_gates,
    fill_gates,
    gates_ring,
    log_decay,
    matrix_of,
    next_state,
    rows_of,
)

COLUMNS = 64  # of a state that a block of the scan takes


@pk.kernel
def segment_states(K, V, decay, states, totals, *, config, reverse=False, exact=False):  # type: ignore[no-untyped-def]
    """The state that each segment of chunks would end with if it began with 0, and the sum of its decay."""
    batch, heads, segments, d, width = states.shape
    n, d, width, dtype = V.shape[2], pk.static(d), pk.static(width), V.dtype
    rows, groups, columns = rows_of(d), config.groups, config.columns
    pk.resident(config.resident)
    ring: Any = pk.pipeline(
        config.stages, k=pk.st(dtype, CHUNK, rows), v=pk.st(dtype, CHUNK, columns * groups)
    )
    gates = None if decay is None else gates_ring(config.stages)
    scaled: Any = None if decay is None else pk.shared(pk.st(dtype, CHUNK, columns), count=groups)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer():
        for b, h, part, segment in tasks:
            k, v = (matrix_of(x, b, h, heads) for x in (K, V))
            for i in chunks_of(chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.v, v[i, part])

    if gates is not None:
        with pk.producer():
            for b, h, part, segment in tasks:
                sums: Any = 0.0
                for i in chunks_of(chunks, segments, segment, reverse):
                    sums = sums + fill_gates(gates, log_decay(decay, b, h, i, n))
                if part == 0:
                    pk.store(totals[b, h, segment], sums)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            state = [pk.zeros(pk.f32, ROWS, columns) for _ in range(rows // ROWS)]
            for _ in chunks_of(chunks, segments, segment, reverse):
                _, part_of, total, _ = drained_gates(gates, reverse)
                with ring.drain() as t:
                    own = None if scaled is None else scaled[w]
                    v = t.v.tiles(CHUNK, columns)[0, w]
                    state = next_state(state, t.k, v, part_of, total, own, exact)
            for r, x in enumerate(state):
                pk.store(states[b, h, segment, r, part * groups + w], x)


@pk.kernel
def scan_states(states, totals, before, after, unit, *, reverse=False):  # type: ignore[no-untyped-def]
    """What segments add becomes the states at their starts, in place; `after` is the state at the end of all.

    totals: the sums of decay of the segments; None without decay. before, after: `unit` times the states of the kernel,
    as are those at the starts of segments.
    """
    batch, heads, segments, d, width = states.shape
    b, h, r, c = pk.grid(batch, heads, pk.cdiv(d, ROWS), pk.cdiv(width, COLUMNS))
    state = pk.zeros(pk.f32, ROWS, COLUMNS)
    if before is not None:
        state = pk.load(before[b, h, r, c], rows=ROWS, cols=COLUMNS)
    for segment in chunks_of(segments, None, None, reverse):
        at = states[b, h, segment, r, c]
        added = pk.load(at, rows=ROWS, cols=COLUMNS) * unit
        pk.store(at, state)
        if totals is not None:
            state = state * pk.exp2(pk.load(totals[b, h, segment]))
        state = state + added
    if after is not None:
        pk.store(after[b, h, r, c], state)
