"""The outputs of linear attention, one chunk after another of some columns of the values."""

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


@pk.kernel
def chunk_outputs(Q, K, V, O, decay, before, after, scale, segments, *, config):  # type: ignore[no-untyped-def]
    """O, and the state after the last position; each warpgroup has some columns of the state in its registers.

    before: the states before the segments of chunks, or before all chunks if `segments` is None.
    """
    batch, heads, n, _ = V.shape
    d, width, dtype, shared = pk.static(Q.shape[3]), pk.static(V.shape[3]), V.dtype, config.shared
    rows, groups, columns = rows_of(d), config.groups, config.columns
    pk.require(segments is None or after is None, "the state after segments is that of their scan")
    ring: Any = pk.pipeline(
        config.stages,
        q=pk.st(dtype, CHUNK, rows),
        k=pk.st(dtype, CHUNK, rows),
        v=pk.st(dtype, CHUNK, columns * groups),
    )
    gates = None if decay is None else gates_ring(config.stages)
    out: Any = pk.pipeline(1, pk.st(dtype, CHUNK, columns * groups))
    states: Any = pk.shared(pk.st(dtype, rows, columns), count=groups)
    scaled: Any = None if decay is None else pk.shared(pk.st(dtype, CHUNK, columns), count=groups)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    extents: tuple[Any, ...] = (batch, heads, parts)
    tasks: Any = pk.persistent(extents if segments is None else (*extents, segments))

    def chunks_of(segment: list[Any]) -> Any:
        """The chunks of a task."""
        if not segment:
            return pk.range(chunks)
        return pk.range(chunks * segment[0] // segments, chunks * (segment[0] + 1) // segments)

    with pk.producer():
        for b, h, part, *segment in tasks:
            for i in chunks_of(segment):
                with ring.fill() as t:
                    pk.load_async(t.q, Q[b, h // shared, i, 0])
                    pk.load_async(t.k, K[b, h // shared, i, 0])
                    pk.load_async(t.v, V[b, h, i, part])

    if gates is not None:
        with pk.producer():
            for b, h, _, *segment in tasks:
                for i in chunks_of(segment):
                    fill_gates(gates, log_decay(decay, b, h, i, n))

    with pk.consumers(groups) as w:
        is_seen = pk.row_index(CHUNK) >= pk.col_index(CHUNK)
        for b, h, part, *segment in tasks:
            state = [pk.zeros(pk.f32, ROWS, columns) for _ in range(rows // ROWS)]
            column = part * groups + w
            if before is not None:
                src = before.at(b, h, *segment)
                state = [
                    pk.load(src[r, column], rows=ROWS, cols=columns) for r in range(rows // ROWS)
                ]
            for i in chunks_of(segment):
                for r, x in enumerate(state):
                    pk.store(states[w].tiles(ROWS, columns)[r, 0], x.to(dtype))
                pk.fence_async()
                pk.sync()
                down, across, behind, total = 0.0, 0.0, None, None
                if gates is not None:
                    with gates.drain() as t:
                        down, across = (
                            pk.load(t.before, spread=x) for x in (pk.per_row, pk.per_column)
                        )
                        behind, total = (pk.load(x, spread=pk.per_row) for x in (t.behind, t.total))
                with ring.drain() as t:
                    s, o = pk.mma_ABt(t.q, t.k), pk.mma_AB(t.q, states[w])
                    v = t.v.tiles(CHUNK, columns)[0, w]
                    if gates is not None:
                        s = s * pk.exp2(pk.where(is_seen, down - across, -pk.inf))
                        o = o * pk.exp2(down)
                    else:
                        s = pk.where(is_seen, s, 0.0)
                    o = pk.mma_AB(s.to(dtype), v, o)
                    own = None if scaled is None else scaled[w]
                    state = next_state(state, t.k, decayed_values(v, behind, own), total)
                with out.fill() as t:
                    pk.store(t.tiles(CHUNK, columns)[0, w], (o * scale).to(dtype))
            if after is not None:
                for r, x in enumerate(state):
                    pk.store(after[b, h, r, column], x)

    with pk.storer():
        for b, h, part, *segment in tasks:
            for i in chunks_of(segment):
                with out.drain() as t:
                    pk.store_async(O[b, h, i, part], t)
