"""The kernel of the gradients of queries, or in reverse of keys, of Based linear attention."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.based.features import (
    STEP,
    Features,
    features_of,
    of_step,
    parts_of,
    publish_selections,
    publish_state,
    selected,
    weighed,
    wide,
)
from pykittens.kernels.linear.based.sums import (
    Sums,
    keep_sums,
    started,
    sums_for_gradients,
    with_features,
)
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    chunks_of,
    keep,
    loaded,
    segments_in,
    state_at,
    with_keys,
    zeros,
)
from pykittens.kernels.linear.sequences import own_registers, sequence_of, sequences_in


@pk.function
def of_features(
    dq: Any,
    q: Any,
    g: Any,
    states: Any,
    features: Features,
    step: Any,
    scale: Any,
    is_alike: bool,
    sums: Sums | None,
    own: Any,
) -> Any:
    """dq with what comes of some features: their gradients by the factors of each, times what selects these.

    own: along rows what the sums of features are multiplied with.
    """
    x = pk.mma_ABt(g, of_step(states, step))
    first, second = selected(q, features, step)
    if sums is not None:
        x = x + own * pk.load(sums.vector.parts(STEP)[step], spread=pk.per_column)
    x = weighed(x, features, step, scale, is_alike)
    dq = pk.mma_AB((x * second).to(q.dtype), of_step(features.first, step), dq)
    return pk.mma_AB((x * first).to(q.dtype), of_step(features.second, step), dq)


@pk.kernel
def based_gradients(  # type: ignore[no-untyped-def]
    Q, K, V, G, dQ, e, before, after, scale, ends, *, config, reverse=False
):
    """The gradients dQ of queries, of which the result has the gradient G; of some columns of V and G a block.

    In reverse these are those of keys: Q is the keys, K the queries, V the gradient and G the values. e: (batch, heads,
    n), the gradients of the sums of weights, or None. before, after, ends: as of the outputs. dQ: with an axis of
    the columns of blocks before all others if there are several.
    """
    segments = segments_in(before)
    batch, heads, n, width = V.shape
    d, width, dtype = pk.static(Q.shape[3]), pk.static(width), V.dtype
    columns, count = config.columns, parts_of(d)
    pk.resident(config.resident)
    stage: dict[str, Any] = {name: pk.st(dtype, CHUNK, wide(d)) for name in "qk"}
    stage |= {name: pk.st(dtype, CHUNK, columns) for name in "vg"}
    stage |= {} if e is None else {"e": pk.sv(pk.f32, CHUNK)}
    ring: Any = pk.pipeline(config.stages, **stage)
    out: Any = pk.pipeline(1, pk.st(dQ.dtype, CHUNK, wide(d)))
    features, keys = features_of(dtype, d), pk.shared(pk.st(dtype, CHUNK, ROWS), count=count)
    states: Any = pk.shared(pk.st(dtype, ROWS, columns), count=count)
    memory: Any = None if e is None else sums_for_gradients(dtype, count)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.q, here.heads(Q)[h, i, 0])
                    pk.load_async(t.k, here.heads(K)[h, i, 0])
                    pk.load_async(t.v, here.heads(V)[h, i, part])
                    pk.load_async(t.g, here.heads(G)[h, i, part])
                    if e is not None:
                        pk.load_async(t.e, here.heads(e)[h, i])

    with pk.consumers(1):
        row, col = pk.row_index(CHUNK), pk.col_index(CHUNK)
        is_seen = row <= col if reverse else row >= col
        publish_selections(features, scale, keys)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            totals = list[Any]()
            state = zeros(count, columns)
            src: Any = None
            if before is not None:
                src = state_at(before, b, h, segment)
                state = loaded(src.window(1, 0, width), part, count, columns)
            if e is not None:
                totals = started(count, src, width)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.drain() as t:
                    own: Any = None
                    rows: Any = None
                    if e is not None:
                        rows = pk.load(t.e, spread=pk.per_row)
                        is_first = (part == 0).to(pk.f32)
                        own = (
                            (pk.zeros(pk.f32, CHUNK, spread=pk.per_row) + 1.0) if reverse else rows
                        )
                        own, rows = own * is_first, rows if reverse else None
                    of_chunk = memory, totals, rows, here.n - i * CHUNK
                    publish_state(states, state, keys, t.k, features, of_chunk)
                    dq: Any = None  # the first product adds to nothing
                    how = (t.q, t.g, states, features)
                    for other in features.others:
                        dq = of_features(dq, *how, other, scale, False, memory, own)
                    for step in pk.range(features.alike.start, features.alike.stop):
                        dq = of_features(dq, *how, step, scale, True, memory, own)
                    x, s = pk.mma_ABt(t.g, t.v), pk.mma_ABt(t.q, t.k)
                    if e is not None:
                        to = pk.per_column if reverse else pk.per_row
                        x = x + pk.load(t.e, spread=to) * is_first
                    x = pk.where(is_seen, x * (s * (scale * scale) + scale), 0.0)
                    dq = pk.mma_AB(x.to(dtype), t.k, dq)
                    state = with_keys(state, keys, t.v)
                    totals = with_features(memory, totals, keys)
                with out.fill() as t:
                    pk.store(t, dq.to(dQ.dtype))
            if after is not None:
                keep(state, after.at(b, h).window(1, 0, width), part)
                if e is not None and part == 0:
                    keep_sums(totals, after.at(b, h), width, width + 1)

    with pk.storer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            of_part = here.heads(dQ) if len(dQ.shape) == 4 else here.heads(dQ, part)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with out.drain() as t:
                    pk.store_async(of_part[h, i, 0], t)


@pk.kernel
def sum_columns(parts, total):  # type: ignore[no-untyped-def]
    """The sums of gradients by blocks that have some columns of the values each."""
    batch, heads, n, d = total.shape
    b, h, i, c = pk.grid(batch, heads, pk.cdiv(n, CHUNK), pk.cdiv(d, 32))
    x = pk.zeros(pk.f32, CHUNK, 32)
    for part in pk.range(parts.shape[0]):
        x = x + pk.load(parts[part, b, h, i, c], rows=CHUNK, cols=32)
    pk.store(total[b, h, i, c], x.to(total.dtype))
