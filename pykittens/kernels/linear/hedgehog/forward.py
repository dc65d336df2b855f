"""The outputs of Hedgehog attention, and states of segments, one chunk after another of some columns of the values.

Position i sees the keys of its chunk up to it, and all of the chunk before, by a softmax, and those of earlier chunks
by the features of a state. With m_i the largest score that it sees by the softmax,

    z_i = sum over these of a exp(s_ij - m_i) + b phi(q_i) Z
    o_i = (sum over these of a exp(s_ij - m_i) v_j + b phi(q_i) S) / z_i

where S is the sum of phi(k_j) v_j of earlier chunks, Z that of phi(k_j), and a and b are factors of the head.

Two warpgroups share a chunk: the first has the scores of the chunk before and the features with +, the second those of
the chunk itself and with -, and the rows of the state that go with these. Both then multiply for half of the columns.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    chunks_of,
    segments_in,
    state_at,
    with_keys,
)
from pykittens.kernels.linear.hedgehog.blocks import (
    OfGroup,
    factor_of,
    fill_queries,
    load_two,
    map_ring,
    query_ring,
    two,
)
from pykittens.kernels.linear.hedgehog.features import (
    NO_SCORE,
    PARTS,
    apart,
    feature_map,
    near_keys,
    publish_keys,
    scores,
    sign_of,
    wide,
)
from pykittens.kernels.linear.sequences import own_registers, sequence_of, sequences_in
from pykittens.kernels.linear.totals import (
    Sums,
    total_of,
    totals_of,
)

OF_ROW = 3  # numbers of a position that gradients take: the largest score to base 2, z, and which score that is
OF_GROUP = 3  # vectors of the rows of a chunk that a group finds for both


@pk.function
def left_of(i: Any, here: Any) -> Any:
    """The positions of the chunk before chunk i of a sequence that go to the state after it: none before the first one.

    Nor after the last chunk if it is not whole, so that the state at the end is that which position n meets.
    """
    is_none = (i == 0) | ((i == here.chunks - 1) & (here.n % CHUNK != 0))
    return pk.where(is_none, i * 0, i * 0 + CHUNK)


@pk.function
def of_both(memory: Any, a: Any) -> tuple[Any, Any, Any]:
    """The largest scores of a chunk's rows, z, and whether the largest ones are of the chunk before."""
    (past, of_past, past_far), (own, of_own, own_far) = (
        [pk.load(memory.parts(CHUNK)[g * OF_GROUP + i], spread=pk.per_row) for i in range(OF_GROUP)]
        for g in range(PARTS)
    )
    largest = pk.maximum(past, own)
    near = of_past * pk.exp2(past - largest) + of_own * pk.exp2(own - largest)
    return largest, near * a + past_far + own_far, past >= own


@pk.function
def keep_rows(
    rows: Any, i: Any, group: Any, largest: Any, z: Any, is_past: Any, index: Any
) -> None:
    """Store what gradients take of a chunk's rows; each group has the indices of largest scores that are its own."""
    row = pk.row_index(CHUNK) + i * CHUNK
    is_own = pk.where(group == 0, is_past.to(pk.int32), 1 - is_past.to(pk.int32)) == 1
    pk.scatter(rows[2], pk.where(is_own, row, -1), (index + group * CHUNK).to(pk.f32))
    value = pk.where(group == 0, largest, z)
    pk.store(rows[group, i], value)


