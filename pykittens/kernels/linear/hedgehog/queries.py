"""The kernel of the gradients of queries and of their feature map, and of what those of keys need of queries.

Let x_ij = (g_i v_j - D_i) / z_i be the gradient of the weight of position j for position i, of which the result has the
gradient g_i, with D_i = g_i o_i. Then

    ds_ij = a exp(s_ij - m_i) x_ij,    and for the j of the largest score m_i more: b phi(q_i) dphi_i
    dphi_i = sum over earlier chunks of x_ij phi(k_j) = (S g_i - D_i Z) / z_i

m_i is no mere shift: the weights of phi do not scale with it, so a gradient goes through it to its key, of equal ones
the first. It is minus the sum of a exp(s_ij - m_i) x_ij, and as all weights times their gradients add up to 0, this is
what the features have of that sum.
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
    OF_PACKED,
    PARTS,
    REGISTERS,
    apart,
    at_index,
    feature_map,
    near_keys,
    publish_keys,
    scores,
    sign_of,
    wide,
)
from pykittens.kernels.linear.sequences import sequence_of, sequences_in
from pykittens.kernels.linear.totals import Sums, total_of, totals_of

COLUMNS = 64  # that a block takes at a time
OF_GROUP = 4  # vectors of the rows of a chunk that a group finds for both


@pk.kernel
def hedgehog_dots(O, G, dots, *, columns):  # type: ignore[no-untyped-def]
    """D of some columns of the results O and their gradient G at a time."""
    batch, heads, n, width = O.shape
    pk.overlap()
    b, h, i = pk.grid(batch, heads, pk.cdiv(n, CHUNK))
    piece = min(columns, COLUMNS)
    for part in range(pk.static(dots.shape[0])):
        found = pk.zeros(pk.f32, CHUNK, spread=pk.per_row)
        for c in range(part * columns // piece, (part + 1) * columns // piece):
            x, y = (pk.load(z[b, h, i, c], rows=CHUNK, cols=piece).to(pk.f32) for z in (O, G))
            found = found + pk.row_sum(x * y)
        pk.store(dots[part, b, h, i], found)


def of_both(memory: Any, count: int) -> list[Any]:
    """The sums of both groups of each of their vectors, along rows."""

    def row(group: int, i: int) -> Any:
        return pk.load(memory.parts(CHUNK)[group * OF_GROUP + i], spread=pk.per_row)

    return [row(0, i) + row(1, i) for i in range(count)]


def factor_gradient(group: Any, far: Any, more: Any, inverse: Any, a: Any, b: Any) -> Any:
    """The gradient of a for the first group, or of b for the second, at each row.

    far, near: those with D of a rounded result. All weights times their gradients add up to 0, so what is left of that
    sum is the error of D. of_far, of_near: the sums of the weights without a and b.
    """
    of_far, near, of_near = more
    error = near * a + far * b
    near, far = near - error * (of_near * inverse), far - error * (of_far * inverse)
    return pk.where(group == 0, near, far)


@pk.kernel
def hedgehog_query_gradients(  # type: ignore[no-untyped-def]
    Q,
    K,
    V,
    G,
    rows,
    of_q,
    of_k,
    factors,
    dQ,
    before,
    dots,
    features,
    of_largest,
    of_maps,
    of_factors,
    scale,
    ends,
    *,
    config,
):
    """The gradients dQ of queries, of the results' gradient G, of some columns of V and G a block.

    Of two warpgroups the first has the scores of the chunk before and the features with +, the second those of the
    chunk itself and with -; both then multiply for half of the columns of dQ. rows: as `hedgehog_outputs` keeps
    them. before: as of the outputs.

    For the gradients of keys and values: features, (batch, heads, chunks * 64, 2 * 64), are those of queries times
    b / z, and of_largest, (columns, batch, heads, chunks * 64), the gradients through the largest scores. of_maps:
    (batch, heads, columns and segments, 64, d), sums of the transposed gradient of the map. of_factors: (batch,
    2 heads, columns and segments), sums of those of a and b. dQ: with an axis of the columns of blocks before
    all others if there are several.
    """
    segments = segments_in(before)
    batch, heads, n, width = V.shape
    d, count, width = pk.static(Q.shape[3]), pk.static(of_q.shape[2]), pk.static(width)
    half, columns, dtype = wide(d) // PARTS, config.columns * PARTS, V.dtype
    pk.overlap()
    of_scores: Any = query_ring(dtype, d, config.stages)
    of_g, of_v = pk.st(dtype, CHUNK, columns), two(dtype, columns)
    of_values: Any = pk.pipeline(config.stages, g=of_g, v=of_v)
    matrices: Any = map_ring(dtype, d)
    states: Any = pk.shared(pk.st(dtype, ROWS, columns), count=PARTS)
    keys: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=PARTS)
    both: Any = pk.pipeline(1, pk.sv(pk.f32, PARTS * OF_GROUP * CHUNK))
    weights: Any = pk.pipeline(1, **dict.fromkeys("sy", two(dtype, ROWS)))
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    of_groups, of_copies = REGISTERS if ends is None else OF_PACKED
    with pk.producer(registers=of_copies):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            with matrices.fill() as t:
                pk.load_async(t.q, of_q[h, 0, 0])
                pk.load_async(t.k, of_k[h, 0, 0])
            for i in chunks_of(here.chunks, segments, segment, False):
                fill_queries(of_scores, here.heads(Q).at(h), here.heads(K).at(h), i)
                with of_values.fill() as t:
                    pk.load_async(t.g, here.heads(G)[h, i, part])
                    load_two(t.v, here.heads(V).at(h), [i - 1 + p for p in range(PARTS)], part)

    with pk.consumers(PARTS, registers=of_groups) as w:
        sign, own = sign_of(w), OfGroup(w, held.of_group(w), width, columns)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            run = part if segments is None else part * segments + segment
            slot: Any = 0
            state = own.start(state_at(before, b, h, segment), part, width)
            a: Any = factor_of(factors, 0, h)
            by: Any = factor_of(factors, 1, h)
            of_map = pk.zeros(pk.f32, ROWS, half)
            of_factor = pk.zeros(pk.f32, CHUNK, spread=pk.per_row)
            with matrices.drain() as maps:
                for i in chunks_of(here.chunks, segments, segment, False):
                    given = here.columns(rows, h)
                    inverse = 1.0 / pk.load(given[1, i], cols=CHUNK, spread=pk.per_row, fill=pk.inf)
                    dot = pk.load(here.heads(dots, part)[h, i], cols=CHUNK, spread=pk.per_row)
                    with of_scores.drain() as t:
                        k, left = t.k.tiles(CHUNK, wide(d)), (i > 0).to(pk.int32) * CHUNK
                        sums = Sums(own.totals, slot)
                        publish_keys(keys[w], k[0, 0], (maps.k, sign, count), left, sums)
                        pk.store(states[w], state[0].to(dtype))
                        pk.fence_async()
                        pk.sync()
                        with of_values.drain() as x, weights.fill() as y:
                            v = x.v.tiles(CHUNK, columns)
                            phi = feature_map(t.q, maps.q, sign, count).to(dtype)
                            of_phi = pk.mma_ABt(x.g, states[w]) - total_of(sums, ROWS, 0) * dot
                            far = pk.row_sum(phi.to(pk.f32) * of_phi)
                            found: Any = [far * inverse]
                            if of_factors is not None:
                                found += [pk.row_sum(phi.to(pk.f32) * total_of(sums, ROWS, 0))]
                            phi, of_phi = phi.to(pk.f32) * (inverse * by), of_phi - far
                            pk.store(y.y.tiles(CHUNK, ROWS)[w, 0], (phi * of_phi * sign).to(dtype))
                            if width <= columns or part == 0:
                                pk.store(here.heads(features)[h, i, w], phi.to(dtype))
                            largest, index = (
                                pk.load(given[r, i], cols=CHUNK, spread=pk.per_row) for r in (0, 2)
                            )
                            s = pk.exp2(scores(t.q, k[w, 0], scale, near_keys(w, left)) - largest)
                            total: Any = None if of_factors is None else pk.row_sum(s)
                            s = s.to(dtype)  # half of the registers until it is needed
                            s = s.to(pk.f32) * (pk.mma_ABt(x.g, v[w, 0]) - dot)
                            if of_factors is not None:
                                found += [pk.row_sum(s) * inverse, total]
                            state, slot = with_keys(apart(state), [keys[w]], v[0, 0]), 1 - slot
                            with both.fill() as m:
                                for r, z in enumerate(found):
                                    pk.store(m.parts(CHUNK)[w * OF_GROUP + r], z)
                            with both.drain() as m:
                                far, *more = of_both(m, len(found))
                            s = (s * (inverse * a) + at_index(index, w, far * by)) * scale
                            pk.store(y.s.tiles(CHUNK, ROWS)[w, 0], s.to(dtype))
                        if of_factors is not None:
                            of_factor = of_factor + factor_gradient(w, far, more, inverse, a, by)
                        if w == 0:
                            pk.store(here.heads(of_largest, part)[h, i], far * by)
                        with weights.drain() as y:
                            dq = pk.zeros(pk.f32, CHUNK, half)
                            for p in range(PARTS):
                                of_s, of_y = (m.tiles(CHUNK, ROWS)[p, 0] for m in (y.s, y.y))
                                dq = pk.mma_AB(of_s, t.k.tiles(CHUNK, half)[p, w], dq)
                                dq = pk.mma_ABt(of_y, maps.q.tiles(half, ROWS)[w, 0], dq)
                                of_map = pk.mma_AtB(of_y, t.q.tiles(CHUNK, half)[0, w], of_map)
                    to = here.heads(dQ) if len(dQ.shape) == 4 else here.heads(dQ, part)
                    pk.store(to[h, i, w], dq.to(dQ.dtype))
            pk.store(of_maps[b, h, run, 0, w], of_map)
            if of_factors is not None:
                pk.store(of_factors[b, w * heads + h, run], pk.sum(of_factor))
