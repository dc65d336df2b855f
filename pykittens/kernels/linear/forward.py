"""The outputs of linear attention, one chunk after another of some columns of the values."""

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
    segments_in,
    state_at,
    values_in,
    zeros,
)
from pykittens.kernels.linear.scan import after_segments
from pykittens.kernels.linear.sequences import own_registers, sequence_of, sequences_in


@pk.kernel
def chunk_outputs(  # type: ignore[no-untyped-def]
    Q,
    K,
    V,
    O,
    decay,
    rate,
    bias,
    skip,
    before,
    after,
    added,
    totals,
    scale,
    unit,
    X,
    dots,
    inside,
    whole,
    skipped,
    ends,
    *,
    config,
    reverse=False,
    exact=False,
    turned=False,
    softplus=False,
):
    """O, and the state at the end; each warpgroup has some columns of the state in its registers.

    before: the states at the starts of segments of the chunks, on an axis of their own, or at the start of all chunks.
    added, totals: what each segment adds to a state, and the sums of its decay, if blocks are to find the states at the
    starts of segments themselves. Other states in memory are `unit` times those of the kernel; if `turned`, rows and
    columns of `before` are exchanged.
    dots: the products of rows of X with what comes of the state in rows of O, of the columns of each warpgroup,
    (columns, batch, heads, n); queries then meet states as in f32. inside: the gradient of the decay of pairs in one
    chunk, of those columns, if Q and K are of its outputs and V and X of its keys and queries. exact: values are added
    to states as in f32.

    decay, rate, bias, softplus: as of `fill_gates`; with a rate, values have the weights of their steps. skip: of a
    head, what is added of values to outputs. whole, skipped: products of rows of X with O without `skip`, and in
    reverse without the steps of its rows; and with V.
    ends: where packed sequences start, and where the last ends.
    """
    segments = segments_in(before, added)
    batch, heads, n, width = O.shape
    d, width, dtype = pk.static(Q.shape[3]), pk.static(width), V.dtype
    rows, groups, columns = rows_of(d), config.groups, config.columns
    is_scanned = segments is not None and added is None
    pk.require(after is None or not is_scanned, "the state after segments is that of their scan")
    pk.require(added is None or not (turned or reverse), "what segments add goes forward")
    pk.resident(config.resident)
    pk.overlap()
    stage: dict[str, Any] = {"q": pk.st(dtype, CHUNK, rows), "k": pk.st(dtype, CHUNK, rows)}
    of_values = ("v",) if X is None else ("v", "x")
    stage |= {name: pk.st(dtype, CHUNK, columns * groups) for name in of_values}
    ring: Any = pk.pipeline(config.stages, **stage)
    gates = None if decay is None else gates_ring(config.stages, rate is not None)
    out: Any = pk.pipeline(1, pk.st(O.dtype, CHUNK, columns * groups))
    states: Any = pk.shared(pk.st(dtype, rows, columns), count=groups)
    tiles = values_in(decay, exact)
    scaled: Any = [pk.shared(pk.st(dtype, CHUNK, columns), count=groups) for _ in range(tiles)]
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            q, k, v = (here.matrix(x, h, heads) for x in (Q, K, V))
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.q, q[i, 0])
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.v, v[i, part])
                    if X is not None:
                        pk.load_async(t.x, here.matrix(X, h, heads)[i, part])

    if gates is not None:
        with pk.producer(registers=own_registers(ends, config)):
            for b, h, _, segment in tasks:
                here = sequence_of(ends, b, n, chunks)
                span = bounds_of(here.chunks, segments, segment)
                fill_gates(gates, (decay, rate, bias), softplus, here, h, span, reverse)

    with pk.consumers(groups) as w:
        row, col = pk.row_index(CHUNK), pk.col_index(CHUNK)
        is_seen = row <= col if reverse else row >= col
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state = zeros(rows // ROWS, columns)
            column = part * groups + w
            if before is not None:
                src = state_at(before, b, h, segment)
                for r in range(rows // ROWS):
                    at = src[column, r] if turned else src[r, column]
                    x = pk.load(at, rows=ROWS, cols=columns, transposed=turned)
                    state[r] = x * (1 / unit)
            if added is not None:
                place, last = (b, h, segment), (state_at(after, b, h, segment), unit)
                state = after_segments(state, added, totals, place, column, last)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                seen, part_of, total, (later, sooner), own = drained_gates(
                    gates, reverse, rate is not None
                )
                with ring.drain() as t:
                    v = t.v.tiles(CHUNK, columns)[0, w]
                    memory, logs = (states[w], [x[w] for x in scaled]), (part_of, total)
                    o, s, state = chunk_products(t.q, t.k, v, state, logs, memory, X is not None)
                    if gates is None:
                        s = pk.where(is_seen, s, 0.0)
                    else:
                        s = s * pk.exp2(pk.where(is_seen, later - sooner, -pk.inf))
                        o = o * pk.exp2(seen)
                    if X is not None:
                        other: Any = t.x.tiles(CHUNK, columns)[0, w]
                        of_state = pk.row_sum(o * pk.load(other).to(pk.f32))
                        if own is not None:
                            of_state = of_state * own
                        pk.store(here.heads(dots, column)[h, i], of_state * scale)
                        if inside is not None:
                            pairs = pk.mma_ABt(other, v) * s
                            earlier = pk.row_cumsum(pairs) - pairs
                            of_pairs = pk.col_sum(pk.where(is_seen, earlier, 0.0))
                            pk.store(here.heads(inside, column)[h, i], of_pairs * scale)
                    o = pk.mma_AB(s.to(dtype), v, o) * scale
                    if whole is not None:
                        pk.store(
                            here.heads(whole, column)[h, i],
                            pk.row_sum(o * pk.load(other).to(pk.f32)),
                        )
                    if own is not None:
                        o = o * own
                    if skip is not None:
                        values = pk.load(v).to(pk.f32)
                        if skipped is not None:
                            of_skip = pk.row_sum(values * pk.load(other).to(pk.f32))
                            pk.store(here.heads(skipped, column)[h, i], of_skip)
                        o = o + values * pk.load(skip[h])
                with out.fill() as t:
                    pk.store(t.tiles(CHUNK, columns)[0, w], o.to(O.dtype))
            if after is not None and added is None:
                keep([x * unit for x in state], after.at(b, h), column)

    with pk.storer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with out.drain() as t:
                    pk.store_async(here.heads(O)[h, i, part], t)
