"""States at the starts of segments of a sequence, so that many blocks share it.

A segment makes S M + B of a transposed state S before it: B is what it makes of 0, and M, d by d, what it makes of the
identity if it adds no values. Both are found for all segments at once; then states follow from one another. Of the
gradient D of the state after it, it makes D M^T and what it adds, which is found in reverse from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.delta.chunk import (
    COLUMNS,
    added_values,
    factors_ring,
    fill_factors,
    next_state,
    operand_memory,
    registers_of,
    rounded,
)
from pykittens.kernels.delta.pairs import split
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.chunk import CHUNK, ROWS, chunks_of, rows_of
from pykittens.kernels.linear.sequences import sequence_of


@dataclass(frozen=True)
class ScanConfig:
    """The work of a block of the scan. stages: of ROWS rows of what a segment multiplies by. ahead: segments whose
    additions are in memory before they are needed; 0 if it has no room for one.
    """

    stages: int
    ahead: int


def scan_config_for(d: int, limits: Limits) -> ScanConfig:
    """The configuration of the scan of states with d columns, as far ahead as memory allows."""
    rows = rows_of(d)
    of_segment = rows // ROWS
    counts = ((2 * of_segment, 2), (2 * of_segment, 1), (of_segment, 1), (2, 1), (2, 0), (1, 0))

    def shared_bytes(c: ScanConfig) -> int:
        return ROWS * rows * 4 * (c.stages + c.ahead) + 1024

    return first_that_fits(
        "gated_delta_rule", [ScanConfig(*x) for x in counts], shared_bytes, limits
    )


@pk.kernel
def segment_changes(  # type: ignore[no-untyped-def]
    K, V, beta, decay, inverses, added, high, low, ends, *, config, count
):
    """What each segment adds to a state, and what it multiplies one by, in two parts; of the first of `count` segments.

    added: f32, (batch, heads, segments, width, d). high, low: bf16, (batch, heads, segments, d, d). The columns of the
    identity come after those of the values, which are 0 there. ends: as of `delta_outputs`.
    """
    batch, heads, segments, width, d = added.shape
    n, d, width, dtype = K.shape[2], pk.static(d), pk.static(width), K.dtype
    groups, rows, own = config.groups, rows_of(d), COLUMNS * config.groups
    of_values = -(-width // COLUMNS)
    columns = of_values + -(-d // COLUMNS)
    pk.resident(config.resident)
    pk.overlap()
    stage: dict[str, Any] = {"k": pk.st(dtype, CHUNK, rows), "x": pk.st(dtype, CHUNK, CHUNK)}
    ring: Any = pk.pipeline(config.stages, **stage, v=pk.st(dtype, CHUNK, own))
    factors, memory = factors_ring(config.stages, decay), operand_memory(dtype, rows, config)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(columns, groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            k, v = (here.matrix(x, h, heads) for x in (K, V))
            v = v.window(1, 0, columns * COLUMNS)
            for i in chunks_of(here.chunks, count, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.x, inverses[here.batch, h, here.slot(i), 0])
                    pk.load_async(t.v, v[i, part])

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, _, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, count, segment, False):
                fill_factors(factors, beta, decay, here, h, i)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            column = part * groups + w
            own_rows = pk.row_index(COLUMNS) + (column - of_values) * COLUMNS
            state = pk.where(own_rows == pk.col_index(rows), 1.0, pk.zeros(pk.f32, COLUMNS, rows))
            for _ in chunks_of(here.chunks, count, segment, False):
                with ring.drain() as t, factors.drain() as f:
                    seen = pk.mma_ABt(rounded(state, memory, w, dtype), t.k)
                    u = added_values(t.v.tiles(CHUNK, COLUMNS)[0, w], seen, t.x, f, decay)
                    state = next_state(state, t.k, u, f, decay)
            if column < of_values:
                pk.store(added[b, h, segment, column, 0], state)
            elif column < columns:
                of_high, of_low = split(state)
                pk.store(high[b, h, segment, column - of_values, 0], of_high)
                pk.store(low[b, h, segment, column - of_values, 0], of_low)


@pk.kernel
def scan_changes(added, high, low, first, states, *, config, reverse=False):  # type: ignore[no-untyped-def]
    """The transposes of the states at the starts of segments, of which the first is that of `first`, or 0.

    high, low: the parts of what segments multiply by. The states are multiplied in two parts, too. In reverse, the
    transposes of the gradients of the states at the ends of segments, of which the last is that of `first`; they are
    multiplied by the transposes.
    """
    batch, heads, segments, width, d = states.shape
    rows = rows_of(pk.static(d))
    pk.overlap()
    of_change = pk.st(pk.bf16, rows, ROWS) if reverse else pk.st(pk.bf16, ROWS, rows)
    ring: Any = pk.pipeline(config.stages, high=of_change, low=of_change)
    ahead: Any = pk.pipeline(max(config.ahead, 1), pk.st(pk.f32, COLUMNS, rows))
    tasks: Any = pk.persistent((batch, heads, pk.cdiv(width, COLUMNS)))
    product, next_to = (pk.mma_ABt, -1) if reverse else (pk.mma_AB, 1)
    start, stop = (segments - 1, 0) if reverse else (0, segments - 1)
    # The first segment adds nothing to the gradient at the end of another.
    skipped = 1 if reverse else 0

    with pk.producer():
        for b, h, column in tasks:
            for segment in pk.range(start, stop, next_to):
                if config.ahead:
                    with ahead.fill() as t:
                        pk.load_async(t, added[b, h, segment - skipped, column, 0])
                for r in range(rows // ROWS):
                    at = (0, r) if reverse else (r, 0)
                    with ring.fill() as t:
                        pk.load_async(t.high, high.at(b, h, segment)[at])
                        pk.load_async(t.low, low.at(b, h, segment)[at])

    with pk.consumers(1):
        for b, h, column in tasks:
            state = pk.zeros(pk.f32, COLUMNS, rows)
            if first is not None:
                state = pk.load(first[b, h, 0, column], rows=COLUMNS, cols=rows, transposed=True)
            pk.store(states[b, h, start, column, 0], state)
            for segment in pk.range(start, stop, next_to):
                if config.ahead:
                    with ahead.drain() as t:
                        more = pk.load(t)
                else:
                    more = pk.load(
                        added[b, h, segment - skipped, column, 0], rows=COLUMNS, cols=rows
                    )
                of_high, of_low = split(state)
                for r in range(rows // ROWS):
                    with ring.drain() as t:
                        a, rest = (x[:, ROWS * r : ROWS * (r + 1)] for x in (of_high, of_low))
                        more = product(a, t.high, more)
                        more = product(a, t.low, more)
                        more = product(rest, t.high, more)
                state = more
                pk.store(states[b, h, segment + next_to, column, 0], state)