@pk.kernel
def hedgehog_outputs(  # type: ignore[no-untyped-def]
    Q, K, V, of_q, of_k, factors, O, rows, before, after, added, scale, ends, *, config
):
    """O, and the state at the end; of some columns of the values a block.

    of_q, of_k: the matrices of the feature maps, (heads, d, features). factors: a and b of each head, (2, heads), or
    None. rows: (batch, heads, OF_ROW, n), for gradients, or None. before: the states at the starts of segments of the
    chunks, on an axis of their own, or at the start of all. added: what each segment adds to a state, if blocks are to
    find the states at the starts of segments themselves. ends: where packed sequences start, and where the last ends.
    """
    segments = segments_in(before, added)
    batch, heads, n, width = O.shape
    d, count, width = pk.static(Q.shape[3]), pk.static(of_q.shape[2]), pk.static(width)
    dtype, columns = V.dtype, config.columns * PARTS
    pk.overlap()
    of_scores: Any = query_ring(dtype, d, config.stages)
    of_values: Any = pk.pipeline(config.stages, two(dtype, columns))
    matrices: Any = map_ring(dtype, d)
    out: Any = pk.pipeline(1, pk.st(O.dtype, CHUNK, columns))
    states: Any = pk.pipeline(1, pk.st(dtype, PARTS * ROWS, columns))
    features: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=PARTS)  # of keys, then of queries
    both: Any = pk.pipeline(1, pk.sv(pk.f32, PARTS * OF_GROUP * CHUNK))
    weights: Any = pk.pipeline(1, pk.st(dtype, PARTS * CHUNK, ROWS))
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            with matrices.fill() as t:
                pk.load_async(t.q, of_q[h, 0, 0])
                pk.load_async(t.k, of_k[h, 0, 0])
            for i in chunks_of(here.chunks, segments, segment, False):
                fill_queries(of_scores, here.heads(Q).at(h), here.heads(K).at(h), i)
                with of_values.fill() as t:
                    load_two(t, here.heads(V).at(h), [i - 1 + p for p in range(PARTS)], part)

    with pk.consumers(PARTS) as w:
        own = OfGroup(w, held.of_group(w), width, columns)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            slot: Any = 0
            src, last = (state_at(x, b, h, segment) for x in (before, after))
            state = own.start(src, part, width, added, (b, h, segment), last)
            with matrices.drain() as maps:
                for i in chunks_of(here.chunks, segments, segment, False):
                    sums, sign = Sums(own.totals, slot), sign_of(w)
                    a: Any = factor_of(factors, 0, h)
                    by: Any = factor_of(factors, 1, h)
                    with states.fill() as t:
                        pk.store(t.tiles(ROWS, columns)[w, 0], state[0].to(dtype))
                    with of_values.drain() as v:
                        past_v, half_v = (
                            v.tiles(CHUNK, columns)[0, 0],
                            v.tiles(CHUNK, config.columns),
                        )
                        with of_scores.drain() as t:
                            k, key_map = t.k.tiles(CHUNK, wide(d)), (maps.k, sign, count)
                            publish_keys(features[w], k[0, 0], key_map, left_of(i, here), sums)
                            state = with_keys(apart(state), [features[w]], past_v)
                            phi = feature_map(t.q, maps.q, sign, count, by)
                            far = pk.row_sum(phi * total_of(sums, ROWS, 0))
                            pk.mma_wait()
                            pk.sync()
                            pk.store(features[w], phi.to(dtype))
                            pk.fence_async()
                            s = scores(
                                t.q, k[w, 0], scale, near_keys(w, (i > 0).to(pk.int32) * CHUNK)
                            )
                        most = pk.maximum(pk.row_max(s), NO_SCORE)
                        index = None if rows is None else pk.row_argmax(s)
                        s = pk.exp2(s - most)
                        with both.fill() as x:
                            for r, y in enumerate((most, pk.row_sum(s), far)):
                                pk.store(x.parts(CHUNK)[w * OF_GROUP + r], y)
                        with both.drain() as x:
                            largest, z, is_past = of_both(x, a)
                        with weights.fill() as x:
                            s = s * pk.exp2(most - largest)
                            pk.store(x.tiles(CHUNK, ROWS)[w, 0], s.to(dtype))
                        with states.drain() as of_state, weights.drain() as x:
                            o, slot = pk.zeros(pk.f32, CHUNK, config.columns), 1 - slot
                            for p in range(PARTS):
                                o = pk.mma_AB(x.tiles(CHUNK, ROWS)[p, 0], half_v[p, w], o)
                            o = o if factors is None else o * a
                            for p in range(PARTS):
                                of_half = of_state.tiles(ROWS, config.columns)[p, w]
                                o = pk.mma_AB(features[p], of_half, o)
                    with out.fill() as t:
                        pk.store(t.tiles(CHUNK, config.columns)[0, w], (o * (1.0 / z)).to(O.dtype))
                    if rows is not None and (width <= columns or part == 0):
                        keep_rows(here.columns(rows, h), i, w, largest, z, is_past, index)
            if after is not None and added is None:
                dst = own.keep(state, after.at(b, h), part)
                if part == 0:
                    own.keep_sums(slot, dst, width)

    with pk.storer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, False):
                with out.drain() as t:
                    pk.store_async(here.heads(O)[h, i, part], t)


@pk.kernel
def hedgehog_states(K, V, of_k, states, ends, *, config):  # type: ignore[no-untyped-def]
    """The state that each segment of chunks would add: that of the chunks before each of its own."""
    batch, heads, segments, _, all_columns = states.shape
    n, d, count = K.shape[2], pk.static(K.shape[3]), pk.static(of_k.shape[2])
    width, dtype, columns = pk.static(V.shape[3]), V.dtype, config.columns * PARTS
    pk.overlap()
    of_past, of_v = pk.st(dtype, CHUNK, wide(d)), pk.st(dtype, CHUNK, columns)
    ring: Any = pk.pipeline(config.stages, past=of_past, v=of_v)
    matrices: Any = pk.pipeline(1, pk.st(dtype, wide(d), ROWS))
    keys: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=PARTS)
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            with matrices.fill() as t:
                pk.load_async(t, of_k[h, 0, 0])
            for i in chunks_of(here.chunks, segments, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.past, here.heads(K)[h, i - 1, 0])
                    pk.load_async(t.v, here.heads(V)[h, i - 1, part])

    with pk.consumers(PARTS) as w:
        own = OfGroup(w, held.of_group(w), width, columns)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            slot: Any = 0
            state = own.start(None, 0, width)
            with matrices.drain() as matrix:
                for i in chunks_of(here.chunks, segments, segment, False):
                    with ring.drain() as t:
                        sums, key_map = Sums(own.totals, slot), (matrix, sign_of(w), count)
                        publish_keys(keys[w], t.past, key_map, left_of(i, here), sums)
                        state, slot = with_keys(state, [keys[w]], t.v), 1 - slot
            dst = own.keep(state, states.at(b, h, segment), part)
            if part == 0:
                own.keep_sums(slot, dst, width)
                spare = dst.window(1, width + 1, all_columns)
                pk.store(spare[0, 0], pk.zeros(pk.f32, ROWS, 16))
