"""The outputs of Hedgehog attention, and states of segments, one chunk after another of some columns of the values.

Position i sees the keys of its chunk up to it, and all of the chunk before, by a softmax, and those of earlier chunks
by the features of a state. With m_i the largest score that it sees by the softmax,

    z_i = sum over these of a exp(s_ij - m_i) + b phi(q_i) Z
    o_i = (sum over these of a exp(s_ij - m_i) v_j + b phi(q_i) S) / z_i

where S is the sum of phi(k_j) v_j of earlier chunks, Z that of phi(k_j), and a and b are factors of the head.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    chunks_of,
    keep,
    loaded,
    with_keys,
    zeros,
)
from pykittens.kernels.linear.totals import (
    Sums,
    add_keys,
    keep_totals,
    start_totals,
    total_of,
    totals_of,
)

SIGNS = 1.0, -1.0  # of the map in the parts of the features
PARTS = len(SIGNS)
LEAST = -1e30  # as the largest score of no key


def feature_map(x: Any, matrix: Any, sign: float, count: int) -> Any:
    """softmax(sign * x matrix) along rows, of the first `count` columns.

    The product is found for each sign: to keep it for both would take registers beside a state.
    """
    z = pk.mma_AB(x, matrix) * (sign * pk.log2e)
    if count < ROWS:
        z = pk.where(pk.col_index(ROWS) < count, z, -pk.inf)
    z = pk.exp2(z - pk.row_max(z))
    return z / pk.row_sum(z)


@pk.function
def publish_keys(
    states: Any, state: list[Any], keys: Any, k: Any, matrix: Any, count: int, left: Any, sums: Sums
) -> None:
    """Store a state and the features of a chunk's keys, up to `left`, with which the group multiplies next.

    matrix: that of their map, which has `count` columns.
    """
    pk.mma_wait()
    pk.sync()
    for p, x in enumerate(state):
        pk.store(states[p], x.to(states[p].dtype))
    for p, sign in enumerate(SIGNS):
        x = pk.where(pk.row_index(CHUNK) < left, feature_map(k, matrix, sign, count), 0.0)
        pk.store(keys[p], x.to(keys[p].dtype))
        add_keys(sums, x, p)
    pk.fence_async()
    pk.sync()


@pk.function
def left_of(i: Any, chunks: Any, n: Any) -> Any:
    """The positions of the chunk before chunk i that go to the state after it: none before the first one.

    Nor after the last chunk if it is not whole, so that the state at the end is that which position n meets.
    """
    is_none = (i == 0) | ((i == chunks - 1) & (n % CHUNK != 0))
    return pk.where(is_none, i * 0, i * 0 + CHUNK)


class Group:
    """The tiles of a group in memory that has PARTS of them for each group."""

    def __init__(self, memory: Any, group: Any) -> None:
        self.memory, self.group = memory, group

    def __getitem__(self, i: int) -> Any:
        return self.memory[self.group * PARTS + i]


@pk.kernel
def hedgehog_outputs(  # type: ignore[no-untyped-def]
    Q, K, V, of_q, of_k, factors, O, before, after, scale, *, config
):
    """O, and the state at the end; each warpgroup has some columns of the state in its registers.

    of_q, of_k: the matrices of the feature maps, (heads, d, features). factors: a and b of each head, (2, heads), or
    None. before: the states at the starts of segments of the chunks, on an axis of their own, or at the start of all.
    """
    segments = before.shape[2] if before is not None and len(before.shape) == 5 else None
    batch, heads, n, width = O.shape
    d, count, width, dtype = (
        pk.static(Q.shape[3]),
        pk.static(of_q.shape[2]),
        pk.static(width),
        V.dtype,
    )
    groups, columns, wide = config.groups, config.columns, -(-d // 16) * 16
    pk.resident(config.resident)
    of_qk, of_v = pk.st(dtype, CHUNK, wide), pk.st(dtype, CHUNK, columns * groups)
    ring: Any = pk.pipeline(config.stages, q=of_qk, k=of_qk, past=of_qk, v=of_v, past_v=of_v)
    matrices: Any = pk.pipeline(1, q=pk.st(dtype, wide, ROWS), k=pk.st(dtype, wide, ROWS))
    out: Any = pk.pipeline(1, pk.st(O.dtype, CHUNK, columns * groups))
    states: Any = pk.shared(pk.st(dtype, ROWS, columns), count=groups * PARTS)
    keys: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=groups * PARTS)
    held: Any = totals_of(PARTS, count, groups)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, 1 if segments is None else segments))

    with pk.producer():
        for b, h, part, segment in tasks:
            with matrices.fill() as t:
                pk.load_async(t.q, of_q[h, 0, 0])
                pk.load_async(t.k, of_k[h, 0, 0])
            for i in chunks_of(chunks, segments, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.q, Q[b, h, i, 0])
                    pk.load_async(t.k, K[b, h, i, 0])
                    pk.load_async(t.past, K[b, h, i - 1, 0])
                    pk.load_async(t.v, V[b, h, i, part])
                    pk.load_async(t.past_v, V[b, h, i - 1, part])

    with pk.consumers(groups) as w:
        own, of_keys, totals = Group(states, w), Group(keys, w), held.of_group(w)
        for b, h, part, segment in tasks:
            column = part * groups + w
            half: Any = 0
            state = zeros(PARTS, columns)
            src: Any = None
            if before is not None:
                src = before.at(b, h) if segments is None else before.at(b, h, segment)
                state = loaded(src.window(1, 0, width), column, PARTS, columns, count)
            start_totals(totals, src, width)
            with matrices.drain() as maps:
                for i in chunks_of(chunks, segments, segment, False):
                    with ring.drain() as t:
                        sums, left = Sums(totals, half), left_of(i, chunks, n)
                        publish_keys(own, state, of_keys, t.past, maps.k, count, left, sums)
                        past_v = t.past_v.tiles(CHUNK, columns)[0, w]
                        v = t.v.tiles(CHUNK, columns)[0, w]
                        # The softmax of the chunk before, and then with that of the chunk.
                        s = pk.mma_ABt(t.q, t.past) * (scale * pk.log2e)
                        largest = pk.where(i > 0, pk.row_max(s), LEAST)
                        s = pk.exp2(pk.where(i > 0, s, -pk.inf) - largest)
                        z, o = pk.row_sum(s), pk.mma_AB(s.to(dtype), past_v)
                        s = pk.mma_ABt(t.q, t.k) * (scale * pk.log2e)
                        s = pk.mask(s, 0, 0, CHUNK, causal=True)
                        most = pk.maximum(largest, pk.row_max(s))
                        kept = pk.exp2(largest - most)
                        s = pk.exp2(s - most)
                        z, o = z * kept + pk.row_sum(s), pk.mma_AB(s.to(dtype), v, o * kept)
                        if factors is not None:
                            z, o = z * pk.load(factors[0, h]), o * pk.load(factors[0, h])
                        for p, sign in enumerate(SIGNS):
                            x = feature_map(t.q, maps.q, sign, count)
                            if factors is not None:
                                x = x * pk.load(factors[1, h])
                            z = z + pk.row_sum(x * total_of(sums, ROWS, p))
                            o = pk.mma_AB(x.to(dtype), own[p], o)
                        state, half = with_keys(state, of_keys, past_v), 1 - half
                    with out.fill() as t:
                        pk.store(t.tiles(CHUNK, columns)[0, w], (o / z).to(O.dtype))
            if after is not None:
                keep(state, after.at(b, h).window(1, 0, width), column, count)
                if column == 0:
                    keep_totals(totals, half, after.at(b, h), width)

    with pk.storer():
        for b, h, part, segment in tasks:
            for i in chunks_of(chunks, segments, segment, False):
                with out.drain() as t:
                    pk.store_async(O[b, h, i, part], t)


@pk.kernel
def hedgehog_states(K, V, of_k, states, *, config):  # type: ignore[no-untyped-def]
    """The state that each segment of chunks would add: that of the chunks before each of its own."""
    batch, heads, segments, _, _ = states.shape
    n, d, count = K.shape[2], pk.static(K.shape[3]), pk.static(of_k.shape[2])
    width, dtype = pk.static(V.shape[3]), V.dtype
    groups, columns, wide = config.groups, config.columns, -(-d // 16) * 16
    pk.resident(config.resident)
    of_past, of_v = pk.st(dtype, CHUNK, wide), pk.st(dtype, CHUNK, columns * groups)
    ring: Any = pk.pipeline(config.stages, past=of_past, v=of_v)
    matrices: Any = pk.pipeline(1, pk.st(dtype, wide, ROWS))
    keys: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=groups * PARTS)
    held: Any = totals_of(PARTS, count, groups)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer():
        for b, h, part, segment in tasks:
            with matrices.fill() as t:
                pk.load_async(t, of_k[h, 0, 0])
            for i in chunks_of(chunks, segments, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.past, K[b, h, i - 1, 0])
                    pk.load_async(t.v, V[b, h, i - 1, part])

    with pk.consumers(groups) as w:
        of_keys, totals = Group(keys, w), held.of_group(w)
        for b, h, part, segment in tasks:
            column = part * groups + w
            half: Any = 0
            state = zeros(PARTS, columns)
            start_totals(totals, None, width)
            with matrices.drain() as matrix:
                for i in chunks_of(chunks, segments, segment, False):
                    with ring.drain() as t:
                        sums, left = Sums(totals, half), left_of(i, chunks, n)
                        publish_keys(None, [], of_keys, t.past, matrix, count, left, sums)
                        v = t.v.tiles(CHUNK, columns)[0, w]
                        state, half = with_keys(state, of_keys, v), 1 - half
            dst = states.at(b, h, segment)
            keep(state, dst.window(1, 0, width), column, count)
            if column == 0:
                keep_totals(totals, half, dst, width)
