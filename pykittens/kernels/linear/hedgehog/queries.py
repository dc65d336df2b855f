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

from typing import Any, NamedTuple

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, ROWS, chunks_of, loaded, with_keys
from pykittens.kernels.linear.hedgehog.features import (
    LEAST,
    PARTS,
    at_index,
    feature_map,
    near_keys,
    of_sign,
    publish_keys,
    scores,
    sign_of,
    wide,
)
from pykittens.kernels.linear.totals import Sums, start_totals, total_of, totals_of

OF_GROUP = 6  # vectors of the rows of a chunk that a group finds for both


class Rows(NamedTuple):
    """What a chunk's queries have, along rows.

    shift: the logarithm of z / a to base 2, with the largest score. kept: exp of the largest score of each group less
    that of all. near, far: the gradients of a and b. index: of the largest score, in the chunk before or after that.
    """

    shift: Any
    kept: list[Any]
    inverse: Any
    dot: Any
    near: Any
    far: Any
    index: Any


@pk.function
def rows_of(memory: Any, a: Any, b: Any, left: Any) -> Rows:
    """What follows from the sums of both groups, of the first `left` rows."""
    found: Any = [
        [pk.load(memory.parts(CHUNK)[g * OF_GROUP + i], spread=pk.per_row) for i in range(OF_GROUP)]
        for g in range(PARTS)
    ]
    (most, index, *_), (own_most, own_index, *_) = found
    largest = pk.maximum(most, own_most)
    kept = [pk.exp2(x[0] - largest) for x in found]
    of_near, near = (sum(x[i] * y for x, y in zip(found, kept, strict=True)) for i in (2, 3))
    of_far, far = (found[0][i] + found[1][i] for i in (4, 5))
    z = of_near * a + of_far * b
    inverse = pk.where(pk.row_index(CHUNK) < left, 1.0 / z, 0.0)
    dot = (near * a + far * b) * inverse
    return Rows(
        largest - pk.log2(inverse * a),
        kept,
        inverse,
        dot,
        (near - dot * of_near) * inverse,
        (far - dot * of_far) * inverse,
        pk.where(most >= own_most, index, own_index),
    )


