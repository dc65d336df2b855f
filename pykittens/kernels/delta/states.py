"""States at the starts of segments of a sequence, so that many blocks share it.

A segment makes S M + B of a transposed state S before it: B is what it makes of 0, and M, d by d, what it makes of the
identity if it adds no values. Both are found for all segments at once; then states follow from one another.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.delta.chunk import (
    COLUMNS,
    added_values,
    factors_ring,
    fill_factors,
    next_state,
    operand_memory,
    rounded,
)
from pykittens.kernels.delta.pairs import split
from pykittens.kernels.linear.chunk import CHUNK, ROWS, chunks_of, rows_of
from pykittens.kernels.linear.sequences import own_registers, sequence_of

STAGES = 2  # of the scan


@pk.kernel
def segment_changes(K, V, beta, decay, inverses, changes, rest, ends, *, config):  # type: ignore[no-untyped-def]
    """What each segment but the last adds to a state; without V, by what it multiplies one, and what rounding leaves.

    changes: f32, (batch, heads, segments, width, d); without V it is bf16, (batch, heads, segments, d, d), like `rest`.
    ends: as of `delta_outputs`.
    """
    batch, heads, segments, side, d = changes.shape
    n, d, side, dtype = K.shape[2], pk.static(d), pk.static(side), K.dtype
    groups, rows, own = config.groups, rows_of(d), COLUMNS * config.groups
    pk.resident(config.resident)
    stage: dict[str, Any] = {"k": pk.st(dtype, CHUNK, rows), "x": pk.st(dtype, CHUNK, CHUNK)}
    stage |= {} if V is None else {"v": pk.st(dtype, CHUNK, own)}
    ring: Any = pk.pipeline(config.stages, **stage)
    factors, memory = factors_ring(config.stages, decay), operand_memory(dtype, rows, config)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(side, own)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            k = here.matrix(K, h, heads)
            for i in chunks_of(here.chunks, segments + 1, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.x, inverses[here.batch, h, here.slot(i), 0])
                    if V is not None:
                        pk.load_async(t.v, here.matrix(V, h, heads)[i, part])

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, _, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments + 1, segment, False):
                fill_factors(factors, beta, decay, here, h, i)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            column, state = part * groups + w, pk.zeros(pk.f32, COLUMNS, rows)
            if V is None:
                own_rows = pk.row_index(COLUMNS) + column * COLUMNS
                state = pk.where(own_rows == pk.col_index(rows), 1.0, state)
            for _ in chunks_of(here.chunks, segments + 1, segment, False):
                with ring.drain() as t, factors.drain() as f:
                    v = None if V is None else t.v.tiles(CHUNK, COLUMNS)[0, w]
                    seen = pk.mma_ABt(rounded(state, memory, w, dtype), t.k)
                    u = added_values(v, seen, t.x, f, decay)
                    state = next_state(state, t.k, u, f, decay)
            if V is None:
                high, low = split(state)
                pk.store(changes[b, h, segment, column, 0], high)
                pk.store(rest[b, h, segment, column, 0], low)
            else:
                pk.store(changes[b, h, segment, column, 0], state)


@pk.kernel
def scan_changes(added, high, low, before, states):  # type: ignore[no-untyped-def]
    """The transposes of the states at the starts of segments, the first of which is that of `before`, or 0.

    high, low: the parts of what segments multiply by. The states are multiplied in two parts, too.
    """
    batch, heads, segments, width, d = states.shape
    rows = rows_of(pk.static(d))
    of_change = pk.st(pk.bf16, ROWS, rows)
    ring: Any = pk.pipeline(STAGES, high=of_change, low=of_change)
    tasks: Any = pk.persistent((batch, heads, pk.cdiv(width, COLUMNS)))

    with pk.producer():
        for b, h, _ in tasks:
            for segment in pk.range(segments - 1):
                for r in range(rows // ROWS):
                    with ring.fill() as t:
                        pk.load_async(t.high, high[b, h, segment, r, 0])
                        pk.load_async(t.low, low[b, h, segment, r, 0])

    with pk.consumers(1):
        for b, h, column in tasks:
            state = pk.zeros(pk.f32, COLUMNS, rows)
            if before is not None:
                state = pk.load(before[b, h, 0, column], rows=COLUMNS, cols=rows, transposed=True)
            pk.store(states[b, h, 0, column, 0], state)
            for segment in pk.range(segments - 1):
                more = pk.load(added[b, h, segment, column, 0], rows=COLUMNS, cols=rows)
                first, second = split(state)
                for r in range(rows // ROWS):
                    with ring.drain() as t:
                        a, b_ = (x[:, ROWS * r : ROWS * (r + 1)] for x in (first, second))
                        more = pk.mma_AB(a, t.high, more)
                        more = pk.mma_AB(a, t.low, more)
                        more = pk.mma_AB(b_, t.high, more)
                state = more
                pk.store(states[b, h, segment + 1, column, 0], state)
