"""The states before the segments of a sequence, so that many blocks share it: what each adds, and a scan over these."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    decayed_values,
    fill_gates,
    gates_ring,
    log_decay,
    next_state,
    rows_of,
)

COLUMNS = 64  # of a state that a block of the scan takes


@pk.kernel
def segment_states(K, V, decay, states, totals, segments, *, config):  # type: ignore[no-untyped-def]
    """The state that each segment of chunks would end with if it began with 0, and the sum of its decay."""
    batch, heads, n, width = V.shape
    d, width, dtype, shared = pk.static(K.shape[3]), pk.static(width), V.dtype, config.shared
    rows, groups, columns = rows_of(d), config.groups, config.columns
    ring: Any = pk.pipeline(
        config.stages, k=pk.st(dtype, CHUNK, rows), v=pk.st(dtype, CHUNK, columns * groups)
    )
    gates = None if decay is None else gates_ring(config.stages)
    scaled: Any = None if decay is None else pk.shared(pk.st(dtype, CHUNK, columns), count=groups)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    def chunks_of(segment: Any) -> Any:
        """The chunks of a segment."""
        return pk.range(chunks * segment // segments, chunks * (segment + 1) // segments)

    with pk.producer():
        for b, h, part, segment in tasks:
            for i in chunks_of(segment):
                with ring.fill() as t:
                    pk.load_async(t.k, K[b, h // shared, i, 0])
                    pk.load_async(t.v, V[b, h, i, part])

    if gates is not None:
        with pk.producer():
            for b, h, part, segment in tasks:
                sums: Any = 0.0
                for i in chunks_of(segment):
                    sums = sums + fill_gates(gates, log_decay(decay, b, h, i, n))
                if part == 0:
                    pk.store(totals[b, h, segment], sums)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            state = [pk.zeros(pk.f32, ROWS, columns) for _ in range(rows // ROWS)]
            for i in chunks_of(segment):
                behind, total = None, None
                if gates is not None:
                    with gates.drain() as t:
                        behind, total = (pk.load(x, spread=pk.per_row) for x in (t.behind, t.total))
                with ring.drain() as t:
                    own = None if scaled is None else scaled[w]
                    v = decayed_values(t.v.tiles(CHUNK, columns)[0, w], behind, own)
                    state = next_state(state, t.k, v, total)
            for r, x in enumerate(state):
                pk.store(states[b, h, segment, r, part * groups + w], x)


@pk.kernel
def scan_states(states, totals, before, after):  # type: ignore[no-untyped-def]
    """What segments add becomes the states before them, in place; `after` is the state behind the last.

    totals: the sums of decay of the segments; None without decay.
    """
    batch, heads, segments, d, width = states.shape
    b, h, r, c = pk.grid(batch, heads, pk.cdiv(d, ROWS), pk.cdiv(width, COLUMNS))
    state = pk.zeros(pk.f32, ROWS, COLUMNS)
    if before is not None:
        state = pk.load(before[b, h, r, c], rows=ROWS, cols=COLUMNS)
    for segment in pk.range(segments):
        at = states[b, h, segment, r, c]
        added = pk.load(at, rows=ROWS, cols=COLUMNS)
        pk.store(at, state)
        if totals is not None:
            state = state * pk.exp2(pk.load(totals[b, h, segment]))
        state = state + added
    if after is not None:
        pk.store(after[b, h, r, c], state)