@pk.kernel
def hedgehog_query_gradients(  # type: ignore[no-untyped-def]
    Q,
    K,
    V,
    G,
    of_q,
    of_k,
    factors,
    dQ,
    before,
    features,
    rows,
    of_maps,
    of_factors,
    scale,
    *,
    config,
):
    """The gradients dQ of queries, of the results' gradient G, of some columns of V and G a block.

    Of two warpgroups the first has the scores of the chunk before and the features with +, the second those of the
    chunk itself and with -; both then multiply for half of the columns of dQ. before: as of the outputs.

    For the gradients of keys and values: features, (batch, heads, chunks * 64, 2 * 64), are those of queries times
    b / z, and rows, (columns, batch, heads, 4, chunks * 64), the logarithms of z / a to base 2 with the largest scores,
    D, the gradients through the largest scores, and which these are. of_maps: (batch, heads, columns and segments,
    64, d), sums of the transposed gradient of the map. of_factors: (batch, 2 heads, columns and segments), sums of
    those of a and b. dQ: with an axis of the columns of blocks before all others if there are several.
    """
    segments = before.shape[2] if before is not None and len(before.shape) == 5 else None
    batch, heads, n, width = V.shape
    d, count, width, dtype = (
        pk.static(Q.shape[3]),
        pk.static(of_q.shape[2]),
        pk.static(width),
        V.dtype,
    )
    half, columns = wide(d) // PARTS, config.columns * PARTS
    pk.overlap()
    of_qk, of_v = pk.st(dtype, CHUNK, wide(d)), pk.st(dtype, CHUNK, columns)
    two_k, two_v = pk.st(dtype, PARTS * CHUNK, wide(d)), pk.st(dtype, PARTS * CHUNK, columns)
    of_scores: Any = pk.pipeline(config.stages, q=of_qk, k=two_k)
    of_values: Any = pk.pipeline(config.stages, g=of_v, v=two_v)
    matrices: Any = pk.pipeline(1, q=pk.st(dtype, wide(d), ROWS), k=pk.st(dtype, wide(d), ROWS))
    states: Any = pk.shared(pk.st(dtype, ROWS, columns), count=PARTS)
    keys: Any = pk.shared(pk.st(dtype, CHUNK, ROWS), count=PARTS)
    both: Any = pk.pipeline(1, pk.sv(pk.f32, PARTS * OF_GROUP * CHUNK))
    pair: Any = pk.st(dtype, PARTS * CHUNK, ROWS)
    weights: Any = pk.pipeline(1, s=pair, y=pair)
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    tasks: Any = pk.persistent((batch, heads, parts, 1 if segments is None else segments))

    with pk.producer():
        for b, h, part, segment in tasks:
            with matrices.fill() as t:
                pk.load_async(t.q, of_q[h, 0, 0])
                pk.load_async(t.k, of_k[h, 0, 0])
            for i in chunks_of(chunks, segments, segment, False):
                with of_scores.fill() as t:
                    pk.load_async(t.q, Q[b, h, i, 0])
                    for p in range(PARTS):
                        pk.load_async(t.k.tiles(CHUNK, wide(d))[p, 0], K[b, h, i - 1 + p, 0])
                with of_values.fill() as t:
                    pk.load_async(t.g, G[b, h, i, part])
                    for p in range(PARTS):
                        pk.load_async(t.v.tiles(CHUNK, columns)[p, 0], V[b, h, i - 1 + p, part])

    with pk.consumers(PARTS) as w:
        sign, totals = sign_of(w), held.of_group(w)
        for b, h, part, segment in tasks:
            run = part if segments is None else part * segments + segment
            slot: Any = 0
            state = [pk.zeros(pk.f32, ROWS, columns)]
            src: Any = None
            if before is not None:
                src = of_sign(
                    before.at(b, h) if segments is None else before.at(b, h, segment), w, count
                )
                state = loaded(src.window(1, 0, width), part, 1, columns, count)
            start_totals(totals, src, width)
            a: Any = 1.0 if factors is None else pk.load(factors[0, h])
            by: Any = 1.0 if factors is None else pk.load(factors[1, h])
            of_map = pk.zeros(pk.f32, ROWS, half)
            of_factor = pk.zeros(pk.f32, CHUNK, spread=pk.per_row)
            with matrices.drain() as maps:
                for i in chunks_of(chunks, segments, segment, False):
                    with of_scores.drain() as t:
                        k, left = t.k.tiles(CHUNK, wide(d)), (i > 0).to(pk.int32) * CHUNK
                        with of_values.drain() as x:
                            sums, v = Sums(totals, slot), x.v.tiles(CHUNK, columns)
                            publish_keys(
                                states[w],
                                state[0],
                                keys[w],
                                k[0, 0],
                                maps.k,
                                sign,
                                count,
                                left,
                                sums,
                            )
                            s = scores(t.q, k[w, 0], scale, near_keys(w, left))
                            most = pk.maximum(pk.row_max(s), LEAST)
                            index = pk.row_argmax(s).to(pk.f32) + (w * CHUNK).to(pk.f32)
                            s, dots = pk.exp2(s - most), pk.mma_ABt(x.g, v[w, 0])
                            own = [most, index, pk.row_sum(s), pk.row_sum(s * dots)]
                            phi, total = (
                                feature_map(t.q, maps.q, sign, count),
                                total_of(sums, ROWS, 0),
                            )
                            of_phi = pk.mma_ABt(x.g, states[w])
                            own += [pk.row_sum(phi * total), pk.row_sum(phi * of_phi)]
                            state, slot = with_keys(state, [keys[w]], v[0, 0]), 1 - slot
                        with both.fill() as y:
                            for r, z in enumerate(own):
                                pk.store(y.parts(CHUNK)[w * OF_GROUP + r], z)
                        with both.drain() as y:
                            of_rows = rows_of(y, a, by, n - i * CHUNK)
                        kept = pk.where(w == 0, of_rows.kept[0], of_rows.kept[1])
                        s = s * (kept * of_rows.inverse * a) * (dots - of_rows.dot)
                        s = (s + at_index(of_rows.index, w, of_rows.far * by)) * scale
                        of_phi = of_phi - own[5] - (total_of(sums, ROWS, 0) - own[4]) * of_rows.dot
                        phi = phi * (of_rows.inverse * by)
                        with weights.fill() as y:
                            pk.store(y.s.tiles(CHUNK, ROWS)[w, 0], s.to(dtype))
                            pk.store(y.y.tiles(CHUNK, ROWS)[w, 0], (phi * of_phi * sign).to(dtype))
                        with weights.drain() as y:
                            dq = pk.zeros(pk.f32, CHUNK, half)
                            for p in range(PARTS):
                                s, of_y = (z.tiles(CHUNK, ROWS)[p, 0] for z in (y.s, y.y))
                                dq = pk.mma_AB(s, t.k.tiles(CHUNK, half)[p, w], dq)
                                dq = pk.mma_ABt(of_y, maps.q.tiles(half, ROWS)[w, 0], dq)
                                of_map = pk.mma_AtB(of_y, t.q.tiles(CHUNK, half)[0, w], of_map)
                    to = dQ if len(dQ.shape) == 4 else dQ.at(part)
                    pk.store(to[b, h, i, w], dq.to(dQ.dtype))
                    if part == 0:
                        pk.store(features[b, h, i, w], phi.to(dtype))
                    place, is_first = rows.at(part, b, h), w == 0
                    pk.store(place[2 * w, i], pk.where(is_first, of_rows.shift, of_rows.far * by))
                    pk.store(place[2 * w + 1, i], pk.where(is_first, of_rows.dot, of_rows.index))
                    of_factor = of_factor + pk.where(is_first, of_rows.near, of_rows.far)
            pk.store(of_maps[b, h, run, 0, w], of_map)
            if of_factors is not None:
                pk.store(of_factors[b, w * heads + h, run], pk.sum(of_factor))
