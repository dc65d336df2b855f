"""The outputs of Based linear attention, and states of segments, one chunk after another of some columns of the values.

    o_i = sum over j <= i of w_ij v_j,    w_ij = 1 + s_ij + s_ij^2 / 2

Inside of a chunk weights are found from s; before it, queries and keys meet by their features in a state.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.based.features import (
    features_of,
    of_state,
    parts_of,
    publish_selections,
    publish_state,
    wide,
)
from pykittens.kernels.linear.based.sums import (
    joined,
    keep_sums,
    started,
    sums_for_queries,
    sums_of,
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
from pykittens.kernels.linear.scan import after_segments
from pykittens.kernels.linear.sequences import own_registers, sequence_of, sequences_in


def weights_of(x: Any, scale: Any, is_seen: Any) -> Any:
    """1 + s + s^2 / 2 with s = scale x where a key is seen, else 0."""
    return pk.where(is_seen, x * (x * (scale * scale * 0.5) + scale) + 1.0, 0.0)


@pk.kernel
def based_outputs(  # type: ignore[no-untyped-def]
    Q, K, V, O, sums, before, after, added, scale, eps, ends, *, config, reverse=False
):
    """O, and the state at the end; a warpgroup has some columns of the state in its registers.

    before: the states at the starts of segments of the chunks, on an axis of their own, or at the start of all chunks.
    added: what each segment adds to a state, if blocks are to find the states at the starts of segments themselves.
    sums: (batch, heads, n), the sums of weights and eps, by which outputs are divided; None for outputs that are not.
    Then states have a column more, the sum of the features of keys. ends: where packed sequences start, and where the
    last ends.
    """
    segments = segments_in(before, added)
    pk.require(added is None or not reverse, "what segments add is not in reverse")
    batch, heads, n, width = O.shape
    d, width, dtype = pk.static(Q.shape[3]), pk.static(width), V.dtype
    columns, count, is_divided = config.columns, parts_of(d), sums is not None
    pk.resident(config.resident)
    stage: dict[str, Any] = {name: pk.st(dtype, CHUNK, wide(d)) for name in "qk"}
    ring: Any = pk.pipeline(config.stages, **stage, v=pk.st(dtype, CHUNK, columns))
    out: Any = pk.pipeline(1, pk.st(O.dtype, CHUNK, columns))
    features, keys = features_of(dtype, d), pk.shared(pk.st(dtype, CHUNK, ROWS), count=count)
    states: Any = pk.shared(pk.st(dtype, ROWS, columns), count=count)
    memory: Any = sums_for_queries(dtype, count) if is_divided else None
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
            if added is not None:
                own, last = added.window(4, 0, width), None
                if after is not None:
                    last = after.at(b, h).window(1, 0, width)
                place = b, h, segment
                state = after_segments(state, own, None, place, part, reverse, (last, None))
            if is_divided:
                last = state_at(after, b, h, segment)
                totals = started(count, src, width, added, (b, h, segment, part), last)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.drain() as t:
                    of_chunk = memory, totals, None, here.n - i * CHUNK
                    publish_state(states, state, keys, t.k, features, of_chunk)
                    o, z = of_state(t.q, states, features, scale, memory)
                    s = weights_of(pk.mma_ABt(t.q, t.k), scale, is_seen).to(dtype)
                    o = pk.mma_AB(s, t.v, o)
                    if is_divided:
                        z = pk.mma_AB(s, memory.factors, z)
                    state = with_keys(state, keys, t.v)
                    totals = with_features(memory, totals, keys)
                    if is_divided:
                        z = joined(z) + eps
                        if part == 0:
                            pk.store(here.heads(sums)[h, i], z)
                        o = o / z
                with out.fill() as t:
                    pk.store(t, o.to(O.dtype))
            if after is not None and added is None:
                keep(state, after.at(b, h).window(1, 0, width), part)
                if is_divided and part == 0:
                    keep_sums(totals, after.at(b, h), width, width + 1)

    with pk.storer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with out.drain() as t:
                    pk.store_async(here.heads(O)[h, i, part], t)


@pk.kernel
def based_states(K, V, factors, states, ends, *, config, reverse=False):  # type: ignore[no-untyped-def]
    """The state that each segment of chunks would end with if it began with 0.

    states: (batch, heads, segments, features, width), or with the sum of the features of keys in a column more, which
    are multiplied with `factors`, (batch, heads, n), unless that is None. ends: as of the outputs.
    """
    batch, heads, segments, _, all_columns = states.shape
    n, width, d, dtype = V.shape[2], pk.static(V.shape[3]), pk.static(K.shape[3]), V.dtype
    all_columns = pk.static(all_columns)
    columns, count, is_divided = config.columns, parts_of(d), all_columns > width
    pk.resident(config.resident)
    of_k, of_v = pk.st(dtype, CHUNK, wide(d)), pk.st(dtype, CHUNK, columns)
    stage: dict[str, Any] = {} if factors is None else {"factors": pk.sv(pk.f32, CHUNK)}
    ring: Any = pk.pipeline(config.stages, k=of_k, v=of_v, **stage)
    features, keys = features_of(dtype, d), pk.shared(pk.st(dtype, CHUNK, ROWS), count=count)
    memory: Any = sums_of(dtype) if is_divided else None
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.k, here.heads(K)[h, i, 0])
                    pk.load_async(t.v, here.heads(V)[h, i, part])
                    if factors is not None:
                        pk.load_async(t.factors, here.heads(factors)[h, i])

    with pk.consumers(1):
        publish_selections(features, None, keys)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            totals = list[Any]()
            state = zeros(count, columns)
            if is_divided:
                totals = started(count, None, width)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.drain() as t:
                    rows: Any = None
                    if factors is not None:
                        rows = pk.load(t.factors, spread=pk.per_row)
                    of_chunk = memory, list[Any](), rows, here.n - i * CHUNK
                    publish_state(None, [], keys, t.k, features, of_chunk)
                    state = with_keys(state, keys, t.v)
                    totals = with_features(memory, totals, keys)
            keep(state, states.at(b, h, segment).window(1, 0, width), part)
            if is_divided and part == 0:
                keep_sums(totals, states.at(b, h, segment), width, all_columns)
